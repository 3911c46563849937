//! Volumes of pools, as what a scenario measures: a daemon of its own with new drives in the run's folder.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ashlar_lab::result::Capacity;
use ashlar_lab::{Agents, LabError, Pool, PoolStack, ScenarioFile, Service};
use ashlar_node::model::LayoutSpec;
use rustix::process::{Pid, Signal, kill_process};

use super::process::{Process, ashlar};
use super::{capacity, replicated};

const POOL: &str = "lab";
/// Classes of drives, where a pool has two.
const SLOW: &str = "ssd";
const FAST: &str = "nvme";
pub(crate) const VOLUME: &str = "lab/volume";
/// Bytes of a drive that has nothing but logs and map.
const FAST_BYTES: u64 = 2 << 30;

/// Refuses layouts that there are none of, those that need more drives than their pool has, and nodes that agents of
/// other machines do not reach.
pub fn check(file: &ScenarioFile, clients: &Agents) -> Result<(), LabError> {
    let pools = file.configuration.iter();
    let pools = pools.filter(|of| of.stack.is_empty());
    for (name, pool) in pools.filter_map(|of| Some((&of.name, of.pool.as_ref()?))) {
        if let (2.., Some(agent)) = (pool.nodes(), clients.addresses.first()) {
            return Err(LabError::usage(format!(
                "configuration {name}: its nodes are on this machine's own networks, and --client {agent} would not \
                 reach them: `--set measure.clients=N` has the load made by N agents of this machine"
            )));
        }
        let hot = pool.hot.as_deref().and_then(|hot| hot.split('@').next());
        for layout in std::iter::once(&*pool.layout).chain(hot) {
            let refuse = |why: String| LabError::usage(format!("configuration {name}: {why}"));
            let parsed: Result<LayoutSpec, _> = layout.parse();
            let least = width(parsed.map_err(|error| refuse(error.to_string()))?);
            if pool.drives < least {
                let drives = pool.drives;
                return Err(refuse(format!(
                    "{layout} needs at least {least} drives, and the pool has {drives}"
                )));
            }
        }
    }
    Ok(())
}

/// Drives that a slot of a layout lies on.
fn width(layout: LayoutSpec) -> u32 {
    u32::from(match layout {
        LayoutSpec::Mirror { copies } => copies,
        LayoutSpec::Parity { data, parity } => data + parity,
        LayoutSpec::Stripe { columns } => columns.unwrap_or(1),
    })
}

/// A volume that is served; its daemon ends when this is dropped.
pub struct Volume {
    process: Option<Process>,
    url: String,
    capacity: Option<Capacity>,
}

impl Service for Volume {
    fn url(&self) -> &str {
        &self.url
    }

    fn capacity(&self) -> Option<Capacity> {
        self.capacity.clone()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let stopped = self.process.take().map(Process::stop);
        if let Some(Err(error)) = stopped {
            eprintln!("ashlar: the lab's pool: {error}");
        }
    }
}

/// Makes a pool and a volume, and serves it.
pub fn serve(pool: &PoolStack, on: IpAddr) -> Result<Volume, LabError> {
    let dir = &pool.dir;
    std::fs::create_dir_all(dir).map_err(|error| LabError::caused(dir.display(), error))?;
    let (process, api) = node(&dir.join("node"), on)?;
    let capacity = make_pool(pool, &api, dir)?;
    make_volume(pool, &api)?;
    let url = volume_url(&process, &api, VOLUME)?;
    Ok(Volume {
        process: Some(process),
        url,
        capacity,
    })
}

/// Makes the pool of one node, of new drives in this folder; what of them could be data, were it a pool that is to last.
pub(crate) fn make_pool(
    stack: &PoolStack,
    api: &str,
    folder: &Path,
) -> Result<Option<Capacity>, LabError> {
    let drives = drives(stack, folder);
    let mut words = vec!["pool", "create", POOL, "--api", api];
    for drive in &drives {
        words.extend(["--drive", drive]);
    }
    ashlar(&words)?;
    capacity::asked(POOL, api, &stack.pool)
}

/// Makes the volume, on as many nodes as it is to have copies on.
pub(crate) fn make_volume(stack: &PoolStack, api: &str) -> Result<(), LabError> {
    let size = stack.bytes.to_string();
    let Pool {
        layout,
        hot,
        hot_share,
        ..
    } = &stack.pool;
    let mut words = vec![
        "volume", "create", VOLUME, "--size", &size, "--layout", layout,
    ];
    if stack.pool.fast > 0 {
        words.extend(["--class", SLOW]);
    }
    if let Some(hot) = hot {
        words.extend(["--hot", hot]);
    }
    let share = hot_share.map(|pct| format!("{pct}%"));
    if let Some(share) = &share {
        words.extend(["--hot-share", share]);
    }
    let copies = stack.pool.nodes().to_string();
    if stack.pool.nodes() > 1 {
        words.extend(["--replicas", &copies]);
    }
    words.extend(["--allow-any-host", "--api", api]);
    ashlar(&words).map(drop)
}

/// New files.
fn drives(stack: &PoolStack, folder: &Path) -> Vec<String> {
    let pool = &stack.pool;
    let file = |name: String, bytes, class: &str| {
        let path = folder.join(name);
        let class = match pool.fast {
            0 => String::new(),
            _ => format!("&class={class}"),
        };
        format!("file:{}?size={bytes}&allocate=off{class}", path.display())
    };
    let bytes = pool.drive_bytes(stack.bytes);
    let media = match &pool.media {
        Some(media) if media.contains(':') => format!("{media},"),
        Some(media) => format!("{media}:"),
        None => String::new(),
    };
    let slow = (0..pool.drives)
        .map(|number| format!("{media}{}", file(format!("drive-{number}"), bytes, SLOW)));
    let fast = (0..pool.fast).map(|number| file(format!("fast-{number}"), FAST_BYTES, FAST));
    slow.chain(fast).collect()
}

/// A daemon of its own, and where its API is.
pub fn node(state: &Path, on: IpAddr) -> Result<(Process, String), LabError> {
    let dir = state.display().to_string();
    let listen = SocketAddr::new(on, 0).to_string();
    let words = ["node", "--dir", &dir, "--listen", &listen];
    let process = Process::start(&words, &state.with_extension("log"))?;
    let api = word(&process, 1)?;
    Ok((process, api))
}

/// Where a daemon serves a volume.
pub fn volume_url(process: &Process, api: &str, volume: &str) -> Result<String, LabError> {
    let text = ashlar(&["volume", "show", volume, "--json", "--api", api])?;
    let shown: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| LabError::caused("ashlar volume show", error))?;
    let nqn = shown["nqn"].as_str();
    let nqn = nqn.ok_or_else(|| LabError::environment("ashlar volume show: no NQN"))?;
    Ok(format!("nvme-tcp://{}/{nqn}?ns=1", word(process, 0)?))
}

/// A word that a server says when it is ready.
pub fn word(process: &Process, index: usize) -> Result<String, LabError> {
    let word = process.ready.get(index).cloned();
    word.ok_or_else(|| LabError::environment("a server does not say where it is"))
}

/// Ends daemons and agents that a killed run has left, by the folder that they were given.
///
/// # Errors
/// Nodes of a volume with several copies, or their networks, stay.
pub fn end_left(folders: &[PathBuf]) -> Result<(), LabError> {
    folders
        .iter()
        .try_for_each(|folder| replicated::end_left(folder))?;
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in all {
        let Some(number) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        let is_below = |word: &str| {
            folders
                .iter()
                .any(|folder| Path::new(word).starts_with(folder))
        };
        let is_ours = ["\0node\0", "\0agent\0"]
            .iter()
            .any(|word| words.contains(word));
        if words.split('\0').skip(1).any(is_below) && is_ours {
            // One that has ended meanwhile is what is wanted.
            let _ = Pid::from_raw(number).map(|pid| kill_process(pid, Signal::KILL));
        }
    }
    Ok(())
}
