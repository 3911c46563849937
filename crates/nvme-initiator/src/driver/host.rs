use ashlar_nvme::fabrics::Nqn;
use uuid::Uuid;

use crate::config::Host;

/// What machine identifiers are hashed under, so that they are not given away.
const SPACE: Uuid = Uuid::from_bytes(*b"ashlar initiator");

/// This machine as a host: an NQN that follows from the machine's identifier, or a new one for this
/// process if it has none.
pub fn local_host() -> Host {
    machine_host().unwrap_or_else(|| named(Uuid::new_v4()))
}

/// This machine as a host, if it has an identifier.
pub fn machine_host() -> Option<Host> {
    let machine = ["/etc/machine-id", "/var/lib/dbus/machine-id"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .find(|text| !text.trim().is_empty());
    let text = machine?;
    Some(named(Uuid::new_v5(&SPACE, text.trim().as_bytes())))
}

fn named(uuid: Uuid) -> Host {
    Host::named(Nqn::from_uuid(uuid.into_bytes()).as_str())
}
