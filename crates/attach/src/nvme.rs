//! The kernel's own nvme-tcp: connected through /dev/nvme-fabrics, found in sysfs, and let go there.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::AttachError;

/// The kernel's interface for connecting to NVMe over Fabrics.
pub(crate) const FABRICS: &str = "/dev/nvme-fabrics";
/// How long the kernel may take to show a namespace as a block device.
const SCAN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);
/// Keep-alive time-out and time between attempts to connect again, in seconds.
const KEEP_ALIVE: u64 = 15;
const RECONNECT: u64 = 1;

/// A namespace as the kernel is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fabrics {
    /// Where its target is.
    pub address: SocketAddr,
    /// There are other targets of it, over which the kernel would have to be connected as well.
    pub has_other_paths: bool,
    pub nqn: String,
    /// Its number there.
    pub nsid: u32,
    /// Who we are.
    pub host_nqn: String,
    /// The identifier that belongs to that, as a UUID.
    pub host_id: String,
}

/// A controller of the kernel's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controller {
    /// `nvme0`.
    pub name: String,
    /// The subsystem that it is connected to: numbers are used again.
    pub nqn: String,
    /// Whether it is ours to be deleted, or was there before.
    pub ours: bool,
}

/// How a controller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// I/O goes through.
    Live,
    /// It tries to come back; I/O waits.
    Waiting,
    /// It is gone.
    Gone,
}

fn failed(why: impl std::fmt::Display) -> AttachError {
    AttachError::environment(format!("nvme: {why}"))
}

/// Connects, or uses a connection that there is already. I/O fails when the target was away for `limit`;
/// without one, never.
///
/// # Errors
/// Environment: the kernel refuses, which its log explains.
pub(crate) fn connect(to: &Fabrics, limit: Option<Duration>) -> Result<Controller, AttachError> {
    if let Some(name) = connected(to) {
        let nqn = to.nqn.clone();
        let ours = false;
        return Ok(Controller { name, nqn, ours });
    }
    let opened = OpenOptions::new().read(true).write(true).open(FABRICS);
    let mut fabrics = opened.map_err(|error| failed(format!("{FABRICS}: {error}")))?;
    let words = words(to, limit);
    // One write is one attempt.
    fabrics.write_all(words.as_bytes()).map_err(|error| {
        failed(format!(
            "the kernel cannot connect to {} at {}: {error} (dmesg says why)",
            to.nqn, to.address
        ))
    })?;
    let mut answer = String::new();
    let read = fabrics.read_to_string(&mut answer);
    read.map_err(|error| failed(format!("{FABRICS}: {error}")))?;
    let Some(instance) = instance(&answer) else {
        return Err(failed(format!("{FABRICS} answers `{}`", answer.trim())));
    };
    Ok(Controller {
        name: format!("nvme{instance}"),
        nqn: to.nqn.clone(),
        ours: true,
    })
}

/// What /dev/nvme-fabrics takes.
fn words(to: &Fabrics, limit: Option<Duration>) -> String {
    let loss = limit.map_or(-1, |limit| i64::try_from(limit.as_secs()).unwrap_or(-1));
    format!(
        "nqn={},transport=tcp,traddr={},trsvcid={},hostnqn={},hostid={},keep_alive_tmo={KEEP_ALIVE},\
         reconnect_delay={RECONNECT},ctrl_loss_tmo={loss}",
        to.nqn,
        to.address.ip(),
        to.address.port(),
        to.host_nqn,
        to.host_id
    )
}

/// The number in `instance=0,cntlid=1`.
fn instance(answer: &str) -> Option<u32> {
    let words = answer.trim().split(',');
    words
        .filter_map(|word| word.strip_prefix("instance="))
        .find_map(|number| number.parse().ok())
}

fn of_controller(name: &str, attribute: &str) -> Option<String> {
    attribute_of(&Path::new("/sys/class/nvme").join(name), attribute)
}

fn attribute_of(folder: &Path, attribute: &str) -> Option<String> {
    let text = fs::read_to_string(folder.join(attribute)).ok()?;
    Some(text.trim().to_owned())
}

fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// The controller that this host has to the same subsystem at the same address.
fn connected(to: &Fabrics) -> Option<String> {
    let place = format!("traddr={},trsvcid={}", to.address.ip(), to.address.port());
    names("/sys/class/nvme").into_iter().find(|name| {
        let is = |attribute: &str, wanted: &str| {
            of_controller(name, attribute).is_some_and(|found| found == wanted)
        };
        let there = of_controller(name, "address");
        is("subsysnqn", &to.nqn)
            && is("hostnqn", &to.host_nqn)
            && there.is_some_and(|there| there == place || there.starts_with(&format!("{place},")))
    })
}

/// Waits until the namespace is a block device, and gives its path. Its identity must be the one that was
/// asked for.
///
/// # Errors
/// Environment: it does not appear, or is another one.
pub(crate) fn device(to: &Fabrics, identity: &str) -> Result<PathBuf, AttachError> {
    let until = Instant::now() + SCAN;
    loop {
        if let Some(name) = disk(to) {
            same(&name, identity)?;
            let path = Path::new("/dev").join(&name);
            if path.exists() {
                return Ok(path);
            }
        }
        if Instant::now() > until {
            return Err(failed(format!(
                "namespace {} of {} does not appear within {} s",
                to.nsid,
                to.nqn,
                SCAN.as_secs()
            )));
        }
        std::thread::sleep(LOOK);
    }
}

/// The block device of the namespace. Those of single paths below a multipath one (`nvme0c0n1`) cannot be
/// used.
fn disk(to: &Fabrics) -> Option<String> {
    names("/sys/block").into_iter().find(|name| {
        let folder = Path::new("/sys/block").join(name);
        let nsid = attribute_of(&folder, "nsid");
        name.starts_with("nvme")
            && !name[4..].contains('c')
            && attribute_of(&folder, "device/subsysnqn").as_deref() == Some(&to.nqn)
            && nsid.and_then(|text| text.parse().ok()) == Some(to.nsid)
    })
}

fn same(name: &str, identity: &str) -> Result<(), AttachError> {
    let folder = Path::new("/sys/block").join(name);
    let (Some(wanted), Some(found)) = (
        identity.strip_prefix("uuid "),
        attribute_of(&folder, "uuid"),
    ) else {
        return Ok(());
    };
    match found.eq_ignore_ascii_case(wanted) {
        true => Ok(()),
        false => Err(failed(format!(
            "/dev/{name} is another namespace: uuid {found}, not {wanted}"
        ))),
    }
}

/// How a controller is.
pub(crate) fn health(controller: &Controller) -> Health {
    if !is_there(controller) {
        return Health::Gone;
    }
    health_in(of_controller(&controller.name, "state").as_deref())
}

/// How a controller is whose `state` says this: `connecting`, `resetting` and the like come and go.
fn health_in(state: Option<&str>) -> Health {
    match state {
        Some("live") => Health::Live,
        _ => Health::Waiting,
    }
}

fn is_there(controller: &Controller) -> bool {
    of_controller(&controller.name, "subsysnqn").as_deref() == Some(&controller.nqn)
}

/// Deletes a controller and with it its block devices: I/O to them fails. Nothing to do for one that is gone.
///
/// # Errors
/// Environment: it is not gone within `limit`.
pub(crate) fn delete(controller: &Controller, limit: Duration) -> Result<(), AttachError> {
    if !is_there(controller) {
        return Ok(());
    }
    let path = Path::new("/sys/class/nvme")
        .join(&controller.name)
        .join("delete_controller");
    let (say, said) = channel();
    // The write ends when the controller is gone, which a target that does not answer may delay.
    std::thread::spawn(move || {
        // The waiting thread may have given up.
        let _ = say.send(fs::write(path, "1"));
    });
    let until = Instant::now() + limit;
    // One that is being deleted already refuses, and is gone a little later.
    let refused = said.recv_timeout(limit).ok().and_then(Result::err);
    while is_there(controller) {
        if Instant::now() >= until {
            let why = refused.map_or_else(String::new, |error| format!(" ({error})"));
            return Err(failed(format!(
                "{} is not deleted within {} s{why}",
                controller.name,
                limit.as_secs()
            )));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_told_who_where_and_how_long() {
        let to = Fabrics {
            has_other_paths: false,
            address: "[::1]:4420".parse().expect("an address"),
            nqn: "nqn.2026-11.io.example:a".into(),
            nsid: 2,
            host_nqn: "nqn.2014-08.org.nvmexpress:uuid:1".into(),
            host_id: "11111111-1111-4111-8111-111111111111".into(),
        };
        let told = words(&to, Some(Duration::from_secs(600)));
        assert_eq!(
            told,
            "nqn=nqn.2026-11.io.example:a,transport=tcp,traddr=::1,trsvcid=4420,\
             hostnqn=nqn.2014-08.org.nvmexpress:uuid:1,hostid=11111111-1111-4111-8111-111111111111,\
             keep_alive_tmo=15,reconnect_delay=1,ctrl_loss_tmo=600"
        );
        assert!(words(&to, None).ends_with("ctrl_loss_tmo=-1"));
        assert_eq!(instance("instance=12,cntlid=3\n"), Some(12));
        assert_eq!(instance("cntlid=3"), None);
        assert_eq!(instance("instance=x"), None);
    }

    #[test]
    fn a_controller_that_is_not_live_is_reconnecting() {
        assert_eq!(health_in(Some("live")), Health::Live);
        for state in [Some("connecting"), Some("resetting"), Some("new"), None] {
            assert_eq!(health_in(state), Health::Waiting, "{state:?}");
        }
    }

    #[test]
    fn a_controller_that_is_not_there_is_gone() {
        let controller = Controller {
            name: "nvme987654".into(),
            nqn: "nqn.x".into(),
            ours: true,
        };
        assert_eq!(health(&controller), Health::Gone);
        assert_eq!(delete(&controller, Duration::from_secs(1)), Ok(()));
    }
}
