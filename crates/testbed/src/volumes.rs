//! Which volume a folder is on, and what its node tells of it.

use std::path::{Path, PathBuf};

use ashlar_attach::{DEFAULT_FOLDER, State};
use ashlar_node::client::{Client, Endpoint};
use ashlar_node::model::{IoCounters, VolumeName};
use ashlar_oltp::{Served, VolumeNow, Volumes};

/// Beside the socket that takes attachments.
const API_SOCKET: &str = "api.sock";

/// The volumes that are attached on this machine.
pub struct AttachedVolumes {
    /// Where attachments are remembered.
    base: PathBuf,
}

impl AttachedVolumes {
    /// By the folder in which attachments are remembered.
    pub fn here() -> Self {
        let base = std::env::var_os("ASHLAR_ATTACH_STATE");
        Self {
            base: base.map_or_else(|| DEFAULT_FOLDER.into(), PathBuf::from),
        }
    }

    /// The attachment whose file system a folder is on.
    fn attachment(&self, dir: &Path) -> Option<State> {
        let dir = dir.canonicalize().ok()?;
        let all = ashlar_attach::list(&self.base).into_iter();
        let under = all.map(|attachment| attachment.state);
        let under = under.filter(|state| dir.starts_with(&state.mount));
        under.max_by_key(|state| state.mount.components().count())
    }
}

impl Volumes for AttachedVolumes {
    fn under(&self, dir: &Path) -> Option<VolumeNow> {
        let state = self.attachment(dir)?;
        let name: VolumeName = state.volume.parse().ok()?;
        let client = Client::new(daemon(&state)?, None).ok()?;
        let stats = client.volume_stats(&name).ok()?;
        let pool = client.pool(&name.pool).ok()?.space;
        Some(VolumeNow {
            name: state.volume,
            process: client.node().ok().map(|node| node.pid),
            reads: served(stats.read),
            writes: served(stats.write),
            pool_full_pct: 100.0 * pool.used_bytes as f64 / (pool.advertised_bytes as f64).max(1.0),
        })
    }
}

/// The API of the daemon that has an attached volume: the one that serves it in process, or the usual one, where the
/// command that attached it was not told of another.
fn daemon(state: &State) -> Option<Endpoint> {
    match &state.local {
        Some(local) => Some(Endpoint::Socket(local.socket.with_file_name(API_SOCKET))),
        None => std::env::var("ASHLAR_API")
            .unwrap_or_else(|_| Endpoint::DEFAULT.to_owned())
            .parse()
            .ok(),
    }
}

fn served(counters: IoCounters) -> Served {
    Served {
        count: counters.operations,
        total_us: counters.latency_total_us,
    }
}
