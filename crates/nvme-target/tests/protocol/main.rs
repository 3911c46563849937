//! The target's protocol against a scripted host and scripted disks, without sockets and clocks.

mod admin;
mod changes;
mod connect;
mod discovery;
mod disk;
mod events;
mod hoarders;
mod host;
mod io;
mod labels;
mod life;
mod memory;
mod paths;
mod picky;
mod reservations;
mod status;
mod storm;
mod succession;
mod transfer;
mod visitors;
mod world;
