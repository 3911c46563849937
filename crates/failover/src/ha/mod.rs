//! A replicated volume on nodes that fail, under a load that checks everything.

mod account;
mod fault;
mod kept;
mod kinds;
mod result;
mod round;
mod shared;
mod soak;
mod upgrade;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use ashlar_lab::{
    Endurance, EndurePlan, Endured, Journal, LabError, OwnFolder, Progress, ResultFile, Stacks,
    check_length,
};
use ashlar_node::model::{CreateVolume, LayoutSpec, VolumeName, VolumeStatus};
use ashlar_testbed::nodes::{
    DRIVES, ETCD_MEMBERS, LONGEST_DIR, MOST_ETCD, MOST_NODES, Nodes, NodesPlan, POOL, Port, Seat,
};
use ashlar_testbed::stacks::{LocalStacks, Open};

use serde::{Deserialize, Serialize};

use self::kept::{Kept, end_left};
pub use self::kinds::HaFault;
pub use self::result::HaResult;
use self::round::{Other, Scene};
use self::shared::HostEach;
use self::upgrade::Upgrade;

const VOLUME: &str = "db";
const OTHER_VOLUME: &str = "log";
/// The cluster's directory, in a folder of the run's own.
const OWN: &str = "c";
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

/// What is done, and to which cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HaPlan {
    /// Where the cluster is made; if it does not say, in a folder of its own.
    pub dir: Option<PathBuf>,
    /// What fails in each round; none: what is usual.
    pub kinds: Vec<HaFault>,
    /// How often.
    pub rounds: u32,
    /// The seed draws what fails, under two loads.
    pub soak: bool,
    /// How often it draws.
    pub faults: u32,
    pub nodes: usize,
    /// Copies of each volume.
    pub replicas: u8,
    /// Members of etcd; if it does not say, as many as are usual.
    pub etcd: Option<usize>,
    /// Bytes of each volume.
    pub bytes: u64,
    /// The program that nodes are upgraded to; if it does not say, this one.
    pub upgrade_to: Option<PathBuf>,
    /// Ports of 127.0.0.1 instead of network namespaces.
    pub loopback: bool,
    /// Of the loads, and of what is drawn.
    pub seed: u64,
    /// Where logs are kept if something is wrong.
    #[serde(skip)]
    pub out: PathBuf,
}

impl HaPlan {
    /// # Errors
    /// A usage error that names the option.
    pub fn check(&self) -> Result<(), LabError> {
        let Self {
            nodes,
            replicas,
            rounds,
            ..
        } = *self;
        if !(2..=MOST_NODES).contains(&nodes) {
            return Err(LabError::usage(format!(
                "--nodes {nodes}: 2 to {MOST_NODES}"
            )));
        }
        if !(2..=3).contains(&replicas) || usize::from(replicas) > nodes {
            return Err(LabError::usage(format!(
                "--replicas {replicas}: 2 or 3, each on a node of its own"
            )));
        }
        if rounds == 0 {
            return Err(LabError::usage("--rounds 0: at least one"));
        }
        let etcd = self.etcd_members();
        if !ETCD_MEMBERS.contains(&etcd) {
            return Err(LabError::usage(format!("--etcd {etcd}: 1 or 3")));
        }
        let mut kinds = self.kinds.iter();
        if let Some(fault) = kinds.clone().find(|fault| fault.needs_members())
            && etcd < MOST_ETCD
        {
            let fault = fault.word();
            return Err(LabError::usage(format!("--fault {fault}: needs --etcd 3")));
        }
        let cannot_cut = self.loopback || !rustix::process::getuid().is_root();
        if let Some(fault) = kinds.find(|fault| fault.needs_namespaces())
            && cannot_cut
        {
            return Err(LabError::usage(format!(
                "--fault {}: needs network namespaces, and so root, and no --loopback",
                fault.word()
            )));
        }
        if self.soak && self.faults == 0 {
            return Err(LabError::usage("--faults 0: at least one"));
        }
        let dir = self.dir.as_deref();
        dir.map_or(Ok(()), |dir| check_length(dir, LONGEST_DIR))
    }

    /// How many volumes are loaded, each by a host of its own.
    const fn volumes(&self) -> u64 {
        if self.soak { 2 } else { 1 }
    }

    fn etcd_members(&self) -> usize {
        let usual = if self.soak { MOST_ETCD } else { 1 };
        self.etcd.unwrap_or(usual)
    }
}

/// Makes a cluster, has things fail that the journal does not have, and takes it away again; `open` is how its hosts open
/// volumes. What ends it, a round that has failed for instance, is told in the result.
///
/// # Errors
/// What another run has left stays, or what is asked for makes no sense.
pub fn ha(
    plan: &HaPlan,
    open: Open,
    journal: &mut Journal,
    progress: &Progress,
) -> Result<HaResult, LabError> {
    end_left(plan, journal)?;
    let own = match &plan.dir {
        Some(_) => None,
        None => Some(OwnFolder::make(&std::env::temp_dir())?),
    };
    let dir = match (&plan.dir, &own) {
        (Some(dir), _) => dir.clone(),
        (None, Some(own)) => own.path().join(OWN),
        (None, None) => PathBuf::new(),
    };
    if let Some(own) = &own {
        journal.made(own.path())?;
    }
    let schedule = soak::schedule(plan);
    let upgrade = Upgrade::to(plan.upgrade_to.as_deref(), &schedule)?;
    let cluster = NodesPlan {
        nodes: plan.nodes,
        drives: DRIVES,
        drive_bytes: 2 * plan.bytes * plan.volumes() + SPARE_BYTES,
        loopback: plan.loopback,
        etcd: plan.etcd_members(),
        has_switches: schedule.iter().any(|fault| fault.needs_switches()),
    };
    let mut kept = Kept::of(journal)?;
    let nodes = Nodes::up(&dir, &cluster, progress)?;
    let run = Run {
        nodes: &nodes,
        plan,
        upgrade: &upgrade,
        open,
        progress,
    };
    let mut result = match run.all(&schedule, &mut kept) {
        Ok(result) => result,
        Err(error) => HaResult::broken_off(&kept, &error),
    };
    if result.head().partial || result.complaint().is_some() {
        result.keep_logs(&plan.out, |out| keep_logs(&nodes, out));
    }
    nodes.down()?;
    progress.finish();
    Ok(result)
}

/// A cluster, and what is to be done with it.
struct Run<'a> {
    nodes: &'a Nodes,
    plan: &'a HaPlan,
    upgrade: &'a Upgrade,
    /// How its hosts open volumes.
    open: Open,
    progress: &'a Progress,
}

impl Run<'_> {
    /// The cluster serves volumes, something fails, and everything is looked at.
    fn all(&self, schedule: &[HaFault], kept: &mut Kept<'_>) -> Result<HaResult, LabError> {
        let named = |name: &str| VolumeName {
            pool: POOL.into(),
            name: name.into(),
        };
        let (volume, other) = (named(VOLUME), named(OTHER_VOLUME));
        let made = self.make_volume(&volume, 0)?;
        let second = match self.plan.soak {
            true => Some(self.make_volume(&other, 1)?),
            false => None,
        };
        // The load runs where clients are, as all threads from here on.
        self.nodes.network.enter_hub()?;
        let stacks = LocalStacks::new(self.open);
        let each = HostEach {
            stacks: &stacks,
            threads: THREADS,
        };
        let first: &dyn Stacks = if self.plan.soak { &each } else { &stacks };
        self.progress.say("the volume is written");
        let mut load = Endurance::begin(first, self.load(&made, 0), self.progress)?;
        let copied = Mutex::default();
        let scene = Scene {
            nodes: self.nodes,
            volume,
            progress: self.progress,
            is_soak: self.plan.soak,
            upgrade: self.upgrade,
            other: None,
            copied: &copied,
        };
        let Some(second) = second else {
            let ((), endured) = load.during(|pulse| scene.play_all(schedule, pulse, kept))?;
            return self.look_back(kept, &scene, vec![(endured, load)]);
        };
        let mut more = Endurance::begin(&stacks, self.load(&second, 1), self.progress)?;
        let (((), too), endured) = load.during(|pulse| {
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
                scene.play_all(schedule, pulse, kept)
            })
        })?;
        self.look_back(kept, &scene, vec![(endured, load), (too, more)])
    }

    fn look_back(
        &self,
        kept: &Kept<'_>,
        scene: &Scene<'_>,
        loads: Vec<(Endured, Endurance<'_>)>,
    ) -> Result<HaResult, LabError> {
        self.progress.say("everything is read back");
        let verify = |(endured, mut load): (Endured, Endurance<'_>)| {
            let verified = load.read_back()?;
            Ok((endured, verified))
        };
        let loads: Result<Vec<_>, LabError> = loads.into_iter().map(verify).collect();
        Ok(HaResult::of(kept, &loads?, scene.is_in_sync()?))
    }

    /// What a host does to a volume.
    fn load(&self, volume: &VolumeStatus, host: u64) -> EndurePlan {
        EndurePlan {
            spec: format!(
                "{}&hostnqn=nqn.2026-01.ashlar:lab-host-{host}",
                self.url(volume)
            ),
            bytes: self.plan.bytes,
            block_bytes: BLOCK,
            threads: THREADS,
            depth: DEPTH,
            read_pct: READ_PCT,
            think: THINK,
            seed: self.plan.seed + host,
        }
    }

    /// A volume, made at the node of this number, which serves it at first.
    fn make_volume(&self, volume: &VolumeName, at: usize) -> Result<VolumeStatus, LabError> {
        let request = CreateVolume {
            allow_any_host: true,
            replicas: self.plan.replicas,
            ..CreateVolume::new(volume, self.plan.bytes, LayoutSpec::Mirror { copies: 2 })
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
