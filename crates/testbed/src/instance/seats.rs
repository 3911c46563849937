//! The agent's side: what a host has of an instance, its folder and its programs.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ashlar_lab::agent::Seats;
use ashlar_lab::{LabError, OwnFolder, Progress, check_length};
use ashlar_node::service::haproxy;
use ashlar_oltp::Ports;
use ashlar_oltp::faults::Fault;
use ashlar_oltp::group::{GroupSeats, Needed};
use ashlar_oltp::processes::{self, Sign, TIED};
use ashlar_oltp::seat::{INSTANCE, Seen, Watched, end_left_behind, mark};
use ashlar_oltp::server::Programs;

use super::breaks::{Broken, able};
use super::words::{Able, Claim, Claimed, Host, OURS, Order, Plan, read, text};
use super::{PASSWORD, RUN, SERVICE};
use crate::nodes::{self, MOUNTS, Nodes, ON_HOSTS, OWN_MOUNTS, Part, Seat, Site};
use crate::process::own_program;

const NODES: &str = "n";
/// The longest path of an agent's directory that has a part.
const LONGEST_DIR: usize = nodes::LONGEST_DIR - "/n".len() - OwnFolder::LONGEST_NAME - 1;
const HAPROXY: &str = "/usr/sbin/haproxy";
/// A service has ended in order after so long, or is killed.
const ENDS_WITHIN: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What an agent runs for a coordinator, of a group or of an instance.
pub(crate) struct AllSeats<'a> {
    pub(crate) group: GroupSeats<'a>,
    own: Mutex<Option<Own>>,
}

/// A part of an instance.
pub(super) struct Own {
    pub(super) host: Host,
    pub(super) site: Site,
    /// Of all, once they are known.
    pub(super) sites: [Site; 3],
    secret: String,
    pub(super) folder: OwnFolder,
    _lock: File,
    nodes: Option<Nodes>,
    watched: Vec<Watched>,
    pub(super) broken: Option<Broken>,
}

impl<'a> AllSeats<'a> {
    /// None is claimed yet.
    pub(crate) fn new(mut group: GroupSeats<'a>) -> Self {
        group.take_away = take_away;
        Self {
            group,
            own: Mutex::default(),
        }
    }

    fn own(&self) -> MutexGuard<'_, Option<Own>> {
        // Whole after each step.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn able(&self, Able { host, faults }: &Able) -> Result<(), LabError> {
        check_host(*host, self.group.dir)?;
        able(faults, self.group.address)
    }

    fn claim(&self, claim: &Claim) -> Result<Claimed, LabError> {
        if self.own().is_some() {
            return Err(LabError::usage("it has a part already"));
        }
        let dir = self.group.dir;
        let programs = check_host(claim.host, dir)?;
        let folder = OwnFolder::make(dir)?;
        // As the kernel names the folders that processes work in.
        end_left_behind(folder.path().parent().unwrap_or(dir), take_away)?;
        let lock = mark(&folder.path().join(INSTANCE), "")?;
        let ip = self.group.address;
        let mut ports = Ports::default();
        let mut free = || {
            let drawn = ports.draw(ip);
            drawn.map_err(|error| LabError::caused(format!("a port of {ip}"), error))
        };
        let site = Site {
            etcd_clients: free()?,
            etcd_peers: free()?,
            portal: free()?,
            replication: free()?,
            api: free()?,
            door: free()?,
        };
        *self.own() = Some(Own {
            host: claim.host,
            site,
            sites: [site; 3],
            secret: (self.group.password)(&claim.drawn),
            folder,
            _lock: lock,
            nodes: None,
            watched: Vec::new(),
            broken: None,
        });
        Ok(Claimed { site, programs })
    }

    /// Ends its part, if it has one.
    ///
    /// # Errors
    /// Something of it stays, for the next who claims one.
    pub(crate) fn end(&self) -> Result<(), LabError> {
        let own = self.own().take();
        let ended = own.map_or(Ok(()), Own::end);
        ended.and(self.group.end())
    }
}

impl Seats for AllSeats<'_> {
    fn order(&self, words: &str) -> Result<String, LabError> {
        let Some(words) = words.strip_prefix(OURS) else {
            return self.group.order(words);
        };
        match read(words)? {
            Order::Able(able) => text(&self.able(&able)?),
            Order::Claim(claim) => text(&self.claim(&claim)?),
            Order::End => text(&self.end()?),
            Order::Etcd(plan) => text(&self.own().as_mut().ok_or_else(none)?.start_etcd(&plan)?),
            Order::Node => text(&self.own().as_mut().ok_or_else(none)?.start_node()?),
            Order::Ready => text(&self.own().as_ref().ok_or_else(none)?.await_node()?),
            Order::Pool => text(&self.own().as_ref().ok_or_else(none)?.make_pool()?),
            Order::Listener => text(&self.own().as_mut().ok_or_else(none)?.start_listener()?),
            Order::Look => text(&self.own().as_ref().ok_or_else(none)?.seen()),
            Order::Break(fault) => text(&self.own().as_mut().ok_or_else(none)?.break_it(fault)?),
            Order::Mend => text(&self.own().as_mut().ok_or_else(none)?.mend()?),
        }
    }

    fn look_after(&self) {
        self.group.look_after();
        if let Some(own) = &mut *self.own() {
            own.mend_in_time();
        }
    }
}

impl Drop for AllSeats<'_> {
    fn drop(&mut self) {
        // Who can tell of an error has ended it before.
        let _ = self.end();
    }
}

fn none() -> LabError {
    LabError::usage("it has no part")
}

impl Own {
    pub(super) fn nodes(&self) -> Result<&Nodes, LabError> {
        let nodes = self.nodes.as_ref();
        nodes.ok_or_else(|| LabError::usage("nothing of its part was started"))
    }

    /// The name of its node.
    pub(super) fn node(&self) -> Result<&'static str, LabError> {
        let name = ON_HOSTS.get(self.host.number()).copied();
        name.ok_or_else(|| LabError::usage("the witness has no node"))
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join(NODES)
    }

    fn seen(&self) -> Seen {
        let all = processes::working_in(&[self.folder.path().to_owned()]);
        let elsewhere = self.world().into_iter().filter(|pid| !all.contains(pid));
        Seen {
            processes: all.len() + elsewhere.count(),
            ended: self.watched.iter().filter_map(Watched::ended).collect(),
        }
    }

    /// From now on its end is told.
    fn watch(&mut self, name: &'static str, folder: PathBuf) {
        let log = folder.join("log");
        self.watched.push(Watched { name, folder, log });
    }

    fn start_etcd(&mut self, plan: &Plan) -> Result<(), LabError> {
        if self.nodes.is_some() {
            return Err(LabError::usage("it was started already"));
        }
        if plan.sites[self.host.number()] != self.site {
            return Err(LabError::usage(
                "its programs listen where it has said, nowhere else",
            ));
        }
        self.sites = plan.sites;
        let dir = self.dir();
        let part = Part {
            here: self.host.number(),
            sites: plan.sites,
            drive_bytes: plan.drive_bytes,
            has_switches: plan.has_switches,
            secret: &self.secret,
        };
        let nodes = Nodes::part(&dir, &part)?;
        nodes.start_etcd()?;
        let etcd = Seat::Etcd(self.host.number());
        self.watch("etcd", nodes.folder(&etcd));
        self.nodes = Some(nodes);
        Ok(())
    }

    fn start_node(&mut self) -> Result<(), LabError> {
        let (node, nodes) = (self.node()?, self.nodes()?);
        let mounts = self.dir().join(MOUNTS);
        let programs = Programs::find()?;
        let run = mounts.join(RUN).join(node);
        std::fs::create_dir_all(&run).map_err(|error| LabError::caused(run.display(), error))?;
        programs.give(&run)?;
        let password = mounts.join(PASSWORD);
        write_secret(&password, &self.secret)?;
        programs.give(&password)?;
        nodes.start_node(node)?;
        let folder = nodes.folder(&Seat::node(node));
        self.watch("the node", folder);
        Ok(())
    }

    fn await_node(&self) -> Result<(), LabError> {
        let node = self.node()?;
        self.nodes()?.await_ready(node, &Progress::silent())
    }

    fn make_pool(&self) -> Result<(), LabError> {
        let node = self.node()?;
        self.nodes()?.make_pool(node)
    }

    /// HAProxy, as `ashlar service haproxy` sets it up.
    fn start_listener(&mut self) -> Result<(), LabError> {
        if self.host != Host::Witness {
            return Err(LabError::usage("the listener is not to be started here"));
        }
        let folder = self.folder.path().join("listener");
        let caused = |error| LabError::caused(folder.display(), error);
        std::fs::create_dir_all(&folder).map_err(caused)?;
        let token = folder.join("token");
        write_secret(&token, &self.secret)?;
        let at = |site: &Site| format!("{}:{}", site.api, site.door.port());
        let nodes: Vec<String> = self.sites[..ON_HOSTS.len()].iter().map(at).collect();
        let listen = self.site.door.to_string();
        let text = haproxy(SERVICE, &listen, &nodes, Some(&token));
        let text = text.map_err(|error| LabError::caused("the listener", error))?;
        let file = folder.join("haproxy.cfg");
        write_secret(&file, &text)?;
        let log = File::create(folder.join("log")).map_err(caused)?;
        let mut command = Command::new(TIED[0]);
        command.args(&TIED[1..]).args(["--", HAPROXY, "-db", "-f"]);
        command.arg(file).current_dir(&folder);
        processes::start(command.stdout(Stdio::null()).stderr(log))?;
        self.watch("HAProxy", folder);
        Ok(())
    }

    fn end(mut self) -> Result<(), LabError> {
        let connected = match &self.broken {
            Some(Broken {
                fault: Fault::CutNetwork,
                ..
            }) => self.mend(),
            _ => Ok(()),
        };
        if self.broken.is_none() {
            self.end_node_in_order();
        }
        let folder = self.folder.path();
        let Err(error) = take_away(folder) else {
            return connected;
        };
        let kept = self.folder.keep();
        Err(LabError::caused(format!("{} stays", kept.display()), error))
    }

    /// The service is stopped in order with its daemon, and so leaves nothing mounted. One that does not end is killed.
    fn end_node_in_order(&self) {
        let (Ok(node), Ok(nodes)) = (self.node(), self.nodes()) else {
            return;
        };
        nodes.tell_to_end(node);
        let begun = Instant::now();
        while !nodes.processes(&Seat::node(node)).is_empty() && begun.elapsed() < ENDS_WITHIN {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// Whether this host could have this; where PostgreSQL's programs are, if it would run one.
fn check_host(host: Host, dir: &Path) -> Result<Option<PathBuf>, LabError> {
    if !rustix::process::geteuid().is_root() {
        return Err(LabError::environment(
            "an instance on given hosts: needs agents that are root's: they attach and mount",
        ));
    }
    check_length(dir, LONGEST_DIR)?;
    Needed::ETCD.check()?;
    if host == Host::Witness {
        return Needed::HAPROXY.check().map(|()| None);
    }
    let is_below = dir
        .canonicalize()
        .is_ok_and(|dir| dir.starts_with(OWN_MOUNTS));
    if is_below || !Path::new(OWN_MOUNTS).is_dir() {
        return Err(LabError::environment(format!(
            "{OWN_MOUNTS} must be there, and have nothing of the agent's below it: a node mounts its volume there, where \
             others do not see it"
        )));
    }
    Ok(Some(Programs::find()?.dir().to_owned()))
}

fn write_secret(path: &Path, text: &str) -> Result<(), LabError> {
    let mut options = File::options();
    let open = options.write(true).create_new(true).mode(0o600).open(path);
    let written = open.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| LabError::caused(path.display(), error))
}

/// Ends all that works in a folder of a part, or of a group's seat, lets go of what it has attached, and removes it and
/// the service's cgroup.
fn take_away(folder: &Path) -> Result<(), LabError> {
    let folders = [folder.to_owned()];
    processes::signal(&folders, Sign::Kill);
    for node in ON_HOSTS {
        // Before its processes are waited for: the last of them may wait for what only they could answer.
        detach(&folder.join(NODES).join(node).join("attached"))?;
    }
    processes::end(&folders)?;
    for node in ON_HOSTS {
        let daemon = folder.join(NODES).join(node).join("state");
        let ended = ashlar_node::service::end_left_behind(&daemon, SERVICE);
        ended.map_err(|error| LabError::caused(folder.display(), error))?;
    }
    std::fs::remove_dir_all(folder).map_err(|error| LabError::caused(folder.display(), error))
}

/// The volume, if it was attached, or about to be; its mounts have gone with the node's own world.
fn detach(state: &Path) -> Result<(), LabError> {
    let is_empty = std::fs::read_dir(state).map_or(true, |mut all| all.next().is_none());
    if is_empty {
        return Ok(());
    }
    let program = own_program()?;
    let mut command = Command::new(&program);
    let mount = Path::new(OWN_MOUNTS).join(SERVICE);
    command.arg("detach").arg(mount).arg("--force");
    command
        .env("ASHLAR_ATTACH_STATE", state)
        .stdin(Stdio::null());
    let output = command.output();
    let output = output.map_err(|error| LabError::caused(program.display(), error))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(LabError::environment(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use ashlar_oltp::seat::GROUP;

    use super::*;

    #[test]
    fn an_agent_starts_what_its_part_has_where_it_has_said_and_nothing_else() {
        let room = tempfile::tempdir().expect("a folder");
        let password = |drawn: &str| drawn.to_owned();
        let ip = [127, 0, 0, 1].into();
        let seats = AllSeats::new(GroupSeats::new(room.path(), ip, &password));
        let order = |order: &Order| seats.order(&format!("{OURS}{}", text(order).expect("JSON")));
        let refused = |what: &Order| order(what).expect_err("refused").to_string();
        assert!(refused(&Order::Node).contains("no part"));
        let able = |faults: &[Fault]| {
            let faults = faults.to_vec();
            Order::Able(Able {
                host: Host::A,
                faults,
            })
        };
        if let Err(lacks) = order(&able(&[])) {
            let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
            assert!(!is_ci, "{lacks}");
            eprintln!("SKIPPED an agent's part: {lacks}");
            return;
        }
        assert!(refused(&able(&[Fault::Move])).contains("move"));
        let claim = Order::Claim(Claim {
            host: Host::A,
            drawn: "0123456789abcdef".into(),
        });
        let claimed: Claimed = read(&order(&claim).expect("claimed")).expect("JSON");
        assert!(refused(&claim).contains("a part already"));
        let mut site = claimed.site;
        site.api.set_ip([0, 0, 0, 0].into());
        let plan = Plan {
            sites: [site; 3],
            drive_bytes: 1 << 20,
            has_switches: false,
        };
        assert!(refused(&Order::Etcd(Box::new(plan))).contains("nowhere else"));
        for (what, why) in [
            (Order::Node, "nothing of its part"),
            (Order::Listener, "not to be started here"),
            (Order::Break(Fault::StopNode), "nothing of its part"),
        ] {
            let said = refused(&what);
            assert!(said.contains(why), "{said}");
        }
        drop(seats);
        let mut left = std::fs::read_dir(room.path()).expect("list");
        assert!(left.next().is_none(), "its folder is gone");
    }

    /// A group's claim ends what an instance has left, and the other way round.
    #[test]
    fn what_either_kind_has_left_is_ended_by_the_next_of_any() {
        let claim = text(&Order::Claim(Claim {
            host: Host::Witness,
            drawn: "0".into(),
        }));
        let claim = format!("{OURS}{}", claim.expect("JSON"));
        let of_group = r#"{"claim":{"seat":"witness","drawn":"0"}}"#.to_owned();
        for (left, claim) in [(GROUP, claim), (INSTANCE, of_group)] {
            let room = tempfile::tempdir().expect("a folder");
            let folder = OwnFolder::make(room.path()).expect("a folder").keep();
            drop(mark(&folder.join(left), "").expect("marked"));
            let mut command = Command::new("/usr/bin/python3");
            command.args(["-c", "import time; time.sleep(600)"]);
            processes::start(command.current_dir(&folder)).expect("started");
            let password = |drawn: &str| drawn.to_owned();
            let seats = GroupSeats::new(room.path(), [127, 0, 0, 1].into(), &password);
            let claimed = AllSeats::new(seats).order(&claim);
            let stays = folder.exists();
            take_away(&folder).unwrap_or_default();
            if let Err(lacks) = claimed {
                let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
                assert!(!is_ci, "{lacks}");
                eprintln!("SKIPPED what is left of {left}: {lacks}");
                continue;
            }
            assert!(!stays, "{left}");
            assert!(processes::working_in(&[folder]).is_empty(), "{left}");
        }
    }

    #[test]
    fn an_agent_whose_folder_a_node_would_hide_is_refused() {
        let why = check_host(Host::B, Path::new(OWN_MOUNTS)).expect_err("hidden");
        assert!(why.to_string().contains(OWN_MOUNTS) || why.to_string().contains("root's"));
    }
}
