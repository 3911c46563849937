//! Topologies and faults, and which of them go together.

use std::fmt;
use std::str::FromStr;

use ashlar_lab::LabError;
use serde::{Deserialize, Serialize};

use crate::group::Tuning;

/// How a database is kept up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// One server, started again where it is.
    Standalone,
    /// Two servers that replicate: Patroni with its defaults (in old results, whatever `told` says).
    Group,
    /// The same, tuned to notice fast.
    GroupFast,
    /// One server on a replicated volume, which moves: `ashlar service`.
    Fci,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// All processes of the primary's database are killed.
    KillDatabase,
    /// The storage daemon of the primary's node is killed.
    KillDaemon,
    /// Every process of the primary's node is killed.
    KillNode,
    /// Every process of the primary's node stands still, and goes on later.
    StopNode,
    /// The primary's node is cut off from all others.
    CutNetwork,
    /// The drive under the primary fails every request; its kernel lives.
    DriveDies,
    /// The drive under the primary answers nothing; its kernel lives.
    DriveHangs,
    /// Every member of etcd is killed.
    EtcdDown,
    /// The primary is moved by hand.
    Move,
}

/// How long clients may not be served in a fault, as the median of its rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// In which.
    pub fault: Fault,
    /// Seconds.
    pub gap_s: f64,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::KillDatabase,
        Self::KillDaemon,
        Self::KillNode,
        Self::StopNode,
        Self::CutNetwork,
        Self::DriveDies,
        Self::DriveHangs,
        Self::EtcdDown,
        Self::Move,
    ];

    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::KillDatabase => "kill-database",
            Self::KillDaemon => "kill-daemon",
            Self::KillNode => "kill-node",
            Self::StopNode => "stop-node",
            Self::CutNetwork => "cut-network",
            Self::DriveDies => "drive-dies",
            Self::DriveHangs => "drive-hangs",
            Self::EtcdDown => "etcd-down",
            Self::Move => "move",
        }
    }

    /// Whether it is done to the primary's drives.
    pub fn breaks_drives(self) -> bool {
        matches!(self, Self::DriveDies | Self::DriveHangs)
    }

    /// Whether it is over only when another node is the primary.
    pub(super) fn must_move(self) -> bool {
        matches!(
            self,
            Self::KillDaemon
                | Self::KillNode
                | Self::StopNode
                | Self::CutNetwork
                | Self::DriveDies
                | Self::DriveHangs
                | Self::Move
        )
    }
}

impl Topology {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Standalone, Self::Group, Self::GroupFast, Self::Fci];

    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Group => "group",
            Self::GroupFast => "group-fast",
            Self::Fci => "fci",
        }
    }

    /// Of these, a group with each tuning; each once, in this order.
    pub fn with(these: &[Self], tunings: &[Tuning]) -> Vec<Self> {
        let tuned = |tuning: &Tuning| Self::of(*tuning);
        let each = |topology: &Self| match topology {
            Self::Group => tunings.iter().map(tuned).collect(),
            other => vec![*other],
        };
        let mut all = Vec::new();
        for one in these.iter().flat_map(each) {
            if !all.contains(&one) {
                all.push(one);
            }
        }
        all
    }

    /// A group of this tuning.
    pub(crate) fn of(tuning: Tuning) -> Self {
        match tuning {
            Tuning::Default => Self::Group,
            Tuning::Fast => Self::GroupFast,
        }
    }

    /// How fast it notices, if it is a group.
    pub fn tuning(self) -> Tuning {
        match self {
            Self::GroupFast => Tuning::Fast,
            Self::Standalone | Self::Group | Self::Fci => Tuning::Default,
        }
    }

    /// Why it does not have a fault, if so.
    pub fn lacks(self, fault: Fault) -> Option<&'static str> {
        Some(match (self, fault) {
            (Self::Standalone, Fault::KillDatabase) => return None,
            (Self::Standalone, Fault::EtcdDown) => "it has no etcd",
            (Self::Standalone, Fault::KillDaemon | Fault::DriveDies | Fault::DriveHangs) => {
                "its place is a plain directory, whose drive is not ours to break"
            }
            (Self::Standalone, _) => "it has no second node that could serve instead",
            (Self::Group | Self::GroupFast, Fault::KillDaemon) => "it has no daemon of ours",
            (Self::Group | Self::GroupFast | Self::Fci, _) => return None,
        })
    }

    /// Whether a fault is mended after a while, even if clients are not served by then: one in which it may well be that
    /// nothing takes over.
    pub(super) fn holds(self, fault: Fault) -> bool {
        let is_group = matches!(self, Self::Group | Self::GroupFast);
        fault == Fault::EtcdDown || (is_group && fault.breaks_drives())
    }

    /// # Errors
    /// A usage error for faults of which it has none, with the reason.
    pub(super) fn check(self, faults: &[Fault]) -> Result<(), LabError> {
        let lacks: Option<Vec<&str>> = faults.iter().map(|fault| self.lacks(*fault)).collect();
        let Some(&why) = lacks.as_ref().and_then(|all| all.first()) else {
            return Ok(());
        };
        let faults: Vec<&str> = faults.iter().map(|fault| fault.word()).collect();
        let faults = faults.join(",");
        Err(LabError::usage(format!(
            "--topology {self} --fault {faults}: {why}"
        )))
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Topology {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.word() == text);
        found.ok_or_else(|| format!("must be one of {}", Self::ALL.map(Self::word).join(", ")))
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.word() == text);
        found.ok_or_else(|| format!("must be one of {}", Self::ALL.map(Self::word).join(", ")))
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: must be a fault and seconds, such as kill-node=8");
        let (fault, seconds) = text.split_once('=').ok_or_else(wrong)?;
        let gap_s: f64 = seconds.parse().map_err(|_| wrong())?;
        if !(gap_s > 0.0 && gap_s.is_finite()) {
            return Err(wrong());
        }
        let fault = fault.parse()?;
        Ok(Self { fault, gap_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_again_and_is_the_one_in_results() {
        for fault in Fault::ALL {
            assert_eq!(fault.word().parse(), Ok(fault));
            let json = serde_json::to_string(&fault).expect("JSON");
            assert_eq!(json, format!("\"{fault}\""));
        }
        for topology in Topology::ALL {
            assert_eq!(topology.word().parse(), Ok(topology));
            let json = serde_json::to_string(&topology).expect("JSON");
            assert_eq!(json, format!("\"{topology}\""));
        }
    }

    #[test]
    fn a_limit_is_a_fault_and_seconds() {
        let limit = Limit {
            fault: Fault::Move,
            gap_s: 1.5,
        };
        assert_eq!("move=1.5".parse(), Ok(limit));
        for wrong in ["move", "move=", "move=0", "move=-1", "move=inf", "away=1"] {
            let why = wrong.parse::<Limit>().expect_err(wrong);
            assert!(why.contains("must be"), "{why}");
        }
    }

    #[test]
    fn a_group_is_measured_with_each_tuning() {
        use Topology::{Fci, Group, GroupFast, Standalone};
        let both = Topology::with(&[Fci, Group], &[Tuning::Default, Tuning::Fast]);
        assert_eq!(both, [Fci, Group, GroupFast]);
        let fast = Topology::with(&[Group, GroupFast, Standalone], &[Tuning::Fast]);
        assert_eq!(fast, [GroupFast, Standalone]);
        assert_eq!(GroupFast.tuning(), Tuning::Fast);
    }

    #[test]
    fn a_fault_that_a_topology_does_not_have_is_refused_with_the_reason() {
        let check = |topology: Topology, faults: &[Fault]| {
            let checked = topology.check(faults);
            checked.map_err(|error| error.to_string())
        };
        let alone = check(Topology::Standalone, &[Fault::KillNode]).expect_err("one node");
        assert!(alone.contains("no second node"), "{alone}");
        let group = check(Topology::Group, &[Fault::KillDaemon]).expect_err("no daemon");
        assert!(group.contains("--fault kill-daemon"), "{group}");
        for fault in Fault::ALL {
            let [plain, fast] = [Topology::Group, Topology::GroupFast].map(|one| one.lacks(fault));
            assert_eq!(plain, fast, "{fault}");
        }
        // Its places are drives of ours where such a fault is asked for. Nothing of a group may notice it.
        for fault in [Fault::DriveDies, Fault::DriveHangs] {
            assert_eq!(Topology::GroupFast.lacks(fault), None);
            assert!(Topology::Group.holds(fault) && !Topology::Fci.holds(fault));
        }
        // One that another topology has is left out.
        let both = [Fault::KillDaemon, Fault::KillNode];
        assert_eq!(check(Topology::Group, &both), Ok(()));
        assert!(
            Fault::ALL
                .iter()
                .all(|&one| Topology::Fci.lacks(one).is_none())
        );
    }
}
