//! Connections between nodes: who calls proves itself, and so does who is called.

mod call;
mod gate;
mod handshake;
mod listen;
mod newcomer;
mod order;
mod refusal;
mod state;
mod wire;

pub(crate) use call::{CallError, Called, Target, call, connected, prepare};
pub(crate) use listen::listen;
pub(crate) use newcomer::{JOIN_MAGIC, LONGEST_ANSWER, hear, tell};
pub(crate) use order::{MAX_ORDER, give};
pub(crate) use refusal::Refusal;
pub(crate) use state::Peer;
pub(crate) use wire::{Hello, NameHash, Nonce, Purpose};
