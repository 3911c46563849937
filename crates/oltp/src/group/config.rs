//! What a group's programs are told.

use super::network::Port;
use super::node::{NodeName, Seat};
use super::{Group, Tuning};
use crate::server::{OWNER, Programs};

impl Group {
    /// The command line of a member of etcd.
    pub(super) fn etcd_words(&self, seat: Seat, data: &str) -> Vec<String> {
        let url = |seat, port| format!("http://{}", self.network.address(seat, port));
        let all =
            Seat::NODES.map(|seat| format!("{}={}", seat.letter(), url(seat, Port::EtcdPeers)));
        let (peers, clients) = (url(seat, Port::EtcdPeers), url(seat, Port::EtcdClients));
        let all = all.join(",");
        let pairs = [
            ("--name", seat.letter()),
            ("--data-dir", data),
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

    /// Patroni's file. It is JSON, which is YAML, too: nothing needs quoting by hand.
    pub(super) fn patroni(&self, node: NodeName, programs: &Programs) -> String {
        let home = self.home(node);
        let path = |name: &str| home.join(name).display().to_string();
        let etcd = Seat::NODES.map(|seat| self.network.address(seat, Port::EtcdClients));
        let keeper = self.network.address(node.into(), Port::Keeper);
        let database = self.network.address(node.into(), Port::Database);
        let mut parameters = serde_json::Map::new();
        let own = [
            "max_connections=120".to_owned(),
            "shared_buffers=128MB".to_owned(),
            "dynamic_shared_memory_type=mmap".to_owned(),
        ];
        for setting in own.iter().chain(&self.plan.set) {
            if let Some((name, value)) = setting.split_once('=') {
                parameters.insert(name.trim().to_owned(), value.trim().into());
            }
        }
        parameters.insert("unix_socket_directories".into(), path("run").into());
        let file = serde_json::json!({
            "scope": "ashlar",
            "name": node.to_string(),
            "restapi": {"listen": keeper, "connect_address": keeper},
            "etcd3": {"hosts": etcd},
            "bootstrap": {
                "dcs": self.shared_settings(),
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
                "pg_hba": [
                    "local all all trust",
                    "local replication all trust",
                    "host all all 0.0.0.0/0 trust",
                    "host replication all 0.0.0.0/0 trust",
                ],
            },
        });
        format!("{file:#}\n")
    }

    /// What all nodes of a group share, in the quorum.
    fn shared_settings(&self) -> serde_json::Value {
        let postgresql = serde_json::json!({
            "use_pg_rewind": true,
            "use_slots": true,
            "parameters": {"max_connections": 120, "wal_keep_size": "256MB"},
        });
        match self.plan.tuning {
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

    /// HAProxy's file: the listener's socket leads to the node whose keeper says that it is the primary.
    pub(super) fn haproxy(&self) -> String {
        let socket = self.dir.join("run/.s.PGSQL.5432");
        let mut text = format!(
            "global\n    maxconn 500\ndefaults\n    mode tcp\n    retries 0\n    timeout connect 1s\n    timeout client 1h\n    \
             timeout server 1h\n    timeout check 1s\nlisten primary\n    bind unix@{} mode 666\n    \
             option httpchk OPTIONS /primary\n    http-check expect status 200\n    \
             default-server inter 500 fastinter 200 fall 2 rise 1 on-marked-down shutdown-sessions\n",
            socket.display()
        );
        for node in [NodeName::A, NodeName::B] {
            let (database, keeper) = (
                self.network.address(node.into(), Port::Database),
                self.network.port(node.into(), Port::Keeper),
            );
            text.push_str(&format!(
                "    server {node} {database} check port {keeper}\n"
            ));
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
