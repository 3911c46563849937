//! What nodes know each other by: one key that all have, or a certificate each, signed by the cluster's authority.

mod authority;
mod cipher;
mod files;
mod identity;
mod line;
mod token_server;

pub(crate) use authority::{ANY_NODE, Authority, Place, PublicKey, key_pair};
pub use cipher::{Cipher, PeerSocket};
pub(crate) use files::{read_private, write_private};
pub use identity::Identity;
pub(crate) use identity::{Subject, file as identity_file};
pub(crate) use line::Line;
pub(crate) use token_server::{AuthorityHash, by_hash};

use std::sync::Arc;

use crate::key::Key;

/// What nodes know each other by.
#[derive(Clone, Debug)]
pub enum Trust {
    /// A key that all nodes have. What goes between them is not encrypted.
    Key(Key),
    /// A certificate of each node. All connections are mutual TLS.
    Certificates(Arc<Identity>),
}

impl Trust {
    pub(crate) fn identity(&self) -> Option<&Arc<Identity>> {
        match self {
            Self::Key(_) => None,
            Self::Certificates(identity) => Some(identity),
        }
    }
}
