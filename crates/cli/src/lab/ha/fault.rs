//! What fails, and how it is mended.

use ashlar_lab::LabError;
use ashlar_oltp::namespaces::Way;
use ashlar_oltp::processes::Sign;
use clap::ValueEnum;

use crate::args::HaFault;
use crate::lab::nodes::{Nodes, Seat};

impl HaFault {
    pub(super) fn word(self) -> String {
        let known = self.to_possible_value();
        known.map_or_else(String::new, |value| value.get_name().to_owned())
    }

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
        )
    }

    /// What a host waits for it at most by the protocol's budgets, for people.
    pub(super) const fn budget(self) -> &'static str {
        match self {
            Self::Kill => "0.03-0.1 s",
            Self::KillNode
            | Self::Stop
            | Self::Cut
            | Self::CutOut
            | Self::CutIn
            | Self::CutPeers => "1.6-3.6 s",
            Self::KillMember
            | Self::StopMember
            | Self::CutMember
            | Self::CutMemberOut
            | Self::CutMemberIn => "0.5 s",
            Self::Etcd => "0",
            Self::Move => "0.02-0.05 s",
            Self::KillAll => "the restart",
        }
    }

    /// Lets it happen to a node.
    pub(super) fn strike(self, nodes: &Nodes, node: &str) -> Result<(), LabError> {
        let seat = Seat::node(node);
        match self {
            Self::Kill | Self::KillMember => nodes.kill_daemon(node),
            Self::KillNode => nodes.kill(&seat),
            Self::Stop | Self::StopMember => {
                nodes.signal(&seat, Sign::Stop);
                Ok(())
            }
            Self::Cut | Self::CutMember => nodes.network.set_connected(&seat, false),
            Self::CutOut | Self::CutMemberOut => nodes.network.set_lost(&seat, Way::Out, true),
            Self::CutIn | Self::CutMemberIn => nodes.network.set_lost(&seat, Way::In, true),
            Self::CutPeers => nodes.network.set_alone(&seat, true),
            Self::Etcd => nodes.kill(&Seat::Etcd),
            Self::KillAll => nodes
                .names
                .iter()
                .try_for_each(|name| nodes.kill(&Seat::node(name))),
            Self::Move => Ok(()),
        }
    }

    /// Mends it.
    pub(super) fn mend(self, nodes: &Nodes, node: &str) -> Result<(), LabError> {
        let seat = Seat::node(node);
        match self {
            Self::Kill | Self::KillNode | Self::KillMember => nodes.start_node(node),
            Self::Stop | Self::StopMember => {
                nodes.signal(&seat, Sign::Continue);
                Ok(())
            }
            Self::Cut | Self::CutMember => nodes.network.set_connected(&seat, true),
            Self::CutOut | Self::CutMemberOut => nodes.network.set_lost(&seat, Way::Out, false),
            Self::CutIn | Self::CutMemberIn => nodes.network.set_lost(&seat, Way::In, false),
            Self::CutPeers => nodes.network.set_alone(&seat, false),
            Self::Etcd => nodes.start_etcd(),
            Self::KillAll => nodes
                .names
                .iter()
                .try_for_each(|name| nodes.start_node(name)),
            Self::Move => Ok(()),
        }
    }
}
