//! The faults, each with its word on the command line.

use std::str::FromStr;

use ashlar_lab::LabError;
use serde::{Deserialize, Serialize};

/// A fault, its word, and what it is: said once, for the documentation and for the help.
macro_rules! faults {
    ($($fault:ident $word:literal $told:literal)*) => {
        /// What fails. Of the owner, if it does not say member, which is a node with a copy that does not own the volume.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum HaFault {
            $(#[doc = $told] #[serde(rename = $word)] $fault,)*
        }

        impl HaFault {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$fault,)*];

            /// Its word on the command line, and in results.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$fault => $word,)*
                }
            }

            /// What it is.
            pub const fn told(self) -> &'static str {
                match self {
                    $(Self::$fault => $told,)*
                }
            }
        }
    };
}

faults! {
    Kill "kill"
        "The owner's daemon is killed with -9, and started again when another node serves"
    KillNode "kill-node"
        "The same of all its processes at once, as if the machine died: no parent is left to tell the others"
    Stop "stop"
        "All its processes are stopped, and go on when another node serves"
    Cut "cut"
        "The owner is cut off, and connected again when another node serves"
    CutOut "cut-out"
        "The same; only what it sends is lost"
    CutIn "cut-in"
        "The same; only what is sent to it is lost"
    CutPeers "cut-peers"
        "What it sends to other nodes and to etcd is lost, and hosts still reach it"
    KillMember "kill-member"
        "A member's daemon is killed with -9, and started again"
    StopMember "stop-member"
        "A member's processes are stopped, and go on"
    CutMember "cut-member"
        "A member is cut off, and connected again"
    CutMemberOut "cut-member-out"
        "A member: what it sends is lost"
    CutMemberIn "cut-member-in"
        "A member: what is sent to it is lost"
    DrivesDie "drives-die"
        "All of the owner's drives fail, and are well again when another node serves"
    DrivesHang "drives-hang"
        "The same; they do not answer"
    DrivesDieMember "drives-die-member"
        "All of a member's drives fail, and are well again"
    DrivesHangMember "drives-hang-member"
        "The same; they do not answer"
    Etcd "etcd"
        "All of etcd is killed, and started again"
    EtcdMember "etcd-member"
        "One member of etcd is killed, and started again"
    EtcdMajority "etcd-majority"
        "All members of etcd but one are killed, and started again a minute later"
    EtcdPauses "etcd-pauses"
        "The same; meanwhile the owner's drives do not answer for 4 s, then a member is stopped for as long"
    Move "move"
        "The volume is moved to another node"
    Copies "copies"
        "A member's copy is taken away, and given again: all of it is copied"
    KillAll "kill-all"
        "All nodes are killed at once, and started again"
    OldImage "old-image"
        "A member's drives are copied; later all nodes are killed at once, and it is started with that old image"
    Restart "restart"
        "The owner's daemon is told to end, and started again, as an upgrade does it"
    RestartMember "restart-member"
        "The same of a member's"
    Upgrade "upgrade"
        "Node after node: its daemon ends in order, and is started anew from the program of --upgrade-to"
    Power "power"
        "All nodes and all of etcd are killed at once, as if the power failed; then all is started at once"
}

impl FromStr for HaFault {
    type Err = LabError;

    fn from_str(word: &str) -> Result<Self, LabError> {
        let found = Self::ALL.iter().find(|fault| fault.word() == word);
        let unknown = || LabError::usage(format!("--fault {word}: there is no such fault"));
        found.copied().ok_or_else(unknown)
    }
}
