//! What a group's programs are told.

use std::net::Ipv4Addr;
use std::path::Path;

use super::network::Port;
use super::node::{NodeName, Seat};
use super::{Group, Tuning};
use crate::remote::ROLE;
use crate::server::{DATABASE, Door, OWNER, Programs};

/// Where something of a group listens.
pub(super) type Address<'a> = &'a dyn Fn(Seat, Port) -> String;

/// The command line of a member of etcd.
pub(super) fn etcd_words(seat: Seat, data: &Path, address: Address<'_>) -> Vec<String> {
    let url = |seat, port| format!("http://{}", address(seat, port));
    let all = Seat::NODES.map(|seat| format!("{}={}", seat.letter(), url(seat, Port::EtcdPeers)));
    let (peers, clients) = (url(seat, Port::EtcdPeers), url(seat, Port::EtcdClients));
    let (data, all) = (data.display().to_string(), all.join(","));
    let pairs = [
        ("--name", seat.letter()),
        ("--data-dir", &data),
        ("--listen-peer-urls", &peers),
        ("--initial-advertise-peer-urls", &peers),
        ("--listen-client-urls", &clients),
        ("--advertise-client-urls", &clients),
        ("--initial-cluster", &all),
        ("--initial-cluster-state", "new"),
    ];
    pairs
        .iter()
        .flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()])
        .collect()
}

/// What Patroni and the database that it keeps are.
pub(super) struct Keeper<'a> {
    pub(super) node: NodeName,
    /// Where both live.
    pub(super) home: &'a Path,
    pub(super) tuning: Tuning,
    /// PostgreSQL's settings, `name=value`.
    pub(super) set: &'a [String],
    pub(super) address: Address<'a>,
    /// If clients on other machines are let in: as whom the listener comes for them.
    pub(super) agents_from: Option<Ipv4Addr>,
}

impl Keeper<'_> {
    /// Patroni's file. It is JSON, which is YAML, too: nothing needs quoting by hand.
    pub(super) fn told(&self, programs: &Programs) -> serde_json::Value {
        let path = |name: &str| self.home.join(name).display().to_string();
        let seat = self.node.into();
        let etcd = Seat::NODES.map(|seat| (self.address)(seat, Port::EtcdClients));
        let keeper = (self.address)(seat, Port::Keeper);
        let database = (self.address)(seat, Port::Database);
        let mut parameters = serde_json::Map::new();
        let own = [
            "max_connections=120".to_owned(),
            "shared_buffers=128MB".to_owned(),
            "dynamic_shared_memory_type=mmap".to_owned(),
        ];
        for setting in own.iter().chain(self.set) {
            if let Some((name, value)) = setting.split_once('=') {
                parameters.insert(name.trim().to_owned(), value.trim().into());
            }
        }
        parameters.insert("unix_socket_directories".into(), path("run").into());
        serde_json::json!({
            "scope": "ashlar",
            "name": self.node.to_string(),
            "restapi": {"listen": keeper, "connect_address": keeper},
            "etcd3": {"hosts": etcd},
            "bootstrap": {
                "dcs": shared_settings(self.tuning),
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "data-checksums"],
            },
            "postgresql": {
                "listen": database,
                "connect_address": database,
                "data_dir": path("data"),
                "bin_dir": programs.dir(),
                "pgpass": path("pgpass"),
                // By default the primary spreads the checkpoint before a copy over nine tenths of its
                // checkpoint_timeout: a node whose drive was replaced waits for minutes before it copies anything.
                "basebackup": {"checkpoint": "fast"},
                "authentication": {
                    "superuser": {"username": OWNER},
                    "replication": {"username": "replicator"},
                    "rewind": {"username": OWNER},
                },
                "parameters": parameters,
                "pg_hba": self.rules(),
            },
        })
    }
}

impl Keeper<'_> {
    /// Who gets in: the first that fits counts.
    fn rules(&self) -> Vec<String> {
        let mut rules = Vec::new();
        if let Some(from) = self.agents_from {
            rules.push(format!("host {DATABASE} {ROLE} {from}/32 scram-sha-256"));
            rules.push(format!("host all all {from}/32 reject"));
        }
        let own = [
            "local all all trust",
            "local replication all trust",
            "host all all 0.0.0.0/0 trust",
            "host replication all 0.0.0.0/0 trust",
        ];
        rules.extend(own.map(str::to_owned));
        rules
    }
}

/// What all nodes of a group share, in the quorum.
fn shared_settings(tuning: Tuning) -> serde_json::Value {
    let postgresql = serde_json::json!({
        "use_pg_rewind": true,
        "use_slots": true,
        "parameters": {"max_connections": 120, "wal_keep_size": "256MB"},
    });
    match tuning {
        Tuning::Default => serde_json::json!({
            "synchronous_mode": true,
            "postgresql": postgresql,
        }),
        Tuning::Fast => serde_json::json!({
            "ttl": 5,
            "loop_wait": 1,
            "retry_timeout": 2,
            "failsafe_mode": true,
            "synchronous_mode": true,
            "postgresql": postgresql,
        }),
    }
}

/// HAProxy's file: what `bind` says leads to the node whose keeper says that it is the primary.
pub(super) fn haproxy(bind: &str, address: Address<'_>) -> String {
    let own = "global\n    maxconn 500\ndefaults\n    mode tcp\n    retries 0\n    timeout connect 1s\n    \
               timeout client 1h\n    timeout server 1h\n    timeout check 1s\n";
    own.to_owned() + &to_primary(&format!("primary\n    bind {bind}"), "", address)
}

/// What this says, a name and where it listens, leads to the primary; it comes there `from` somewhere, if that is said.
fn to_primary(listens: &str, from: &str, address: Address<'_>) -> String {
    let mut text = format!(
        "listen {listens}\n    option httpchk OPTIONS /primary\n    http-check expect status 200\n    \
         default-server inter 500 fastinter 200 fall 2 rise 1 on-marked-down shutdown-sessions{from}\n"
    );
    for node in [NodeName::A, NodeName::B] {
        let database = address(node.into(), Port::Database);
        let keeper = address(node.into(), Port::Keeper);
        let port = keeper.rsplit_once(':').map_or("", |(_, port)| port);
        text.push_str(&format!("    server {node} {database} check port {port}\n"));
    }
    text
}

impl Group {
    pub(super) fn address(&self) -> impl Fn(Seat, Port) -> String {
        move |seat, port| self.network.address(seat, port)
    }

    /// Patroni's file.
    pub(super) fn patroni(&self, node: NodeName, programs: &Programs) -> String {
        let keeper = Keeper {
            node,
            home: &self.home(node),
            tuning: self.plan.tuning,
            set: &self.plan.set,
            address: &self.address(),
            agents_from: self.door.as_ref().map(|_| self.network.agents_from()),
        };
        format!("{:#}\n", keeper.told(programs))
    }

    /// What clients on other machines come in by, from where they are: a listener that HAProxy is given.
    fn for_agents(&self, door: &Door) -> String {
        let from: Vec<String> = door.from.iter().map(ToString::to_string).collect();
        let listens = format!(
            "agents\n    bind fd@0\n    tcp-request connection reject if !{{ src {} }}",
            from.join(" ")
        );
        let source = format!(" source {}", self.network.agents_from());
        to_primary(&listens, &source, &self.address())
    }

    /// HAProxy's file: the listener's socket, and one for each keeper.
    pub(super) fn haproxy(&self) -> String {
        let socket = self.dir.join("run/.s.PGSQL.5432");
        let bind = format!("unix@{} mode 666", socket.display());
        let mut text = haproxy(&bind, &self.address());
        if let Some(door) = &self.door {
            text.push_str(&self.for_agents(door));
        }
        for node in [NodeName::A, NodeName::B] {
            let socket = self.keeper_socket(node).display().to_string();
            let keeper = self.network.address(node.into(), Port::Keeper);
            text.push_str(&format!(
                "listen keeper-{node}\n    mode http\n    bind unix@{socket} mode 600\n    server {node} {keeper}\n"
            ));
        }
        text
    }
}
