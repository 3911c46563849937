//! The listener of an instance: HAProxy, as `ashlar service haproxy` sets it up.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ashlar_lab::LabError;
use ashlar_node::service::haproxy;
use ashlar_oltp::processes;
use ashlar_testbed::nodes::{Nodes, Seat};

use super::service::{PORT, SERVICE};
use super::wrong;

const PROGRAM: &str = "/usr/sbin/haproxy";
const UP_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// It works in a folder of its own, and is known by that.
pub(super) struct Listener {
    folder: PathBuf,
}

impl Listener {
    pub(super) fn at(folder: &Path) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// Starts it where clients are; they connect to a socket in this folder.
    ///
    /// # Errors
    /// It does not come up.
    pub(super) fn start(&self, nodes: &Nodes, socket: &Path) -> Result<(), LabError> {
        let caused = |error| LabError::caused(self.folder.display(), error);
        std::fs::create_dir_all(&self.folder).map_err(caused)?;
        let socket = socket.join(format!(".s.PGSQL.{PORT}"));
        let listen = format!("unix@{} mode 666", socket.display());
        let seats = nodes.names.iter().map(|name| {
            let api = nodes.network.api(&Seat::node(name));
            let api = api.ok_or_else(|| wrong("its nodes have no network"));
            api.map(|api| format!("{api}:{PORT}"))
        });
        let seats: Vec<String> = seats.collect::<Result<_, _>>()?;
        let token = nodes.token(&nodes.names[0]);
        let text = haproxy(SERVICE, &listen, &seats, Some(&token)).map_err(wrong)?;
        let file = self.folder.join("haproxy.cfg");
        ashlar_lab::write_whole(&file, &text)?;
        let log = File::create(self.folder.join("log")).map_err(caused)?;
        let entered = nodes.network.entered_hub();
        let words = entered
            .into_iter()
            .chain([PROGRAM.into(), "-db".into(), "-f".into()]);
        let words: Vec<String> = words.chain([file.display().to_string()]).collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(&self.folder);
        processes::start(command.stdout(Stdio::null()).stderr(log))?;
        let begun = Instant::now();
        while !socket.exists() {
            if begun.elapsed() > UP_WITHIN {
                let said = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Err(wrong(format!("HAProxy does not listen: {}", said.trim())));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// # Errors
    /// It does not end.
    pub(super) fn end(&self) -> Result<(), LabError> {
        processes::end(std::slice::from_ref(&self.folder))
    }
}
