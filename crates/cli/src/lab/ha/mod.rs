//! `ashlar lab ha`: a replicated volume on nodes that fail, under a load that checks everything.

mod fault;
mod result;
mod round;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ashlar_device::parse_size;
use ashlar_lab::{
    Endurance, EndurePlan, Endured, LabError, OwnFolder, Progress, ResultFile, check_out_dir,
};
use ashlar_node::model::{CreateVolume, LayoutSpec, VolumeName, VolumeStatus};

use self::result::HaResult;
use self::round::{Round, Scene};
use super::interrupt::interruptible;
use super::nodes::{MOST_NODES, Nodes, NodesPlan, POOL, Port, Seat};
use super::stacks::LocalStacks;
use crate::args::HaArguments;
use crate::exit::Failure;
use crate::output::print;

const VOLUME: &str = "db";
/// What logs and map of a pool, and slots written elsewhere before old ones are free, take on each drive besides the
/// volume.
const SPARE_BYTES: u64 = 1 << 30;
/// How long a host waits without a usable path: longer than anything here takes on a busy machine.
const LOSS: &str = "180s";
/// How soon a host finds that a node does not answer any more.
const KEEP_ALIVE: &str = "5s";
const BLOCK: u32 = 8192;
const THREADS: u32 = 2;
const DEPTH: u32 = 4;
/// Half of the accesses are reads: what was read must not revert.
const READ_PCT: u8 = 50;
/// Nodes and load share few processors; the load shall not be what takes them.
const THINK: Duration = Duration::from_millis(1);

pub(super) fn run(arguments: &HaArguments) -> Result<(), Failure> {
    let bytes = check(arguments)?;
    check_out_dir(&arguments.out)?;
    let progress = interruptible()?;
    let own = match &arguments.dir {
        Some(_) => None,
        None => Some(OwnFolder::make(&std::env::temp_dir())?),
    };
    let dir = match (&arguments.dir, &own) {
        (Some(dir), _) => dir.clone(),
        (None, Some(own)) => own.path().join("c"),
        (None, None) => PathBuf::new(),
    };
    let plan = NodesPlan {
        nodes: arguments.nodes,
        drive_bytes: 2 * bytes + SPARE_BYTES,
        loopback: arguments.loopback,
    };
    let nodes = Nodes::up(&dir, &plan, &progress)?;
    let result = rounds(&nodes, (arguments, bytes), &progress);
    let is_fine = result
        .as_ref()
        .is_ok_and(|result| result.complaint().is_none());
    if !is_fine {
        keep_logs(&nodes, &arguments.out)?;
    }
    nodes.down()?;
    progress.finish();
    let result = result?;
    result.write(&arguments.out)?;
    result.write_report(&arguments.out)?;
    print(&result.text())?;
    match result.complaint() {
        Some(text) => Err(Failure::check(format!(
            "{text}; the nodes' logs are in {}",
            arguments.out.display()
        ))),
        None => Ok(()),
    }
}

fn check(arguments: &HaArguments) -> Result<u64, Failure> {
    let HaArguments {
        nodes,
        replicas,
        rounds,
        ..
    } = *arguments;
    if !(2..=MOST_NODES).contains(&nodes) {
        return Err(Failure::usage(format!(
            "--nodes {nodes}: 2 to {MOST_NODES}"
        )));
    }
    if !(2..=3).contains(&replicas) || usize::from(replicas) > nodes {
        return Err(Failure::usage(format!(
            "--replicas {replicas}: 2 or 3, each on a node of its own"
        )));
    }
    if rounds == 0 {
        return Err(Failure::usage("--rounds 0: at least one"));
    }
    if let Some(fault) = arguments
        .faults
        .iter()
        .find(|fault| fault.needs_namespaces())
        && (arguments.loopback || !rustix::process::getuid().is_root())
    {
        return Err(Failure::usage(format!(
            "--fault {}: needs network namespaces, and so root, and no --loopback",
            fault.word()
        )));
    }
    Ok(parse_size(&arguments.size)?)
}

/// The cluster serves a volume, something fails, and everything is looked at.
fn rounds(
    nodes: &Nodes,
    (arguments, bytes): (&HaArguments, u64),
    progress: &Progress,
) -> Result<HaResult, LabError> {
    let volume = VolumeName {
        pool: POOL.into(),
        name: VOLUME.into(),
    };
    let made = make_volume(nodes, &volume, (bytes, arguments.replicas))?;
    // The load runs where clients are, as all threads from here on.
    nodes.network.enter_hub()?;
    let stacks = LocalStacks::new();
    let plan = EndurePlan {
        spec: url(nodes, &made),
        bytes,
        block_bytes: BLOCK,
        threads: THREADS,
        depth: DEPTH,
        read_pct: READ_PCT,
        think: THINK,
        seed: arguments.seed,
    };
    progress.say("the volume is written");
    let mut load = Endurance::begin(&stacks, plan, progress)?;
    let scene = Scene {
        nodes,
        volume,
        progress,
    };
    let (rounds, endured) = load.during(|pulse| -> Result<Vec<Round>, LabError> {
        let mut all = Vec::new();
        for number in 1..=arguments.rounds {
            for &fault in &arguments.faults {
                progress.go_on()?;
                let round = scene.play(fault, pulse)?;
                progress.say(&format!("round {number}: {round}"));
                all.push(round);
            }
        }
        Ok(all)
    })?;
    progress.say("everything is read back");
    let verified = load.read_back()?;
    let in_sync = scene.is_in_sync()?;
    Ok(HaResult::of(rounds, (&endured, &verified), in_sync))
}

fn make_volume(
    nodes: &Nodes,
    volume: &VolumeName,
    (bytes, replicas): (u64, u8),
) -> Result<VolumeStatus, LabError> {
    let request = CreateVolume {
        allow_any_host: true,
        replicas,
        ..CreateVolume::new(volume, bytes, LayoutSpec::Mirror { copies: 2 })
    };
    let made = nodes.client(&nodes.names[0])?.create_volume(&request);
    made.map_err(|error| LabError::caused(volume, error))
}

/// All nodes' portals: each is a path.
fn url(nodes: &Nodes, volume: &VolumeStatus) -> String {
    let portal = |name: &String| {
        nodes
            .network
            .address(&Seat::node(name), Port::Clients)
            .to_string()
    };
    let portals: Vec<String> = nodes.names.iter().map(portal).collect();
    format!(
        "nvme-tcp://{}/{}?ns={}&loss={LOSS}&kato={KEEP_ALIVE}",
        portals.join(","),
        volume.nqn,
        volume.nsid
    )
}

fn keep_logs(nodes: &Nodes, out: &Path) -> Result<(), LabError> {
    std::fs::create_dir_all(out).map_err(|error| LabError::caused(out.display(), error))?;
    for seat in nodes
        .names
        .iter()
        .map(|name| Seat::node(name))
        .chain([Seat::Etcd])
    {
        let to = out.join(format!("{}.log", seat.name()));
        std::fs::copy(nodes.folder(&seat).join("log"), &to)
            .map_err(|error| LabError::caused(to.display(), error))?;
    }
    Ok(())
}

/// Whether an outcome of the load is as it should be.
fn is_clean(endured: &Endured) -> bool {
    endured.errors == 0 && endured.problems.is_empty()
}
