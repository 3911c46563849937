//! The agent's side: a seat of a group, its folder and its programs.

use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ashlar_lab::agent::Seats;
use ashlar_lab::{LONGEST_SOCKET, LabError, OwnFolder, check_length, write_whole};

use super::breaks::{Broken, able};
use super::words::{Claim, Order, Site, Sites, Start, check_settings, read, text};
use crate::faults::Fault;
use crate::group::config::{Keeper, etcd_words, haproxy};
use crate::group::needed;
use crate::group::node::{Member, NodeName, Seat};
use crate::processes::{self, ALONE, TIED};
use crate::remote::ports::Ports;
use crate::seat::{GROUP, Seen, TakeAway, Watched, end_left_behind, mark};
use crate::server::Programs;

/// A database's socket, in a folder of the lab's own.
const SOCKET: &str = "/database/run/.s.PGSQL.5432";
/// The seat of a group that an agent has, if its coordinator wants it to have one.
pub struct GroupSeats<'a> {
    /// Where its folder is made.
    pub dir: &'a Path,
    /// The address by which the coordinator has come: programs listen there.
    pub address: IpAddr,
    /// The password that is made of what was drawn.
    pub password: &'a (dyn Fn(&str) -> String + Sync),
    /// What agents have left, whatever it was, is taken away before it is claimed.
    pub take_away: TakeAway,
    own: Mutex<Option<Own>>,
}

/// A seat that was claimed.
pub(super) struct Own {
    seat: Seat,
    pub(super) site: Site,
    /// Once something was started.
    pub(super) sites: Option<Sites>,
    password: String,
    pub(super) folder: OwnFolder,
    _lock: File,
    pub(super) started: Vec<Started>,
    pub(super) broken: Option<Broken>,
}

/// A program, and the words that have started it.
pub(super) struct Started {
    pub(super) member: Member,
    words: Vec<String>,
}

impl<'a> GroupSeats<'a> {
    /// None is claimed yet; agents have left nothing but seats of groups.
    pub fn new(
        dir: &'a Path,
        address: IpAddr,
        password: &'a (dyn Fn(&str) -> String + Sync),
    ) -> Self {
        Self {
            dir,
            address,
            password,
            take_away,
            own: Mutex::default(),
        }
    }

    fn own(&self) -> MutexGuard<'_, Option<Own>> {
        // Whole after each step.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this host could have a seat.
    fn check(&self) -> Result<(), LabError> {
        needed()?;
        let most = LONGEST_SOCKET - SOCKET.len() - OwnFolder::LONGEST_NAME - 1;
        check_length(self.dir, most)
    }

    fn able(&self, faults: &[Fault]) -> Result<(), LabError> {
        able(faults, self.address)?;
        self.check()
    }

    fn claim(&self, claim: &Claim) -> Result<Site, LabError> {
        if self.own().is_some() {
            return Err(LabError::usage("it has a seat already"));
        }
        self.check()?;
        let folder = OwnFolder::make(self.dir)?;
        // As the kernel names the folders that processes work in.
        end_left_behind(folder.path().parent().unwrap_or(self.dir), self.take_away)?;
        let lock = mark(&folder.path().join(GROUP), claim.seat.letter())?;
        let mut ports = Ports::default();
        let mut free = || {
            let drawn = ports.draw(self.address);
            drawn.map_err(|error| LabError::caused(format!("a port of {}", self.address), error))
        };
        let site = Site {
            etcd_peers: free()?,
            etcd_clients: free()?,
            database: free()?,
            keeper: free()?,
            listener: free()?,
        };
        *self.own() = Some(Own {
            seat: claim.seat,
            site,
            sites: None,
            password: (self.password)(&claim.drawn),
            folder,
            _lock: lock,
            started: Vec::new(),
            broken: None,
        });
        Ok(site)
    }

    /// Ends its part, if it has one.
    ///
    /// # Errors
    /// A process does not end: its folder stays, for the next who claims a seat.
    pub fn end(&self) -> Result<(), LabError> {
        let own = self.own().take();
        own.map_or(Ok(()), Own::end)
    }
}

impl Seats for GroupSeats<'_> {
    fn order(&self, words: &str) -> Result<String, LabError> {
        match read(words)? {
            Order::Claim(claim) => text(&self.claim(&claim)?),
            Order::End => text(&self.end()?),
            Order::Start(start) => text(&self.own().as_mut().ok_or_else(none)?.start(&start)?),
            Order::Look => text(&self.own().as_ref().ok_or_else(none)?.seen()),
            Order::Able(faults) => text(&self.able(&faults)?),
            Order::Break(order) => text(&self.own().as_mut().ok_or_else(none)?.break_it(&order)?),
            Order::Mend => text(&self.own().as_mut().ok_or_else(none)?.mend()?),
        }
    }

    fn look_after(&self) {
        if let Some(own) = &mut *self.own() {
            own.mend_in_time();
        }
    }
}

impl Drop for GroupSeats<'_> {
    fn drop(&mut self) {
        // Who can tell of an error has ended it before.
        let _ = self.end();
    }
}

fn none() -> LabError {
    LabError::usage("it has no seat")
}

impl Own {
    fn end(mut self) -> Result<(), LabError> {
        let is_cut = self.broken.as_ref().is_some_and(Broken::is_cut);
        let connected = if is_cut { self.mend() } else { Ok(()) };
        let folder = self.folder.path();
        let Err(error) = take_away(folder) else {
            return connected;
        };
        let kept = self.folder.keep();
        Err(LabError::caused(format!("{} stays", kept.display()), error))
    }

    pub(super) fn folder(&self, member: Member) -> PathBuf {
        self.folder.path().join(match member {
            Member::Etcd(_) | Member::Witness => "etcd",
            Member::Patroni(_) => "database",
            Member::Listener => "listener",
        })
    }

    fn log(&self, member: Member) -> PathBuf {
        self.folder(member).with_extension("log")
    }

    fn start(&mut self, start: &Start) -> Result<(), LabError> {
        let member = start.member;
        let seat = match member {
            Member::Listener => Seat::Witness,
            _ => member.seat(),
        };
        if seat != self.seat || self.started.iter().any(|one| one.member == member) {
            return Err(LabError::usage(format!(
                "{member:?} is not to be started here"
            )));
        }
        if *start.sites.of(self.seat) != self.site {
            return Err(LabError::usage(
                "its programs listen where it has said, nowhere else",
            ));
        }
        check_settings(&start.set)?;
        let programs = Programs::find()?;
        let folder = self.folder(member);
        make_folder(&programs, &folder)?;
        let address = |seat, port| start.sites.address(seat, port);
        let mut words = tied(matches!(member, Member::Patroni(_)), &programs);
        match member {
            Member::Etcd(_) | Member::Witness => {
                words.push("/usr/bin/etcd".into());
                words.extend(etcd_words(member.seat(), &folder.join("data"), &address));
            }
            Member::Patroni(node) => {
                make_folder(&programs, &folder.join("run"))?;
                let file = folder.join("patroni.yml");
                write_secret(&file, &self.patroni(node, start, &programs))?;
                programs.give(&file)?;
                words.extend(["/usr/bin/python3", "/usr/bin/patroni"].map(str::to_owned));
                words.push(file.display().to_string());
            }
            Member::Listener => {
                let file = folder.join("haproxy.cfg");
                let bind = start.sites.of(Seat::Hub).listener.to_string();
                write_whole(&file, &haproxy(&bind, &address))?;
                words.extend(["/usr/sbin/haproxy", "-db", "-f"].map(str::to_owned));
                words.push(file.display().to_string());
            }
        }
        let started = Started { member, words };
        self.spawn(&started)?;
        self.sites = Some(start.sites);
        self.started.push(started);
        Ok(())
    }

    pub(super) fn spawn(&self, started: &Started) -> Result<(), LabError> {
        let Started { member, words } = started;
        let log = self.log(*member);
        let open = || File::options().create(true).append(true).open(&log);
        let caused = |error| LabError::caused(log.display(), error);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(self.folder(*member));
        command
            .stdout(open().map_err(caused)?)
            .stderr(open().map_err(caused)?);
        processes::start(&mut command)
    }

    /// Patroni's file, where others share the network: who comes in by TCP has the password.
    fn patroni(&self, node: NodeName, start: &Start, programs: &Programs) -> String {
        let keeper = Keeper {
            node,
            home: &self.folder(Member::Patroni(node)),
            tuning: start.tuning,
            set: &start.set,
            address: &|seat, port| start.sites.address(seat, port),
            agents_from: None,
        };
        let mut told = keeper.told(programs);
        let password = &*self.password;
        told["restapi"]["authentication"] =
            serde_json::json!({"username": "ashlar", "password": password});
        told["etcd3"]["username"] = super::quorum::ETCD_USER.into();
        told["etcd3"]["password"] = password.into();
        let postgresql = &mut told["postgresql"];
        for user in ["superuser", "replication", "rewind"] {
            postgresql["authentication"][user]["password"] = password.into();
        }
        postgresql["parameters"]["password_encryption"] = "scram-sha-256".into();
        let mut hba = vec!["local all all scram-sha-256".to_owned()];
        for all in ["0.0.0.0/0", "::/0"] {
            hba.push(format!("host all all {all} scram-sha-256"));
        }
        for node in [Seat::A, Seat::B] {
            let ip = start.sites.of(node).database.ip();
            let bits = if ip.is_ipv4() { 32 } else { 128 };
            hba.push(format!("host replication all {ip}/{bits} scram-sha-256"));
        }
        postgresql["pg_hba"] = hba.into();
        format!("{told:#}\n")
    }

    fn seen(&self) -> Seen {
        let runs = |member: Member| processes::working_in(&[self.folder(member)]);
        let members = || self.started.iter().map(|one| one.member);
        let watched = |member: Member| Watched {
            name: match member {
                Member::Etcd(_) | Member::Witness => "etcd",
                Member::Patroni(_) => "Patroni",
                Member::Listener => "HAProxy",
            },
            folder: self.folder(member),
            log: self.log(member),
        };
        Seen {
            processes: members().map(|member| runs(member).len()).sum(),
            ended: members()
                .filter_map(|member| watched(member).ended())
                .collect(),
        }
    }
}

/// The words before a program: it runs as PostgreSQL's user, and ends with this thread; if root starts it `alone`, all
/// that it has started does, too.
fn tied(alone: bool, programs: &Programs) -> Vec<String> {
    let mut words: Vec<&str> = Vec::new();
    let user = programs.user();
    if alone && user.is_some() {
        words.extend(TIED);
        words.push("--");
        words.extend(ALONE);
    }
    words.extend(TIED);
    let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    if let Some((user, group)) = user {
        words.extend([
            format!("--reuid={user}"),
            format!("--regid={group}"),
            "--clear-groups".into(),
        ]);
    }
    words.push("--".into());
    words
}

fn make_folder(programs: &Programs, folder: &Path) -> Result<(), LabError> {
    std::fs::create_dir_all(folder).map_err(|error| LabError::caused(folder.display(), error))?;
    programs.give(folder)
}

fn write_secret(path: &Path, text: &str) -> Result<(), LabError> {
    let mut options = File::options();
    let open = options.write(true).create_new(true).mode(0o600).open(path);
    let written = open.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| LabError::caused(path.display(), error))
}

fn take_away(folder: &Path) -> Result<(), LabError> {
    processes::end(&[folder.to_owned()])?;
    std::fs::remove_dir_all(folder).map_err(|error| LabError::caused(folder.display(), error))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::group::hosted::words::Break;
    use crate::group::{OVER_AFTER_S, Tuning};

    #[test]
    fn an_agent_starts_what_its_seat_has_where_it_has_said_and_nothing_else() {
        let room = OwnFolder::make(&std::env::temp_dir()).expect("a folder");
        let password = |drawn: &str| drawn.to_owned();
        let seats = GroupSeats::new(room.path(), [127, 0, 0, 1].into(), &password);
        let order = |order: &Order| seats.order(&text(order).expect("JSON"));
        assert!(order(&Order::Look).is_err(), "it has no seat");
        if needed().is_err() {
            return;
        }
        let claim = || {
            Order::Claim(Claim {
                seat: Seat::Witness,
                drawn: "0".into(),
            })
        };
        let site: Site = read(&order(&claim()).expect("claimed")).expect("JSON");
        assert!(order(&claim()).is_err(), "it has a seat");
        let start = |member, site: Site, setting: &[&str]| {
            let start = Start {
                member,
                sites: Sites([site; 3]),
                tuning: Tuning::Fast,
                set: setting.iter().map(|&one| one.to_owned()).collect(),
            };
            let refused = order(&Order::Start(Box::new(start)));
            refused.expect_err("refused").to_string()
        };
        let why = start(Member::Patroni(NodeName::A), site, &[]);
        assert!(why.contains("not to be started here"), "{why}");
        let mut elsewhere = site;
        elsewhere.listener.set_ip([0, 0, 0, 0].into());
        let why = start(Member::Listener, elsewhere, &[]);
        assert!(why.contains("nowhere else"), "{why}");
        let why = start(Member::Witness, site, &["archive_command=x"]);
        assert!(why.contains("archive_command"), "{why}");
        drop(seats);
        let mut left = std::fs::read_dir(room.path()).expect("list");
        assert!(left.next().is_none(), "its folder is gone");
    }

    /// Whatever becomes of the one who has ordered it.
    #[test]
    fn a_fault_is_over_in_time_and_is_one_that_an_agent_does() {
        if needed().is_err() {
            return;
        }
        let room = OwnFolder::make(&std::env::temp_dir()).expect("a folder");
        let password = |drawn: &str| drawn.to_owned();
        let seats = GroupSeats::new(room.path(), [127, 0, 0, 1].into(), &password);
        let order = |order: &Order| seats.order(&text(order).expect("JSON"));
        let refused = |words: &Order| order(words).expect_err("refused").to_string();
        let breaks = |fault, seconds| Order::Break(Break { fault, seconds });
        let why = refused(&Order::Able(vec![Fault::KillNode, Fault::DriveDies]));
        assert!(why.contains("drive-dies"), "{why}");
        assert!(refused(&breaks(Fault::StopNode, 1)).contains("no seat"));
        let claim = Claim {
            seat: Seat::A,
            drawn: "0".into(),
        };
        order(&Order::Claim(claim)).expect("claimed");
        for (fault, seconds) in [
            (Fault::StopNode, 0),
            (Fault::StopNode, OVER_AFTER_S + 1),
            (Fault::Move, 1),
        ] {
            refused(&breaks(fault, seconds));
        }
        let folder = seats
            .own()
            .as_ref()
            .expect("a seat")
            .folder
            .path()
            .to_owned();
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", "import time; time.sleep(600)"]);
        processes::start(command.current_dir(&folder)).expect("started");
        let stands = || {
            let all = processes::working_in(std::slice::from_ref(&folder));
            all.iter().all(|&pid| processes::state(pid) == Some('T'))
        };
        let within = |is_so: &dyn Fn() -> bool| {
            let begun = Instant::now();
            while !is_so() {
                assert!(begun.elapsed() < Duration::from_secs(60));
                seats.look_after();
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        let begun = Instant::now();
        order(&breaks(Fault::StopNode, 1)).expect("done");
        refused(&breaks(Fault::KillNode, 1));
        within(&stands);
        within(&|| !stands());
        assert!(begun.elapsed() >= Duration::from_secs(1));
        order(&breaks(Fault::StopNode, OVER_AFTER_S)).expect("the one before is over");
        within(&stands);
        order(&Order::Mend).expect("mended");
        within(&|| !stands());
        order(&breaks(Fault::StopNode, OVER_AFTER_S)).expect("done");
        seats.end().expect("the one who has ordered it is gone");
        assert!(processes::working_in(&[folder]).is_empty());
    }

    /// By a path that is not the kernel's, of an agent whose number this one has: neither hides what was left.
    #[test]
    fn what_an_agent_left_is_ended_by_the_next_and_what_one_has_is_not() {
        if needed().is_err() {
            return;
        }
        let room = OwnFolder::make(&std::env::temp_dir()).expect("a folder");
        let (dir, link) = (room.path().join("dir"), room.path().join("link"));
        std::fs::create_dir(&dir).expect("made");
        std::os::unix::fs::symlink(&dir, &link).expect("a link");
        let left = OwnFolder::make(&dir).expect("a folder").keep();
        drop(mark(&left.join(GROUP), "a").expect("marked"));
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", "import time; time.sleep(600)"]);
        processes::start(command.current_dir(&left)).expect("started");
        let password = |drawn: &str| drawn.to_owned();
        let claim = |seats: &GroupSeats<'_>| {
            let claim = Order::Claim(Claim {
                seat: Seat::B,
                drawn: "0".into(),
            });
            seats.order(&text(&claim).expect("JSON")).expect("claimed")
        };
        let first = GroupSeats::new(&link, [127, 0, 0, 1].into(), &password);
        claim(&first);
        assert!(!left.exists() && processes::working_in(&[left]).is_empty());
        let second = GroupSeats::new(&dir, [127, 0, 0, 1].into(), &password);
        claim(&second);
        assert_eq!(std::fs::read_dir(&dir).expect("list").count(), 2);
        first.end().expect("ended");
        second.end().expect("ended");
        assert_eq!(std::fs::read_dir(&dir).expect("list").count(), 0);
    }
}
