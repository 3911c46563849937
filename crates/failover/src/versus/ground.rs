//! What both sides lie on: two nodes with a drive each and a replicated volume for the instance, a drive for each
//! database of the group. Drives are files of one size; the group's are XFS on loop devices.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ashlar_device::parse_size;
use ashlar_lab::{Journal, LabError, OwnFolder, Progress};
use ashlar_node::client::Client;
use ashlar_node::model::{CreateVolume, LayoutSpec, ReplicationStatus, VolumeName};
use ashlar_oltp::scenario::Place;
use ashlar_oltp::versus::{Counters, Ground as Places, Moved, Source, VersusFile, VersusRun};
use ashlar_testbed::image::LoopMount;
use ashlar_testbed::nodes::{MOST_ETCD, Nodes, NodesPlan, POOL, Seat};
use ashlar_testbed::process::{own_program, tool};
use ashlar_testbed::replicated::Known;

use super::left;
use crate::all_in_sync;

/// What is in the folder: where the volume is mounted, what attaching remembers, the nodes; Patroni's own things, under
/// another name than those of a group that is alone in its folder; and the group's drives.
pub(super) const VOLUME: &str = "shared";
pub(super) const ATTACHED: &str = "attached";
pub(super) const NODES: &str = "n";
pub(super) const GROUP: &str = "k";
pub(super) const DRIVES: [&str; 2] = ["own", "standby"];
const IN_SYNC_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// `/sys/block/…/stat` counts in these, whatever the device's blocks are.
const SECTOR: u64 = 512;

/// All storage of a run.
pub(super) struct Ground {
    drive: String,
    volume: VolumeName,
    owner: String,
    /// As it was when it was looked at last.
    known: Mutex<Known>,
    shared: PathBuf,
    /// Where Patroni, etcd and HAProxy have their own things: on neither side's drives.
    group: PathBuf,
    drives: Vec<(&'static str, LoopMount)>,
    nodes: Option<Nodes>,
    folder: OwnFolder,
}

impl Ground {
    /// Makes it in a new folder, which the journal has.
    ///
    /// # Errors
    /// This is not root, a tool is missing, or something does not come up: what was made is taken away.
    pub(super) fn make(
        run: &VersusRun<'_>,
        file: &VersusFile,
        journal: &mut Journal,
    ) -> Result<Self, LabError> {
        let (dir, progress) = (run.dir, run.progress);
        if !rustix::process::geteuid().is_root() {
            return Err(LabError::environment(format!(
                "{}: needs root, which attaches and mounts",
                file.name
            )));
        }
        let drive = file.cluster.drive.clone();
        let bytes = parse_size(&drive)
            .map_err(|error| LabError::usage(format!("[cluster] drive = {drive:?}: {error}")))?;
        left::end_all(dir)?;
        let folder = OwnFolder::make(dir)?;
        // First, so that whatever comes of it is found again.
        journal.made(folder.path())?;
        let mut ground = Self {
            volume: format!("{POOL}/{VOLUME}")
                .parse()
                .map_err(|error| LabError::environment(format!("{VOLUME}: {error}")))?,
            shared: folder.path().join(VOLUME),
            group: folder.path().join(GROUP),
            owner: String::new(),
            known: Mutex::default(),
            drives: Vec::new(),
            nodes: None,
            drive,
            folder,
        };
        // What is there when it fails is taken away as it is dropped.
        ground.fill(bytes, progress)?;
        Ok(ground)
    }

    fn fill(&mut self, bytes: u64, progress: &Progress) -> Result<(), LabError> {
        let plan = NodesPlan {
            nodes: 2,
            drives: 1,
            drive_bytes: bytes,
            loopback: false,
            etcd: MOST_ETCD,
            has_switches: false,
        };
        let nodes = Nodes::up(&self.folder.path().join(NODES), &plan, progress)?;
        let client = nodes.client(&nodes.names[0]);
        self.nodes = Some(nodes);
        // The rest is for the logs, and for what is written anew before the old is given back.
        let volume = CreateVolume {
            replicas: 2,
            ..CreateVolume::new(
                &self.volume,
                bytes / 4 * 3,
                LayoutSpec::Mirror { copies: 1 },
            )
        };
        client?.create_volume(&volume).map_err(wrong)?;
        let known = self.await_in_sync(progress)?;
        self.owner.clone_from(&known.owner);
        self.known = Mutex::new(known);
        progress.say("the replicated volume is attached");
        let shared = &self.shared;
        std::fs::create_dir(shared).map_err(|error| LabError::caused(shared.display(), error))?;
        let (volume, mount) = (self.volume.to_string(), text(shared));
        let words = [&*volume, "--mount", &mount, "--fs", "xfs", "--here"];
        self.at_owner("attach", &words)?;
        for name in DRIVES {
            let drive = new_drive(&self.folder.path().join(name), bytes)?;
            self.drives.push((name, drive));
        }
        Ok(())
    }

    fn nodes(&self) -> Result<&Nodes, LabError> {
        let nodes = self.nodes.as_ref();
        nodes.ok_or_else(|| LabError::environment("the nodes are gone"))
    }

    fn replication(&self) -> Result<ReplicationStatus, LabError> {
        let nodes = self.nodes()?;
        let client = nodes.client(&nodes.names[0])?;
        let known = client.volume(&self.volume).map_err(wrong)?.replication;
        known.ok_or_else(|| wrong("it is not replicated"))
    }

    /// The volume, once both copies are in sync.
    fn await_in_sync(&self, progress: &Progress) -> Result<Known, LabError> {
        let begun = Instant::now();
        while begun.elapsed() < IN_SYNC_WITHIN {
            progress.go_on()?;
            let now = self.replication()?;
            let in_sync = all_in_sync(&now.replicas);
            if let Some(owner) = now.owner.clone().filter(|_| in_sync) {
                return Ok(Known::of(owner, &now));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(wrong("its copies are not in sync"))
    }

    /// A command of ours in the owner's network.
    fn at_owner(&self, command: &str, words: &[&str]) -> Result<(), LabError> {
        let nodes = self.nodes()?;
        let program = own_program()?;
        let entered = nodes.network.entered(&Seat::node(&self.owner));
        let mut all = entered.into_iter().chain([text(&program), command.into()]);
        let first = all.next().unwrap_or_default();
        let mut process = Command::new(&first);
        process.args(all).args(words);
        process
            .env("ASHLAR_API", nodes.api(&self.owner))
            .env("ASHLAR_ATTACH_STATE", self.folder.path().join(ATTACHED))
            .current_dir("/")
            .stdin(Stdio::null());
        let output = process.output();
        let output = output.map_err(|error| LabError::caused(&first, error))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(wrong(String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    /// In words.
    pub(super) fn told(&self) -> Vec<String> {
        let drive = &self.drive;
        vec![
            format!(
                "fci: XFS on a replicated volume of two nodes on this machine, a file of {drive} as the drive of each; \
                 attached by FUSE at the node that owns it"
            ),
            format!(
                "group: two PostgreSQL kept by Patroni (loop 1 s) with three members of etcd, a commit waits for the standby; \
                 clients come in by HAProxy, those of the instance by its socket; a file of {drive} with XFS on a loop \
                 device for each, which etcd does not write to"
            ),
            "all files are on one disk of one machine: both sides share it, as they share the processors".into(),
        ]
    }

    /// Takes all of it away, and leaves nothing.
    ///
    /// # Errors
    /// Something stays.
    pub(super) fn end(mut self) -> Result<(), LabError> {
        self.take_away()
    }

    fn take_away(&mut self) -> Result<(), LabError> {
        let drives = std::mem::take(&mut self.drives);
        let mut ended: Result<(), LabError> = drives
            .into_iter()
            .map(|(_, drive)| drive.end())
            .fold(Ok(()), Result::and);
        if self.nodes.is_some() && !self.owner.is_empty() {
            ended = ended.and(self.at_owner("detach", &[&text(&self.shared), "--force"]));
        }
        match self.nodes.take() {
            Some(nodes) => ended.and(nodes.down()),
            None => ended,
        }
    }
}

impl Places for Ground {
    fn group(&self) -> Option<&Path> {
        Some(&self.group)
    }

    fn places(&self) -> Vec<Place> {
        let shared = Place {
            name: VOLUME.into(),
            dir: self.shared.clone(),
        };
        let drives = self.drives.iter().map(|(name, drive)| Place {
            name: (*name).into(),
            dir: drive.mount().to_owned(),
        });
        std::iter::once(shared).chain(drives).collect()
    }

    fn unlike(&self) -> Option<String> {
        match self.replication() {
            // Single fields.
            Ok(now) => {
                let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                known.unlike(&now)
            }
            Err(error) => Some(format!("how its copies are is not known: {error}")),
        }
    }

    fn sources(&self) -> Result<Vec<Source>, LabError> {
        let nodes = self.nodes()?;
        let mut all = vec![Source {
            name: "replicated volume".into(),
            side: Moved::Fci,
            counters: of_volume(nodes.client(&self.owner)?, self.volume.clone()),
        }];
        for name in &nodes.names {
            let role = if *name == self.owner {
                "owner"
            } else {
                "other"
            };
            all.push(Source {
                name: format!("drive of node {name} ({role})"),
                side: Moved::Fci,
                counters: of_pool(nodes.client(name)?),
            });
        }
        for (name, drive) in &self.drives {
            let whose = if *name == "own" { "primary" } else { "standby" };
            all.push(Source {
                name: format!("drive of the group's {whose}"),
                side: Moved::Group,
                counters: of_device(drive.device()),
            });
        }
        Ok(all)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // Ended in order before; this is for an error on the way.
        let _ = self.take_away();
    }
}

/// The image of the drive that is mounted there.
pub(super) fn image_of(mount: &Path) -> PathBuf {
    mount.with_extension("drive")
}

/// A new drive of this size beside its mount point, with a file system.
fn new_drive(path: &Path, bytes: u64) -> Result<LoopMount, LabError> {
    let image = image_of(path);
    let file = File::create_new(&image).and_then(|file| file.set_len(bytes));
    file.map_err(|error| LabError::caused(image.display(), error))?;
    tool("mkfs.xfs", &["-q", "-s", "size=4096", &text(&image)])?;
    LoopMount::direct(&image, path)
}

fn of_volume(client: Client, volume: VolumeName) -> Counters {
    Box::new(move || {
        let stats = client.volume_stats(&volume).ok()?;
        Some((stats.read.bytes, stats.write.bytes))
    })
}

fn of_pool(client: Client) -> Counters {
    Box::new(move || {
        let counters = client.pool(POOL).ok()?.counters;
        Some((counters.device_read_bytes, counters.device_written_bytes))
    })
}

fn of_device(device: &str) -> Counters {
    let name = device.trim_start_matches("/dev/");
    let path = PathBuf::from(format!("/sys/block/{name}/stat"));
    Box::new(move || {
        let stat = std::fs::read_to_string(&path).ok()?;
        let mut words = stat.split_whitespace();
        let read: u64 = words.nth(2)?.parse().ok()?;
        let written: u64 = words.nth(3)?.parse().ok()?;
        Some((read * SECTOR, written * SECTOR))
    })
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn wrong(error: impl std::fmt::Display) -> LabError {
    LabError::environment(format!("the replicated volume: {error}"))
}
