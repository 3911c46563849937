//! A running server that is changed: real sockets and threads, our own initiator as the host.

mod access;
mod changes;
mod disk;
mod ends;
mod hostile;
mod residents;
mod rig;
mod strangers;
