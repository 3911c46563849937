//! Who is in a cluster that nodes join and leave: one document in the quorum, tokens, and etcd's members.

mod admit;
mod again;
mod agree;
mod document;
mod etcd;
mod follow;
mod founding;
mod home;
mod joining;
mod remove;
mod screen;
mod secret;
#[cfg(test)]
pub(crate) mod tests;

pub use etcd::{QuorumMember, QuorumRole};
pub use follow::MembersView;
pub use founding::{Founding, found};
pub(crate) use home::ask;
pub use home::{EtcdMember, Home, LIES_IN, answers};
pub use joining::{Joined, Newcomer, Role, join};

pub use admit::NewToken;
pub(crate) use admit::take;
#[cfg(test)]
pub(crate) use joining::reach;

pub(crate) use document::{EtcdPlace, MemberNode, Membership, number_of};
pub(crate) use screen::LastLook;
