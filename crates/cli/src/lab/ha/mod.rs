//! `ashlar lab ha`: a replicated volume on nodes that fail, under a load that checks everything.

mod fault;
mod result;
mod round;
mod soak;
mod upgrade;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ashlar_device::parse_size;
use ashlar_lab::{
    Endurance, EndurePlan, Endured, LabError, OwnFolder, Progress, ResultFile, check_out_dir,
};
use ashlar_node::model::{CreateVolume, LayoutSpec, VolumeName, VolumeStatus};

use self::result::HaResult;
use self::round::{Other, Round, Scene};
use self::upgrade::Upgrade;
use super::interrupt::interruptible;
use super::nodes::{
    DRIVES, ETCD_MEMBERS, MOST_ETCD, MOST_NODES, Nodes, NodesPlan, POOL, Port, Seat,
};
use super::stacks::{LocalStacks, Open};
use crate::args::{HaArguments, HaFault};
use crate::exit::Failure;
use crate::output::print;
use crate::stack;

const VOLUME: &str = "db";
const OTHER_VOLUME: &str = "log";
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
    let schedule = soak::plan(arguments);
    let upgrade = Upgrade::to(arguments.upgrade_to.as_deref(), &schedule)?;
    let plan = NodesPlan {
        nodes: arguments.nodes,
        drives: DRIVES,
        drive_bytes: 2 * bytes * volumes(arguments) + SPARE_BYTES,
        loopback: arguments.loopback,
        etcd: etcd_members(arguments),
        has_switches: schedule.iter().any(|fault| fault.needs_switches()),
    };
    let nodes = Nodes::up(&dir, &plan, &progress)?;
    let run = Run {
        nodes: &nodes,
        arguments,
        bytes,
        upgrade: &upgrade,
        open: stack::open,
        progress: &progress,
    };
    let result = run.all(&schedule);
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
    let etcd = etcd_members(arguments);
    if !ETCD_MEMBERS.contains(&etcd) {
        return Err(Failure::usage(format!("--etcd {etcd}: 1 or 3")));
    }
    let mut kinds = arguments.kinds.iter();
    if let Some(fault) = kinds.clone().find(|fault| fault.needs_members())
        && etcd < MOST_ETCD
    {
        let fault = fault.word();
        return Err(Failure::usage(format!("--fault {fault}: needs --etcd 3")));
    }
    let cannot_cut = arguments.loopback || !rustix::process::getuid().is_root();
    if let Some(fault) = kinds.find(|fault| fault.needs_namespaces())
        && cannot_cut
    {
        return Err(Failure::usage(format!(
            "--fault {}: needs network namespaces, and so root, and no --loopback",
            fault.word()
        )));
    }
    if arguments.soak && arguments.faults == 0 {
        return Err(Failure::usage("--faults 0: at least one"));
    }
    Ok(parse_size(&arguments.size)?)
}

/// How many volumes are loaded, each by a host of its own.
const fn volumes(arguments: &HaArguments) -> u64 {
    if arguments.soak { 2 } else { 1 }
}

fn etcd_members(arguments: &HaArguments) -> usize {
    let usual = if arguments.soak { MOST_ETCD } else { 1 };
    arguments.etcd.unwrap_or(usual)
}

/// A cluster, and what is to be done with it.
struct Run<'a> {
    nodes: &'a Nodes,
    arguments: &'a HaArguments,
    bytes: u64,
    upgrade: &'a Upgrade,
    /// How its hosts open volumes.
    open: Open,
    progress: &'a Progress,
}

impl Run<'_> {
    /// The cluster serves volumes, something fails, and everything is looked at.
    fn all(&self, schedule: &[HaFault]) -> Result<HaResult, LabError> {
        let named = |name: &str| VolumeName {
            pool: POOL.into(),
            name: name.into(),
        };
        let (volume, other) = (named(VOLUME), named(OTHER_VOLUME));
        let made = self.make_volume(&volume, 0)?;
        let second = match self.arguments.soak {
            true => Some(self.make_volume(&other, 1)?),
            false => None,
        };
        // The load runs where clients are, as all threads from here on.
        self.nodes.network.enter_hub()?;
        let stacks = LocalStacks::new(self.open);
        self.progress.say("the volume is written");
        let mut load = Endurance::begin(&stacks, self.plan(&made, 0), self.progress)?;
        let scene = Scene {
            nodes: self.nodes,
            volume,
            progress: self.progress,
            is_soak: self.arguments.soak,
            upgrade: self.upgrade,
            other: None,
        };
        let Some(second) = second else {
            let (rounds, endured) = load.during(|pulse| scene.play_all(schedule, pulse))?;
            return self.look_back(rounds, &scene, vec![(endured, load)]);
        };
        let mut more = Endurance::begin(&stacks, self.plan(&second, 1), self.progress)?;
        let ((rounds, too), endured) = load.during(|pulse| {
            more.during(|second| {
                let volume = other.clone();
                let other = Other {
                    volume,
                    pulse: second,
                };
                let scene = Scene {
                    other: Some(other),
                    ..scene.clone()
                };
                scene.play_all(schedule, pulse)
            })
        })?;
        self.look_back(rounds, &scene, vec![(endured, load), (too, more)])
    }

    fn look_back(
        &self,
        rounds: Vec<Round>,
        scene: &Scene<'_>,
        loads: Vec<(Endured, Endurance<'_>)>,
    ) -> Result<HaResult, LabError> {
        self.progress.say("everything is read back");
        let verify = |(endured, mut load): (Endured, Endurance<'_>)| {
            let verified = load.read_back()?;
            Ok((endured, verified))
        };
        let loads: Result<Vec<_>, LabError> = loads.into_iter().map(verify).collect();
        Ok(HaResult::of(rounds, &loads?, scene.is_in_sync()?))
    }

    /// What a host does to a volume.
    fn plan(&self, volume: &VolumeStatus, host: u64) -> EndurePlan {
        EndurePlan {
            spec: format!(
                "{}&hostnqn=nqn.2026-01.ashlar:lab-host-{host}",
                self.url(volume)
            ),
            bytes: self.bytes,
            block_bytes: BLOCK,
            threads: THREADS,
            depth: DEPTH,
            read_pct: READ_PCT,
            think: THINK,
            seed: self.arguments.seed + host,
        }
    }

    /// A volume, made at the node of this number, which serves it at first.
    fn make_volume(&self, volume: &VolumeName, at: usize) -> Result<VolumeStatus, LabError> {
        let request = CreateVolume {
            allow_any_host: true,
            replicas: self.arguments.replicas,
            ..CreateVolume::new(volume, self.bytes, LayoutSpec::Mirror { copies: 2 })
        };
        let client = self.nodes.client(&self.nodes.names[at])?;
        let made = client.create_volume(&request);
        made.map_err(|error| LabError::caused(volume, error))
    }

    /// All nodes' portals: each is a path.
    fn url(&self, volume: &VolumeStatus) -> String {
        let network = &self.nodes.network;
        let portal = |name: &String| {
            network
                .address(&Seat::node(name), Port::Clients)
                .to_string()
        };
        let portals: Vec<String> = self.nodes.names.iter().map(portal).collect();
        format!(
            "nvme-tcp://{}/{}?ns={}&loss={LOSS}&kato={KEEP_ALIVE}",
            portals.join(","),
            volume.nqn,
            volume.nsid
        )
    }
}

fn keep_logs(nodes: &Nodes, out: &Path) -> Result<(), LabError> {
    std::fs::create_dir_all(out).map_err(|error| LabError::caused(out.display(), error))?;
    for seat in nodes
        .names
        .iter()
        .map(|name| Seat::node(name))
        .chain(nodes.etcd_seats())
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
