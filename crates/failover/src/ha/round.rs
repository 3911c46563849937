//! One fault, from a cluster in sync to a cluster in sync.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ashlar_lab::{Found, LabError, Progress, Pulse};
use ashlar_node::model::{FailoverCause, MoveVolume, ReplicateVolume, VolumeName, VolumeStatus};
use ashlar_oltp::processes::Sign;
use ashlar_testbed::nodes::{DriveTrouble, Nodes, Seat};
use serde::{Deserialize, Serialize};

use super::kept::Kept;
use super::kinds::HaFault;
use super::upgrade::{self, Upgrade};
use crate::all_in_sync;
use crate::copied::Copied;

/// How long anything may take on a busy machine before the round has failed.
const STEP_TIMEOUT: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The load goes on: so many answers more to each of its threads.
const ANSWERS: u64 = 50;

/// What came of a fault.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Round {
    pub(super) fault: String,
    /// Who owned the volume, and who did afterwards.
    owner_before: String,
    owner_after: String,
    /// Who failed.
    pub(super) node: String,
    /// The longest time in which the client had no answer.
    pub(super) gap_ms: u64,
    /// What the protocol is meant to take.
    pub(super) budget: String,
    /// Why ownership has changed, as the new owner says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<FailoverCause>,
    /// From the moment when it was mended until all copies were in sync.
    pub(super) in_sync_ms: u64,
    /// Bytes that copies were seen to miss at the most, each of them.
    pub(super) missed_bytes: u64,
    /// Bytes that owners have copied to them, as they count them.
    pub(super) resynced_bytes: u64,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {}: no answer for {} ms (meant: {}), owner {} -> {}, in sync after {} ms, {} bytes copied of {} missed",
            self.fault,
            self.node,
            self.gap_ms,
            self.budget,
            self.owner_before,
            self.owner_after,
            self.in_sync_ms,
            self.resynced_bytes,
            self.missed_bytes
        )
    }
}

/// Where faults happen.
#[derive(Clone)]
pub(super) struct Scene<'a> {
    pub(super) nodes: &'a Nodes,
    pub(super) volume: VolumeName,
    pub(super) progress: &'a Progress,
    /// Faults were drawn.
    pub(super) is_soak: bool,
    /// What nodes are upgraded to.
    pub(super) upgrade: &'a Upgrade,
    /// Another volume, which has to be in sync, too, when a fault is over.
    pub(super) other: Option<Other<'a>>,
    /// What was copied of the first.
    pub(super) copied: &'a Mutex<Copied>,
}

/// Another volume with a load of its own.
#[derive(Clone)]
pub(super) struct Other<'a> {
    pub(super) volume: VolumeName,
    pub(super) pulse: &'a Pulse,
}

/// Who owns the volume before a fault, and one that has a copy and does not own it.
#[derive(Clone, Copy)]
struct Sides<'a> {
    owner: &'a str,
    member: &'a str,
}

impl Scene<'_> {
    /// One fault after the other, from the first that was not kept.
    pub(super) fn play_all(
        &self,
        schedule: &[HaFault],
        pulse: &Pulse,
        kept: &mut Kept<'_>,
    ) -> Result<(), LabError> {
        for &fault in schedule.iter().skip(kept.rounds.len()) {
            self.progress.go_on()?;
            let number = kept.rounds.len() + 1;
            let round = self.play(fault, pulse).map_err(|error| {
                if self.progress.go_on().is_err() {
                    return error;
                }
                let (word, account) = (fault.word(), self.account());
                LabError::check(format!("fault {number}, {word}: {error}\n{account}"))
            });
            // Whatever came of it.
            kept.find(self.found(pulse))?;
            let round = round?;
            self.progress.say(&format!("fault {number}: {round}"));
            kept.add(round)?;
        }
        Ok(())
    }

    /// One fault.
    pub(super) fn play(&self, fault: HaFault, pulse: &Pulse) -> Result<Round, LabError> {
        let before = self.await_in_sync()?;
        self.await_answers(pulse, "before it")?;
        self.take_gap(pulse);
        let owner = owner_of(&before);
        let member = before.replication.iter().flat_map(|known| &known.replicas);
        let member = member.map(|one| &one.node).find(|node| **node != owner);
        let member = member.cloned().unwrap_or_default();
        let node = match fault {
            HaFault::Etcd | HaFault::EtcdMember | HaFault::EtcdMajority | HaFault::EtcdPauses => {
                "etcd".to_owned()
            }
            HaFault::KillAll | HaFault::Power | HaFault::Upgrade => "all".to_owned(),
            _ if fault.takes_member() => member.clone(),
            _ => owner.clone(),
        };
        let copied_before = self.copied().total();
        self.copied().take_missed();
        fault.strike(self.nodes, &node)?;
        let sides = Sides {
            owner: &owner,
            member: &member,
        };
        self.endure(fault, pulse, sides)?;
        let mended = Instant::now();
        fault.mend(self.nodes, &node)?;
        let started: Vec<&String> = match fault {
            _ if fault.takes_all() => self.nodes.names.iter().collect(),
            _ if fault.starts_nodes() => vec![&node],
            _ => Vec::new(),
        };
        for name in started {
            self.nodes.await_ready(name, self.progress)?;
        }
        if fault == HaFault::OldImage {
            self.expect_old_image(&node)?;
        }
        let after = self.await_in_sync()?;
        let in_sync = mended.elapsed();
        self.await_answers(pulse, "when it is mended")?;
        let owner_after = owner_of(&after);
        let failover = after.replication.and_then(|known| known.last_failover);
        // One after the other: each takes the lock.
        let missed_bytes = self.copied().take_missed();
        let resynced_bytes = self.copied().total() - copied_before;
        Ok(Round {
            fault: fault.word().to_owned(),
            cause: failover
                .filter(|_| owner != owner_after)
                .map(|last| last.cause),
            owner_before: owner,
            owner_after,
            node,
            gap_ms: millis(self.take_gap(pulse)),
            budget: fault.budget().to_owned(),
            in_sync_ms: millis(in_sync),
            missed_bytes,
            resynced_bytes,
        })
    }

    /// What is waited for while something is wrong.
    fn endure(&self, fault: HaFault, pulse: &Pulse, sides: Sides<'_>) -> Result<(), LabError> {
        let Sides { owner, member } = sides;
        match fault {
            HaFault::Move => {
                let client = self.nodes.client(owner)?;
                let request = MoveVolume { to: member.into() };
                let moved = client.move_volume(&self.volume, &request);
                moved.map_err(|error| LabError::caused(&self.volume, error))?;
            }
            HaFault::Copies => self.change_copies(owner)?,
            HaFault::KillAll | HaFault::Power => return Ok(()),
            HaFault::Upgrade => upgrade::roll(self, pulse)?,
            HaFault::EtcdPauses => self.pause(owner, member, pulse)?,
            HaFault::OldImage => return self.turn_back(member, pulse),
            _ if fault.takes_owner() => {
                // Only those that do not fail are asked: others may not answer.
                self.eventually("another node serves", |scene| {
                    let status = scene.ask_at(&scene.volume, |name| name != owner)?;
                    let now = owner_of(&status);
                    Ok(!now.is_empty() && now != owner)
                })?;
            }
            _ if self.is_soak => self.hold(fault.short_hold())?,
            _ => self.hold(fault.hold())?,
        }
        self.await_answers(pulse, "while it lasts")
    }

    /// What goes on after a while does so without the quorum.
    fn pause(&self, owner: &str, member: &str, pulse: &Pulse) -> Result<(), LabError> {
        let lasts = HaFault::EtcdPauses.hold();
        self.nodes.set_drives(owner, Some(DriveTrouble::Hung))?;
        self.hold(lasts)?;
        self.nodes.set_drives(owner, None)?;
        self.await_answers(pulse, "after the owner's drives hung")?;
        let member = Seat::node(member);
        self.nodes.signal(&member, Sign::Stop);
        self.hold(lasts)?;
        self.nodes.signal(&member, Sign::Continue);
        Ok(())
    }

    /// Hosts write on; then all lose power, and the member's drives are what they were before.
    fn turn_back(&self, member: &str, pulse: &Pulse) -> Result<(), LabError> {
        self.nodes.await_ready(member, self.progress)?;
        self.await_in_sync()?;
        self.hold(HaFault::OldImage.hold())?;
        self.await_answers(pulse, "while it lasts")?;
        HaFault::KillAll.strike(self.nodes, member)?;
        self.nodes.restore_image(member)
    }

    fn expect_old_image(&self, node: &str) -> Result<(), LabError> {
        match self.nodes.knows_old_image(node)? {
            true => Ok(()),
            false => Err(LabError::check(format!(
                "node {node} has come back with an old image of its drives, and does not say so"
            ))),
        }
    }

    /// One copy less, and as many as before, while the load goes on.
    fn change_copies(&self, owner: &str) -> Result<(), LabError> {
        let client = self.nodes.client(owner)?;
        let failed = |error| LabError::caused(&self.volume, error);
        let before = client.volume(&self.volume).map_err(failed)?;
        let copies = before.replication.map_or(0, |known| known.replicas.len()) as u8;
        for replicas in [copies.saturating_sub(1), copies] {
            let nodes = Vec::new();
            let request = ReplicateVolume { replicas, nodes };
            let changed = client.replicate_volume(&self.volume, &request);
            changed.map_err(failed)?;
        }
        Ok(())
    }

    fn hold(&self, time: Duration) -> Result<(), LabError> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            self.progress.go_on()?;
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// What these nodes say, of those that answer the one that knows of the newest term: one that was cut off may not
    /// have heard of it.
    fn ask_at(
        &self,
        volume: &VolumeName,
        may: impl Fn(&str) -> bool,
    ) -> Result<VolumeStatus, LabError> {
        let mut error = LabError::environment("no node is left to be asked");
        let mut newest: Option<VolumeStatus> = None;
        for name in self.nodes.names.iter().filter(|name| may(name)) {
            match self.nodes.client(name)?.volume(volume) {
                Ok(status) if epoch_of(&status) >= newest.as_ref().map_or(0, epoch_of) => {
                    newest = Some(status);
                }
                Ok(_) => {}
                Err(why) => error = LabError::caused(format!("node {name}"), why),
            }
        }
        let newest = newest.ok_or(error)?;
        if let Some(known) = newest
            .replication
            .as_ref()
            .filter(|_| *volume == self.volume)
        {
            self.copied().look(known);
        }
        Ok(newest)
    }

    fn copied(&self) -> MutexGuard<'_, Copied> {
        // What is counted is whole after each step.
        self.copied.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all copies are in sync, as a node says.
    pub(super) fn is_in_sync(&self) -> Result<bool, LabError> {
        let other = self.other.iter().map(|other| &other.volume);
        for volume in other.chain([&self.volume]) {
            if !is_in_sync(&self.ask_at(volume, |_| true)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until all copies are.
    pub(super) fn await_in_sync(&self) -> Result<VolumeStatus, LabError> {
        let mut last = None;
        let waited = self.eventually("all copies are in sync", |scene| {
            let status = scene.ask_at(&scene.volume, |_| true)?;
            let done = is_in_sync(&status);
            last = Some(status);
            Ok(done)
        });
        let shown = last
            .as_ref()
            .and_then(|status| serde_json::to_string(&status.replication).ok());
        waited.map_err(|error| match shown {
            Some(shown) => LabError::check(format!("{error}: {shown}")),
            None => error,
        })?;
        self.eventually(
            "all copies of the other volume are in sync",
            Self::is_in_sync,
        )?;
        last.ok_or_else(|| LabError::environment("no node was asked"))
    }

    /// Waits until the clients have had some more answers.
    pub(super) fn await_answers(&self, pulse: &Pulse, when: &str) -> Result<(), LabError> {
        let pulses = self.pulses(pulse);
        let before: Vec<u64> = pulses.iter().flat_map(|pulse| pulse.answers()).collect();
        let what = format!("the clients have answers again, {when}");
        let waited = self.eventually(&what, |_| {
            let now = pulses.iter().flat_map(|pulse| pulse.answers());
            Ok(now
                .zip(&before)
                .all(|(now, before)| now >= before + ANSWERS))
        });
        let told = |pulse: &&Pulse| {
            let silence = pulse.silence().as_secs();
            let answers: u64 = pulse.answers().iter().sum();
            format!("{answers} answers, one thread's last {silence} s ago")
        };
        waited.map_err(|error| {
            let told: Vec<String> = pulses.iter().map(told).collect();
            LabError::check(format!("{error} ({})", told.join("; ")))
        })
    }

    /// What the clients have found wrong so far.
    fn found(&self, pulse: &Pulse) -> Found {
        let pulses = self.pulses(pulse).into_iter();
        pulses.fold(Found::default(), |sum, pulse| sum + pulse.found())
    }

    fn pulses<'p>(&'p self, pulse: &'p Pulse) -> Vec<&'p Pulse> {
        let other = self.other.iter().map(|other| other.pulse);
        other.chain([pulse]).collect()
    }

    /// The longest time in which a client had no answer.
    fn take_gap(&self, pulse: &Pulse) -> Duration {
        let pulses = self.pulses(pulse);
        let gaps = pulses.iter().map(|pulse| pulse.take_gap());
        gaps.max().unwrap_or_default()
    }

    pub(super) fn eventually(
        &self,
        what: &str,
        mut is_so: impl FnMut(&Self) -> Result<bool, LabError>,
    ) -> Result<(), LabError> {
        let begun = Instant::now();
        loop {
            self.progress.go_on()?;
            let answer = is_so(self);
            match answer {
                Ok(true) => return Ok(()),
                Ok(false) | Err(_) if begun.elapsed() < STEP_TIMEOUT => {}
                Ok(false) => {
                    let waited = STEP_TIMEOUT.as_secs();
                    return Err(LabError::check(format!("not within {waited} s: {what}")));
                }
                Err(error) => return Err(error),
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn owner_of(status: &VolumeStatus) -> String {
    let known = status.replication.as_ref();
    known
        .and_then(|known| known.owner.clone())
        .unwrap_or_default()
}

fn epoch_of(status: &VolumeStatus) -> u32 {
    status.replication.as_ref().map_or(0, |known| known.epoch)
}

fn is_in_sync(status: &VolumeStatus) -> bool {
    let known = status.replication.as_ref();
    known.is_some_and(|known| known.owner.is_some() && all_in_sync(&known.replicas))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
