//! The state machines over real sockets: the only part of this room that knows the reactor.

mod blocking;
mod desk;
mod device;
mod host;
mod portals;
mod record;
mod remote;
mod sockets;
mod watch;

pub use blocking::{Identification, NamespaceIdentification, discover, identify};
pub use desk::{Acquire, ReservationDesk};
pub use device::RemoteDevice;
pub use host::{local_host, machine_host};
pub use record::recorded_portals;
pub use remote::Remote;
pub use watch::PathBoard;
