//! What fails, and how it is mended.

use std::time::Duration;

use ashlar_lab::LabError;
use ashlar_oltp::namespaces::Way;
use ashlar_oltp::processes::Sign;
use ashlar_testbed::nodes::{DriveTrouble, Nodes, Seat};

use super::kinds::HaFault;

impl HaFault {
    pub(super) const fn needs_namespaces(self) -> bool {
        matches!(
            self,
            Self::Cut
                | Self::CutPeers
                | Self::CutOut
                | Self::CutIn
                | Self::CutMember
                | Self::CutMemberOut
                | Self::CutMemberIn
        )
    }

    /// Whether it is the owner that fails, so that another node must serve.
    pub(super) const fn takes_owner(self) -> bool {
        matches!(
            self,
            Self::Kill
                | Self::KillNode
                | Self::Stop
                | Self::Cut
                | Self::CutOut
                | Self::CutIn
                | Self::CutPeers
                | Self::DrivesDie
                | Self::DrivesHang
                | Self::Restart
        )
    }

    /// Whether what fails is another node with a copy.
    pub(super) const fn takes_member(self) -> bool {
        matches!(
            self,
            Self::KillMember
                | Self::StopMember
                | Self::CutMember
                | Self::CutMemberOut
                | Self::CutMemberIn
                | Self::DrivesDieMember
                | Self::DrivesHangMember
                | Self::RestartMember
                | Self::OldImage
        )
    }

    /// Whether the nodes' drives must have switches.
    pub(super) const fn needs_switches(self) -> bool {
        matches!(
            self,
            Self::DrivesDie
                | Self::DrivesHang
                | Self::DrivesDieMember
                | Self::DrivesHangMember
                | Self::EtcdPauses
        )
    }

    /// Whether etcd must have three members.
    pub(super) const fn needs_members(self) -> bool {
        matches!(
            self,
            Self::EtcdMember | Self::EtcdMajority | Self::EtcdPauses
        )
    }

    /// How long it lasts at least: longer than what decides about it.
    pub(super) const fn hold(self) -> Duration {
        Duration::from_secs(match self {
            Self::DrivesHangMember => 5,
            Self::EtcdMajority => 60,
            Self::EtcdPauses => 4,
            Self::OldImage => 5,
            _ => 3,
        })
    }

    /// Whether nodes are started to mend it, all that it took.
    pub(super) const fn starts_nodes(self) -> bool {
        matches!(
            self,
            Self::Kill
                | Self::KillNode
                | Self::KillMember
                | Self::DrivesDie
                | Self::DrivesDieMember
                | Self::KillAll
                | Self::OldImage
                | Self::Power
                | Self::Restart
                | Self::RestartMember
        )
    }

    /// Whether that is all nodes.
    pub(super) const fn takes_all(self) -> bool {
        matches!(self, Self::KillAll | Self::OldImage | Self::Power)
    }

    /// What a host waits for it at most by the protocol's budgets, for people.
    pub(super) const fn budget(self) -> &'static str {
        match self {
            Self::Kill
            | Self::KillMember
            | Self::Restart
            | Self::RestartMember
            | Self::DrivesDie => "0.03-0.1 s",
            Self::KillNode
            | Self::Stop
            | Self::Cut
            | Self::CutOut
            | Self::CutIn
            | Self::CutPeers => "1.6-3.6 s",
            Self::StopMember
            | Self::CutMember
            | Self::CutMemberOut
            | Self::CutMemberIn
            | Self::Upgrade => "0.5 s",
            Self::DrivesHang => "2-4 s",
            Self::DrivesDieMember => "0",
            Self::DrivesHangMember => "2 s",
            Self::EtcdPauses => "4 s",
            Self::Etcd | Self::EtcdMember | Self::EtcdMajority | Self::Copies => "0",
            Self::Move => "0.02-0.05 s",
            Self::KillAll | Self::OldImage | Self::Power => "the restart",
        }
    }

    /// How long it lasts if a seed has drawn it, so that others come to their turn.
    pub(super) const fn short_hold(self) -> Duration {
        match self {
            Self::EtcdMajority => Duration::from_secs(10),
            _ => self.hold(),
        }
    }

    /// Lets it happen to a node.
    pub(super) fn strike(self, nodes: &Nodes, node: &str) -> Result<(), LabError> {
        let seat = Seat::node(node);
        match self {
            Self::Kill | Self::KillMember => nodes.kill_daemon(node),
            Self::KillNode => nodes.kill(&seat),
            Self::Restart | Self::RestartMember => nodes.end_daemon(node),
            Self::Stop | Self::StopMember => {
                nodes.signal(&seat, Sign::Stop);
                Ok(())
            }
            Self::Cut | Self::CutMember => nodes.network.set_connected(&seat, false),
            Self::CutOut | Self::CutMemberOut => nodes.network.set_lost(&seat, Way::Out, true),
            Self::CutIn | Self::CutMemberIn => nodes.network.set_lost(&seat, Way::In, true),
            Self::CutPeers => nodes.network.set_alone(&seat, true),
            Self::DrivesDie | Self::DrivesDieMember => {
                nodes.set_drives(node, Some(DriveTrouble::Dead))
            }
            Self::DrivesHang | Self::DrivesHangMember => {
                nodes.set_drives(node, Some(DriveTrouble::Hung))
            }
            Self::Etcd => nodes
                .etcd_seats()
                .iter()
                .try_for_each(|one| nodes.kill(one)),
            Self::EtcdMember => nodes.kill(&Seat::Etcd(0)),
            Self::EtcdMajority | Self::EtcdPauses => {
                let all = nodes.etcd_seats();
                all.iter().skip(1).try_for_each(|one| nodes.kill(one))
            }
            Self::KillAll => nodes
                .names
                .iter()
                .try_for_each(|name| nodes.kill(&Seat::node(name))),
            Self::Power => nodes.kill_all(),
            Self::OldImage => {
                nodes.kill(&seat)?;
                nodes.keep_image(node)?;
                nodes.start_node(node)
            }
            Self::Move | Self::Copies | Self::Upgrade => Ok(()),
        }
    }

    /// Mends it.
    pub(super) fn mend(self, nodes: &Nodes, node: &str) -> Result<(), LabError> {
        let seat = Seat::node(node);
        match self {
            Self::Kill
            | Self::KillNode
            | Self::KillMember
            | Self::Restart
            | Self::RestartMember => nodes.start_node(node),
            Self::Stop | Self::StopMember => {
                nodes.signal(&seat, Sign::Continue);
                Ok(())
            }
            Self::Cut | Self::CutMember => nodes.network.set_connected(&seat, true),
            Self::CutOut | Self::CutMemberOut => nodes.network.set_lost(&seat, Way::Out, false),
            Self::CutIn | Self::CutMemberIn => nodes.network.set_lost(&seat, Way::In, false),
            Self::CutPeers => nodes.network.set_alone(&seat, false),
            Self::DrivesDie | Self::DrivesDieMember => {
                // A pool that has failed comes back with its daemon.
                nodes.kill(&seat)?;
                nodes.set_drives(node, None)?;
                nodes.start_node(node)
            }
            Self::DrivesHang | Self::DrivesHangMember => nodes.set_drives(node, None),
            Self::Etcd | Self::EtcdMember | Self::EtcdMajority | Self::EtcdPauses => {
                nodes.start_etcd()
            }
            Self::KillAll | Self::OldImage => nodes.start_nodes(),
            // Machines do not wait for each other either.
            Self::Power => nodes.start_nodes().and_then(|()| nodes.start_etcd()),
            Self::Move | Self::Copies | Self::Upgrade => Ok(()),
        }
    }
}
