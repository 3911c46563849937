/// A host: its NQN and identifier, as a number that is the same on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u64);

/// An association of a host with a target: all its queues. Never used twice in a process' life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssociationId(pub u64);

/// How old a command may be: what was known at a time after which its host is known to have used the association.
/// Never made fresh again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The epoch of the device's owner.
    pub epoch: u32,
    /// Writes of the host's other associations in it.
    pub writes: u64,
}

/// A host's identifier, by which it reserves: some hosts have one in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Registrant(pub [u8; 16]);

/// Whose command it is, and how old it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provenance {
    pub host: HostId,
    /// As it reserves.
    pub registrant: Registrant,
    /// By which association.
    pub association: AssociationId,
    /// `None` if the device knew no label then.
    pub label: Option<Label>,
    /// It is to be done by the node that it has come to, or by none.
    pub here_only: bool,
}
