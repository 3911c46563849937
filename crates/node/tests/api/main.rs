//! The API from outside: over its sockets, with the client and with raw bytes.

mod abuse;
mod life;
mod node;
mod pools;
mod volumes;
