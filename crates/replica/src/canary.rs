//! What can be broken on purpose, to show that the simulator notices. Only builds with the feature `canary` can:
//! without it [`Cage::sings`] is always false, and the compiler leaves it all out.
//!
//! Not here, because nothing would come of them: *an old acknowledgement of a learner that clears the bit of a newer
//! write*, and *a failed write that is not marked for learners which have it*. The
//! model adds a learner when its plane is empty. Here an owner counts what each learner has not acknowledged, so the record
//! that restores the range is waited for, marked or not, and so is the newer one; and until a learner was added, its own
//! plane has all that it acknowledged.

/// Makes the enum and the list of all of it, so that no canary can be left out of the list.
macro_rules! canaries {
    ($($(#[$said:meta])* $name:ident,)*) => {
        /// A defect, one for each promise that the protocol's order of steps keeps.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Canary {
            $($(#[$said])* $name,)*
        }

        impl Canary {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

canaries! {
    /// A removal counts when it is sent, not when it is read back.
    AckBeforeRemoval,
    /// A member takes records of an older epoch.
    OldEpoch,
    /// An owner reads without grants.
    NoLease,
    /// A member forgets its grant in a restart.
    ForgetPromise,
    /// An owner serves before all have joined.
    ActivateEarly,
    /// An owner goes on with its epoch after a restart.
    ResumeEpoch,
    /// A member outside the in-sync set takes over.
    ElectAny,
    /// A read does not wait for an overlapping write.
    ReadUncommitted,
    /// A direct read is not judged when its data is here.
    DirectUnchecked,
    /// Overlapping writes are in flight together.
    NoRangeLock,
    /// Uncertain ranges are read before they are overwritten.
    ServeBeforeBase,
    /// The new owner knows its own uncertain set only.
    MembersNotAsked,
    /// A member forgets older epochs' records at JOIN, not when the base is committed.
    ForgetAtJoin,
    /// The lowest uncommitted is taken from local durability.
    LowTooHigh,
    /// The local store lets uncommitted records go.
    TailLost,
    /// The owner does not mark what is in flight when it removes a member.
    NoMarkRemove,
    /// The other members are not told of a removal before they are told of commits.
    NoEntry,
    /// A new owner does not mark its uncertain set for those it leaves out.
    NoMarkTakeover,
    /// A returning copy does not bring its uncertain set.
    RejoinBare,
    /// The handshake clears the survivor's dirty bits.
    BitsCleared,
    /// A session or a copy begins while an add of that member is unresolved.
    UnsettledAdd,
    /// A learner forgets its own plane when it has told one owner.
    LearnerForgets,
    /// A learner is added with dirty bits left.
    AddNotCaught,
    /// Commits do not wait for a member whose add is unresolved.
    AddNotNeeded,
    /// A member is added without its grant.
    AddNoGrant,
    /// JOIN is answered while older operations are in the local store.
    JoinUndrained,
    /// A new session begins while older operations are in the local store.
    AttachUndrained,
    /// A copy does not take the range's lock.
    CopyUnlocked,
    /// A member applies overlapping records of a session in any order.
    Unordered,
    /// A learner does not mark copies for other absent members.
    CopyNoMark,
    /// A write that fails at the owner stays on the members.
    NoRestore,
    /// The owner serves on after it has handed off.
    HandoffServes,
    /// Ownership is given away while the quorum does not answer, and no other copy can take it.
    HandoffUnasked,
    /// A host's write is taken whatever its label says.
    FenceOff,
    /// A label of another epoch is taken.
    FenceWithoutEpoch,
    /// Writes of a host's other associations on the same node do not count.
    FenceByNode,
    /// A label of another epoch is made fresh instead of being refused.
    FenceRefreshed,
    /// Where a host has written lately by another association does not count.
    FenceBlind,
    /// The proof among copies in sync compares nothing.
    ProofBlind,
    /// A JOIN counts for nothing until a grant is asked for: its owner is taken for silent.
    JoinUnheard,
    /// Who has handed over takes the volume back at once.
    NoStandBack,
    /// A change of the register does not go to the others.
    RegisterNotSent,
    /// Hosts are served before the register was read.
    ServeBeforeRegister,
    /// A forwarded command gets a label when it arrives.
    ForwardRefreshed,
    /// What an owner has not heard while it was held up was not said.
    PauseIsSilence,
    /// A copy that is known to be an old image takes part as if it were not.
    OldImageCounts,
    /// A member whose store is slow is taken for one whose store hangs.
    SlowIsStuck,
    /// Another copy than the key names is given what the one that it replaces has missed.
    NewcomerTrusted,
    /// Copies are changed for an operator who has given up waiting.
    WishKept,
    /// Copies are changed although others are in sync than when it was looked at whether they may be.
    WishUnchecked,
    /// Copies get room for more before the key says the size that there is.
    GrowUnpinned,
    /// The volume becomes larger though another copy has come since all had got the room.
    GrowUncounted,
    /// A copy that differs stays in sync.
    DivergedStays,
    /// What is fetched from another copy does not take the range's lock.
    HealUnlocked,
    /// What is fetched from another copy is taken whatever the checksums say.
    HealUnmatched,
    /// What is lost of a base is not remembered when all else of it counts as committed.
    LostForgotten,
    /// A copy whose node ends is not waited for as soon as it has said so.
    LeaverUncounted,
    /// What others remember of how far a copy had come counts for nothing.
    LagsUnseen,
    /// A change of hosts' rights does not wait for writes that were let in before.
    RightsOvertake,
}

/// The canary of a replica, if it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cage(Option<Canary>);

impl Cage {
    /// A cage with this canary in it; empty in builds without the feature.
    pub const fn new(canary: Option<Canary>) -> Self {
        Self(canary)
    }

    /// Whether this defect is wanted.
    pub fn sings(self, canary: Canary) -> bool {
        cfg!(feature = "canary") && self.0 == Some(canary)
    }
}
