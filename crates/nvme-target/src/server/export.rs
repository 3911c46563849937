use std::net::SocketAddr;
use std::sync::Arc;

use ashlar_block::Geometry;
use ashlar_reactor::Opener;
use uuid::Uuid;

use crate::config::{HostAccess, NamespaceConfig, Shared, SubsystemConfig};
use crate::reservation::Reservations;

/// A subsystem and the devices behind its namespaces.
#[derive(Clone)]
pub struct Export {
    pub nqn: String,
    /// Its devices: nsid 1, 2, …
    pub devices: Vec<Arc<dyn Opener>>,
    /// The identity of each device, by which hosts recognise it wherever it turns up. Where there
    /// is none, it follows from the NQN and the number, and is the same after every restart.
    pub identities: Vec<Option<Uuid>>,
    /// Who may connect.
    pub access: HostAccess,
    /// What discovery tells hosts to connect to, if not the address they used.
    pub advertise: Option<SocketAddr>,
    /// How each device can be reserved; hosts are offered that only where it is said.
    pub reservations: Vec<Option<Reservations>>,
    /// How it is shared with other targets, if it is.
    pub shared: Option<Shared>,
}

/// The identity of a namespace that was given none.
fn namespace_uuid(nqn: &str, nsid: usize) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("{nqn}#{nsid}").as_bytes())
}

impl Export {
    /// What the target is told of it.
    pub(super) fn config(&self) -> SubsystemConfig {
        let namespace = |(index, geometry): (usize, Geometry)| {
            let given = self.identities.get(index).copied().flatten();
            NamespaceConfig {
                geometry,
                uuid: given.unwrap_or_else(|| namespace_uuid(&self.nqn, index + 1)),
                reservations: self.reservations.get(index).cloned().flatten(),
            }
        };
        let geometries = geometries(&self.devices).into_iter().enumerate();
        SubsystemConfig {
            nqn: self.nqn.clone(),
            namespaces: geometries.map(namespace).collect(),
            access: self.access.clone(),
            advertise: self.advertise,
            shared: self.shared.clone(),
        }
    }
}

/// What the devices are now.
pub(super) fn geometries(devices: &[Arc<dyn Opener>]) -> Vec<Geometry> {
    devices.iter().map(|device| device.geometry()).collect()
}
