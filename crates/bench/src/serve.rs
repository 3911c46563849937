//! Servers as children: `ashlar serve`, and the bare one.

use std::net::SocketAddr;
use std::path::Path;

use rustix::process::Pid;

use crate::args::Options;
use crate::child::{Child, Program, words};
use crate::failure::Failure;
use crate::figures::Case;

/// The name of every subsystem that is served here.
pub(crate) const NQN: &str = "nqn.2026-11.io.ashlar:bench";

/// A server that takes connections.
pub(crate) struct Running {
    child: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl Running {
    /// Its process number.
    pub(crate) fn pid(&self) -> Pid {
        self.child.pid()
    }

    /// Starts a program that says `ready ADDR:PORT …` when it is.
    pub(crate) fn start(program: &Program) -> Result<Self, Failure> {
        let mut child = program.start()?;
        let line = child.first_line()?;
        let address = parse_ready(&line);
        match address {
            Some(address) => Ok(Self { child, address }),
            None => Err(child.failed(&format!("says \"{line}\" instead of being ready"))),
        }
    }
}

/// The address in `ready ADDR:PORT NQN`.
fn parse_ready(line: &str) -> Option<SocketAddr> {
    let mut words = line.split(' ');
    if words.next()? != "ready" {
        return None;
    }
    words.next()?.parse().ok()
}

/// Starts `ashlar serve` with one device on these cores; `name` names its log.
pub(crate) fn ashlar(
    options: &Options,
    name: &str,
    device: &str,
    cores: &[usize],
) -> Result<Running, Failure> {
    ashlar_for(options, name, device, cores, &["--allow-any-host".into()])
}

/// The same for those hosts that `access` says.
pub(crate) fn ashlar_for(
    options: &Options,
    name: &str,
    device: &str,
    cores: &[usize],
    access: &[String],
) -> Result<Running, Failure> {
    let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
    let mut args = words([
        "serve",
        "--device",
        device,
        "--listen",
        "127.0.0.1:0",
        "--nqn",
        NQN,
        "--cores",
        &cores.join(","),
    ]);
    args.extend(access.iter().map(Into::into));
    let program = Program {
        name: format!("ashlar serve ({name})"),
        path: options.ashlar.clone(),
        args,
        core: None,
        log: options.out.join(format!("{name}.log")),
        output: None,
    };
    Running::start(&program)
}

/// Starts the bare server for `case` on a core.
pub(crate) fn bare(out: &Path, case: &Case, core: usize) -> Result<Running, Failure> {
    let mut args = words(["bare-server", "--block", &case.block_bytes.to_string()]);
    if case.is_write() {
        args.push("--write".into());
    }
    let program = Program {
        name: "the bare server".into(),
        path: std::env::current_exe().map_err(Failure::doing("this binary's path"))?,
        args,
        core: Some(core),
        log: out.join("bare-server.log"),
        output: None,
    };
    Running::start(&program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_ready_line_has_an_address() {
        let address = parse_ready("ready 127.0.0.1:4420 nqn.x");
        assert_eq!(address, Some(([127, 0, 0, 1], 4420).into()));
        assert_eq!(parse_ready("error 127.0.0.1:4420"), None);
        assert_eq!(parse_ready("ready"), None);
    }
}
