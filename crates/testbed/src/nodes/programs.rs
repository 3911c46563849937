//! A cluster's programs, started one by one.

use std::fs::File;
use std::process::Command;

use ashlar_lab::LabError;
use ashlar_oltp::processes;

use super::network::{Port, Seat};
use super::{DOOR_IP, DOOR_PORT, NODE, Nodes};

/// Of a node's log, as its last words: the parent's last line hides why its daemon has ended.
const LAST_LINES: usize = 5;

impl Nodes {
    /// Starts etcd's members that do not run and are this machine's.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn start_etcd(&self) -> Result<(), LabError> {
        let seats = self.etcd_seats();
        let here = seats.iter().filter(|seat| self.network.has(seat));
        let mut stopped = here.filter(|seat| self.processes(seat).is_empty());
        stopped.try_for_each(|seat| self.start_member(seat))
    }

    fn start_member(&self, seat: &Seat) -> Result<(), LabError> {
        let url = |seat: &Seat, port| format!("http://{}", self.network.address(seat, port));
        let (peers, clients) = (url(seat, Port::Peers), url(seat, Port::Clients));
        let data = self.folder(seat).join("data").display().to_string();
        let all = self.etcd_seats();
        let all = all
            .iter()
            .map(|one| format!("{}={}", one.name(), url(one, Port::Peers)));
        let all = all.collect::<Vec<_>>().join(",");
        let words = [
            "/usr/bin/etcd",
            "--name",
            seat.name(),
            "--data-dir",
            &data,
            "--listen-peer-urls",
            &peers,
            "--initial-advertise-peer-urls",
            &peers,
            "--listen-client-urls",
            &clients,
            "--advertise-client-urls",
            &clients,
            "--initial-cluster",
            &all,
        ];
        self.spawn(seat, &words.map(str::to_owned))
    }

    /// Starts a node's daemon, which is not waited for.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_node(&self, name: &str) -> Result<(), LabError> {
        let seat = Seat::node(name);
        let program = self.program(name)?;
        let listen = self.network.address(&seat, Port::Clients).to_string();
        let mut words = vec![
            program.display().to_string(),
            "node".into(),
            "--dir".into(),
            self.state(name).display().to_string(),
            "--listen".into(),
            listen,
            "--name".into(),
            name.into(),
            "--cluster".into(),
            self.cluster_file().display().to_string(),
        ];
        if let Some(api) = self.network.api(&seat) {
            words.extend(["--api".into(), api.to_string()]);
        }
        if let Some(newest) = self.protocol(name)? {
            words.extend(["--protocol-at-most".into(), newest]);
        }
        self.spawn(&seat, &words)
    }

    /// Starts all of them.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn start_nodes(&self) -> Result<(), LabError> {
        self.names.iter().try_for_each(|name| self.start_node(name))
    }

    /// Its first line goes into `ready`, what it complains about into `log`.
    fn spawn(&self, seat: &Seat, words: &[String]) -> Result<(), LabError> {
        let folder = self.folder(seat);
        let (ready, log) = (folder.join("ready"), folder.join("log"));
        let out = File::create(&ready);
        let out = out.map_err(|error| LabError::caused(ready.display(), error))?;
        let errors = File::options().create(true).append(true).open(&log);
        let errors = errors.map_err(|error| LabError::caused(log.display(), error))?;
        let mut all = self.network.entered(seat);
        if rustix::process::geteuid().is_root() {
            // What a node mounts is mounted there only; what others unmount is not kept mounted by it.
            let own = ["unshare", "--mount", "--propagation", "slave", "--"];
            all.extend(own.map(str::to_owned));
        }
        all.extend_from_slice(words);
        let mut command = Command::new(&all[0]);
        command
            .args(&all[1..])
            .current_dir(&folder)
            .env("ASHLAR_ATTACH_STATE", folder.join("attached"))
            .env(NODE, seat.name());
        if let Some(door) = self.network.door(seat) {
            command.env(DOOR_IP, door.ip().to_string());
            command.env(DOOR_PORT, door.port().to_string());
        }
        processes::start(command.stdout(out).stderr(errors))
    }

    /// Whether a node has said that it is ready since it was started.
    pub fn is_ready(&self, name: &str) -> bool {
        let file = self.folder(&Seat::node(name)).join("ready");
        std::fs::read_to_string(file).is_ok_and(|text| text.starts_with("ready "))
    }

    pub(super) fn last_words(&self, name: &str) -> String {
        let file = self.folder(&Seat::node(name)).join("log");
        let said = std::fs::read_to_string(file).unwrap_or_default();
        let lines: Vec<&str> = said
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        match &lines[lines.len().saturating_sub(LAST_LINES)..] {
            [] => "nothing".to_owned(),
            last => last.join("\n"),
        }
    }
}
