use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::Builder;
use std::time::Duration;

use ashlar_block::{BlockDevice, BlockSize, ErrorKind, IoError};
use ashlar_device::{FindingKind, OpenError, OpenErrorKind, Spec, inspect, open};
use ashlar_reactor::{Opener, Options, Reactor, Spin};
use ashlar_store::format::{DriveClass, Label, Reserve, Salt};
use ashlar_store::sizes::{GRANULE, LABEL_AT};
use ashlar_store::{
    Comeback, DrivePlan, Drives, Engine, ImportOptions, MemberStatus, NodeMemory, PoolError,
    PoolPlan, Sizes, enlist, format, missing_members, read_label,
};
use rustix::fs::{Advice, fadvise};
use uuid::Uuid;

use super::class::guess_class;
use super::link::{NewDrive, PoolLink};
use crate::model::{ControlError, CreatePool, ReserveSpec};

/// A drive that is open for a pool.
#[derive(Clone)]
pub struct OpenDrive {
    /// As the user named it.
    pub spec: String,
    /// Its class, said or guessed.
    pub class: DriveClass,
    pub opener: Arc<dyn Opener>,
    /// How long it may take for a request.
    pub reply_timeout: Duration,
}

/// How drives are opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// How long a drive may take for a request.
    pub reply_timeout: Duration,
    /// They have been a pool's: a file that is missing is not made.
    pub are_known: bool,
}

/// What is on a drive.
#[derive(Debug)]
pub enum Found {
    /// A pool's label.
    Label(Box<Label>),
    /// A label that cannot be used: of which drive, and why.
    Damaged(String),
    /// No label.
    Nothing,
    /// It does not answer.
    Silent(String),
}

/// Copies of a pool's logs and map, given so many drives: one more than the losses that any of its
/// volumes survives.
const LOG_COPIES: u8 = 2;

/// Memory of the reactor that formats and imports run on.
const SETUP_POOL: usize = 8 << 20;

/// Opens drives by the texts that name them.
///
/// # Errors
/// A text that makes no sense, a device that cannot be opened or is in use, one named twice.
pub fn open_drives(specs: &[String], how: Opening) -> Result<Vec<OpenDrive>, ControlError> {
    let mut drives: Vec<OpenDrive> = Vec::new();
    for text in specs {
        if drives.iter().any(|drive| drive.spec == *text) {
            return Err(ControlError::usage(format!("drive {text} is named twice")));
        }
        drives.push(open_drive(text, how).map_err(|unopened| unopened.error)?);
    }
    Ok(drives)
}

/// Why a drive cannot be opened.
pub(crate) struct Unopened {
    pub(crate) error: ControlError,
    /// Another process has it that is not known to have ended.
    pub(crate) is_taken: bool,
}

impl From<ControlError> for Unopened {
    fn from(error: ControlError) -> Self {
        Self {
            error,
            is_taken: false,
        }
    }
}

impl From<OpenError> for Unopened {
    fn from(error: OpenError) -> Self {
        Self {
            is_taken: error.is_taken(),
            error: refusal(&error),
        }
    }
}

/// Opens the drive that a text names.
pub(crate) fn open_drive(text: &str, how: Opening) -> Result<OpenDrive, Unopened> {
    let (plain, class) = split_class(text)?;
    let mut spec: Spec = plain.parse()?;
    spec.each_file(&mut |file| file.known = how.are_known);
    let opener = open(&spec, BlockSize::B4096)?;
    Ok(OpenDrive {
        spec: text.to_owned(),
        class: class.unwrap_or_else(|| guess_class(&spec)),
        opener,
        reply_timeout: how.reply_timeout,
    })
}

/// The label of a drive that another process has, read beside that one; `None` if it has none of ours.
///
/// # Errors
/// It cannot be told: it does not answer in time, cannot be read, or is of several parts.
pub(crate) fn label_of_taken(text: &str, how: Opening) -> Result<Option<Label>, ControlError> {
    let spec = split_class(text)?.0.parse::<Spec>();
    let spec = spec.map_err(|error| refusal(&error))?;
    let [path] = spec.paths()[..] else {
        let why = format!("{text}: its label cannot be read beside its holder");
        return Err(ControlError::environment(why));
    };
    let path = path.to_owned();
    let (sender, read) = channel();
    // A drive that hangs keeps the thread that reads it.
    let reader = move || sender.send(read_label_beside(&path));
    let thread = Builder::new().name("label".into()).spawn(reader);
    thread.map_err(|error| trouble(&error))?;
    let label = read.recv_timeout(how.reply_timeout);
    label
        .map_err(|error| trouble(&error))?
        .map_err(|error| trouble(&error))
}

fn read_label_beside(path: &Path) -> io::Result<Option<Label>> {
    let file = File::open(path)?;
    let mut label = Ok(None);
    for at in LABEL_AT {
        let found = read_from_drive(&file, at);
        let found = found.and_then(|bytes| Label::decode(&bytes).map_err(io::Error::other));
        match found {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => {}
            Err(error) => label = Err(error),
        }
    }
    label
}

/// What the drive has, and not what this machine's memory remembers of it: its holder may have written by another path.
fn read_from_drive(file: &File, at: u64) -> io::Result<Vec<u8>> {
    fadvise(file, 0, None, Advice::DontNeed)?;
    let mut bytes = vec![0; GRANULE];
    file.read_exact_at(&mut bytes, at).map(|()| bytes)
}

/// Takes `class=…` out of a drive's options: it is the pool's, not the device's.
pub(crate) fn split_class(text: &str) -> Result<(String, Option<DriveClass>), ControlError> {
    let Some((path, options)) = text.split_once('?') else {
        return Ok((text.to_owned(), None));
    };
    let (mut class, mut rest) = (None, Vec::new());
    for option in options.split('&') {
        match option.strip_prefix("class=") {
            Some("nvme") => class = Some(DriveClass::Nvme),
            Some("ssd") => class = Some(DriveClass::Ssd),
            Some("hdd") => class = Some(DriveClass::Hdd),
            Some(other) => {
                let why = format!("{text}: class `{other}` is none of nvme, ssd, hdd");
                return Err(ControlError::usage(why));
            }
            None => rest.push(option),
        }
    }
    let plain = if rest.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{}", rest.join("&"))
    };
    Ok((plain, class))
}

fn refusal(error: &OpenError) -> ControlError {
    match error.kind() {
        OpenErrorKind::Usage => ControlError::usage(error.to_string()),
        _ => ControlError::environment(error.to_string()),
    }
}

fn trouble(error: &dyn std::fmt::Display) -> ControlError {
    ControlError::environment(error.to_string())
}

fn refused(error: PoolError) -> ControlError {
    match error {
        PoolError::Plan(why) => ControlError::usage(why),
        PoolError::Refused(why) => ControlError::refused(why),
        PoolError::Version(why) => ControlError::refused(format!(
            "{why}. Nothing was changed: import with the version of Ashlar that has written it, or say \
             --degraded if the pool is to go on without it, for good"
        )),
        PoolError::Damaged(why) => ControlError::environment(format!(
            "damaged: {why}. Nothing was changed. Bring whatever drives of the pool are not here, and try \
             again; if all are, what was on them must come from a backup"
        )),
        other => ControlError::environment(other.to_string()),
    }
}

/// Runs `work` on the drives, with a reactor of its own on this thread.
fn with_drives<T>(
    drives: &[OpenDrive],
    work: impl FnOnce(Drives) -> Result<T, ControlError>,
) -> Result<T, ControlError> {
    let options = Options {
        entries: 256,
        pool_bytes: SETUP_POOL,
        spin: Spin::Off,
        files: 128,
    };
    let mut reactor = Reactor::new(&options).map_err(|error| trouble(&error))?;
    let handle = reactor.handle().clone();
    let devices: Result<Vec<Box<dyn BlockDevice>>, IoError> = drives
        .iter()
        .map(|drive| drive.opener.open(&handle))
        .collect();
    let devices = devices.map_err(|error| trouble(&error))?;
    let wait = move || {
        // A ring that fails answers nothing more; the drives' own errors say what happened.
        let _ = reactor.turn(Some(handle.now() + Duration::from_millis(10)));
        handle.now()
    };
    let names = drives.iter().map(|drive| format!("drive {}", drive.spec));
    let all = Drives::new(devices, Box::new(wait)).with_names(names.collect());
    let timeout = drives.iter().map(|drive| drive.reply_timeout).max();
    work(match timeout {
        Some(timeout) => all.with_timeout(timeout),
        None => all,
    })
}

/// Looks at what each drive holds.
///
/// # Errors
/// The drives cannot be opened on this thread.
pub fn probe(drives: &[OpenDrive]) -> Result<Vec<Found>, ControlError> {
    with_drives(drives, |mut all| {
        let found = (0..drives.len()).map(|drive| match read_label(&mut all, drive) {
            Err(error) if !all.answers(drive) => Found::Silent(error.to_string()),
            Ok(label) => Found::Label(Box::new(label)),
            Err(PoolError::Refused(_)) => Found::Nothing,
            Err(PoolError::Damaged(why)) => Found::Damaged(why),
            Err(error) => Found::Damaged(error.to_string()),
        });
        Ok(found.collect())
    })
}

/// Members that the newest root among these drives counts on, and that are none of these.
///
/// # Errors
/// The drives cannot be opened on this thread, or hold no pool that could be told.
pub fn missing(drives: &[OpenDrive]) -> Result<Vec<Uuid>, ControlError> {
    with_drives(drives, |mut all| missing_members(&mut all).map_err(refused))
}

/// Makes a pool of drives that hold nothing, or whose data may be destroyed.
///
/// # Errors
/// A drive that holds something without `destroy_data`, naming what; whatever the engine refuses.
pub fn create(request: &CreatePool, drives: &[OpenDrive]) -> Result<Uuid, ControlError> {
    refuse_used(drives, request.destroy_data)?;
    let smallest = drives
        .iter()
        .map(|drive| drive.opener.geometry().bytes())
        .min();
    let sizes = smallest.and_then(Sizes::for_drive).ok_or_else(too_small)?;
    let pool = Uuid::new_v4();
    let random = Uuid::new_v4().as_u128();
    let plan = PoolPlan {
        name: request.name.clone(),
        pool,
        salt: Salt(random as u32 ^ (random >> 64) as u32),
        sizes,
        log_copies: LOG_COPIES.min(drives.len() as u8),
        reserve: reserve_of(request.reserve, &sizes),
        drives: drives
            .iter()
            .map(|drive| DrivePlan {
                uuid: Uuid::new_v4(),
                class: drive.class,
            })
            .collect(),
    };
    with_drives(drives, |mut all| format(&mut all, &plan).map_err(refused))?;
    Ok(pool)
}

/// What the engine calls a reserve.
pub fn reserve_of(reserve: ReserveSpec, sizes: &Sizes) -> Reserve {
    match reserve {
        ReserveSpec::Auto => Reserve::Auto,
        ReserveSpec::None => Reserve::None,
        ReserveSpec::Drives(drives) => Reserve::Drives(drives),
        ReserveSpec::Bytes(bytes) => {
            let extents = bytes.div_ceil(sizes.extent_bytes());
            Reserve::Extents(u32::try_from(extents).unwrap_or(u32::MAX))
        }
    }
}

fn too_small() -> ControlError {
    ControlError::usage("a pool's drives have at least 64 MiB each".to_owned())
}

fn refuse_used(drives: &[OpenDrive], destroy_data: bool) -> Result<(), ControlError> {
    let found = probe(drives)?;
    for (drive, found) in drives.iter().zip(found) {
        let spec: Option<Spec> = split_class(&drive.spec)?.0.parse().ok();
        let paths = spec.iter().flat_map(|spec| spec.paths());
        for path in paths {
            let what = inspect(path).map_err(|error| refusal(&error))?;
            let Some(what) = what else { continue };
            // A device in use is not a matter of its data.
            let overridable = matches!(
                what.kind,
                FindingKind::Signature | FindingKind::Data | FindingKind::Partitions
            );
            if !(destroy_data && overridable) {
                let pool = match &found {
                    Found::Label(label) => {
                        format!(" (pool {}, drive {})", label.pool_name, label.drive)
                    }
                    _ => String::new(),
                };
                let hint = if overridable {
                    "; --destroy-data overwrites it"
                } else {
                    ""
                };
                return Err(ControlError::refused(format!(
                    "{} {what}{pool}{hint}",
                    path.display()
                )));
            }
        }
        // One without a path is known by what it holds alone.
        let held = match found {
            Found::Label(label) => format!("pool {}, drive {}", label.pool_name, label.drive),
            Found::Damaged(why) => why,
            Found::Nothing | Found::Silent(_) => continue,
        };
        if !destroy_data {
            return Err(ControlError::refused(format!(
                "{} is a drive of a pool ({held}); --destroy-data overwrites it",
                drive.spec
            )));
        }
    }
    Ok(())
}

/// What became of a drive that was to join a pool.
pub enum Joined {
    /// It is a member, by this identity.
    Member(Uuid),
    /// It has this identity and the pool's label, and the pool has not said whether it takes it.
    Unknown(Uuid, ControlError),
}

/// Whether a drive may be given to a pool, as far as the drive is concerned.
///
/// # Errors
/// One that holds something without `destroy_data`, or is too small.
pub fn fit(drives: &[OpenDrive], destroy_data: bool) -> Result<(), ControlError> {
    let is_small = |drive: &OpenDrive| Sizes::for_drive(drive.opener.geometry().bytes()).is_none();
    if drives.iter().any(is_small) {
        return Err(too_small());
    }
    refuse_used(drives, destroy_data)
}

/// Gives a drive a pool's label and makes it a member; `enlisted` is called in between, when the
/// pool would be found with it.
///
/// # Errors
/// A drive that holds something without `destroy_data`, one that the pool cannot use, and those of
/// `enlisted`: it is no member then.
pub fn add(
    link: &PoolLink,
    drives: &[OpenDrive],
    destroy_data: bool,
    enlisted: impl FnOnce() -> Result<(), ControlError>,
) -> Result<Joined, ControlError> {
    let [drive] = drives else {
        return Err(ControlError::internal("one drive at a time"));
    };
    fit(drives, destroy_data)?;
    let view = link.view().map_err(|error| trouble(&error))?;
    let none = "the pool has as many drives as it can have, or has yet to make again elsewhere what one had";
    let member = view.status.next_member;
    let member = member.ok_or_else(|| ControlError::conflict(none.to_owned()))?;
    let uuid = Uuid::new_v4();
    let label = Label {
        drive: uuid,
        index: member,
        class: drive.class,
        bytes: drive.opener.geometry().bytes(),
        ..view.status.label
    };
    with_drives(drives, |mut all| {
        enlist(&mut all, 0, &label).map_err(refused)
    })?;
    enlisted()?;
    let added = NewDrive {
        uuid,
        member,
        class: drive.class,
        opener: drive.opener.clone(),
    };
    match link.add_drive(added) {
        Ok(()) => Ok(Joined::Member(uuid)),
        Err(error) if error.kind() == ErrorKind::Timeout => {
            Ok(Joined::Unknown(uuid, trouble(&error)))
        }
        Err(error) => Err(trouble(&error)),
    }
}

/// Has a drive take part again that the pool has left out, with what it had; says which it is. `None` if it is
/// no such drive.
///
/// # Errors
/// One that went its own way, or was removed; one that cannot be read.
pub fn readmit(link: &PoolLink, drives: &[OpenDrive]) -> Result<Option<Uuid>, ControlError> {
    let [drive] = drives else {
        return Err(ControlError::internal("one drive at a time"));
    };
    let found = probe(drives)?.pop();
    let Some(Found::Label(label)) = found else {
        return Ok(None);
    };
    let status = link.view().map_err(|error| trouble(&error))?.status;
    let is_it = |member: &&MemberStatus| member.drive == label.drive && !member.in_service;
    if label.pool != status.label.pool || !status.members.iter().any(|member| is_it(&member)) {
        return Ok(None);
    }
    let name = status.label.pool_name;
    let back = with_drives(drives, |mut all| {
        let back = Comeback::read(&mut all, 0).map_err(refused)?;
        back.rename(&mut all, 0, &name).map_err(refused)?;
        Ok(back)
    })?;
    let readmitted = link.readmit(back.clone(), drive.opener.clone());
    readmitted.map_err(|error| {
        // One whose pool has not answered yet may be taken, and is to have the name then.
        let is_refused = error.kind() != ErrorKind::Timeout;
        let mut error = trouble(&error);
        if is_refused && let Err(why) = rename_back(drives, &back) {
            error.message.push_str(&why);
        }
        error
            .message
            .push_str("; --destroy-data adds it anew, without what it holds");
        error
    })?;
    Ok(Some(label.drive))
}

/// Gives a drive that was refused the label back that it had.
fn rename_back(drives: &[OpenDrive], back: &Comeback) -> Result<(), String> {
    let renamed = with_drives(drives, |mut all| {
        back.restore_label(&mut all, 0).map_err(refused)
    });
    renamed.map_err(|error| format!("; its label has the pool's new name ({})", error.message))
}

/// A pool that has been imported, not yet on a core.
pub struct ImportedPool {
    pub engine: Engine,
    /// Its drives by member index.
    pub drives: Vec<Option<OpenDrive>>,
}

/// What an operator, or the daemon, says of an import.
#[derive(Clone, Debug)]
pub struct HowToImport {
    /// Even without members that are missing, for good.
    pub degraded: bool,
    /// Even without blocks of which no copy is good.
    pub accept_data_loss: bool,
    /// The name that the pool has from now on.
    pub rename: Option<String>,
    /// How long after a loss repair begins by itself.
    pub repair_after: Duration,
    /// What this node remembers of pools.
    pub memory: Rc<dyn NodeMemory>,
}

/// Imports the pool that these drives hold.
///
/// # Errors
/// Whatever the engine refuses; nothing is changed then.
pub fn import(drives: &[OpenDrive], how: HowToImport) -> Result<ImportedPool, ControlError> {
    let labels = probe(drives)?;
    let options = ImportOptions {
        degraded: how.degraded,
        accept_data_loss: how.accept_data_loss,
        repair_after: how.repair_after,
        rename: how.rename,
        memory: Some(how.memory),
        ..ImportOptions::default()
    };
    let engine = with_drives(drives, |all| {
        ashlar_store::import(all, &options)
            .map(|imported| imported.engine)
            .map_err(refused)
    })?;
    let place = |uuid: Uuid| {
        let is_it = |found: &Found| matches!(found, Found::Label(label) if label.drive == uuid);
        labels
            .iter()
            .position(is_it)
            .map(|place| drives[place].clone())
    };
    let drives = engine
        .members()
        .iter()
        .enumerate()
        .map(|(index, member)| place(member.drive).filter(|_| engine.uses(index)))
        .collect();
    Ok(ImportedPool { engine, drives })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A block device over a file, as another path to what the file has.
    struct Other(String);

    impl Drop for Other {
        fn drop(&mut self) {
            // One that is there nevertheless is the machine's to clear away.
            let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
        }
    }

    impl Other {
        /// None where this process may not make one.
        fn over(path: &Path) -> Option<Self> {
            let mut losetup = Command::new("losetup");
            let made = losetup.args(["-f", "--show"]).arg(path).output().ok()?;
            let name = String::from_utf8(made.stdout).ok()?;
            made.status.success().then(|| Self(name.trim().to_owned()))
        }
    }

    #[test]
    fn a_drive_is_read_as_it_is_and_not_as_it_was_read_by_another_path() {
        let room = tempfile::tempdir().expect("a folder");
        let path = room.path().join("drive");
        std::fs::write(&path, vec![1; 1 << 20]).expect("a drive");
        let Some(other) = Other::over(&path) else {
            println!("skipped: no loop devices");
            return;
        };
        let beside = File::open(&other.0).expect("a device");
        let at = LABEL_AT[0];
        let read = || read_from_drive(&beside, at).expect("read")[0];
        assert_eq!(read(), 1);
        let drive = File::options().write(true).open(&path).expect("a drive");
        drive.write_all_at(&[2; GRANULE], at).expect("written");
        drive.sync_all().expect("durable");
        assert_eq!(read(), 2);
    }

    #[test]
    fn what_a_drive_without_a_path_holds_is_not_overwritten_unasked() {
        let how = Opening {
            reply_timeout: Duration::from_secs(10),
            are_known: false,
        };
        let request = |destroy_data| CreatePool {
            name: "tank".into(),
            destroy_data,
            ..CreatePool::default()
        };
        let drives = open_drives(&["memory:128MiB".to_owned()], how).expect("open");
        create(&request(false), &drives).expect("it is blank");
        let error = fit(&drives, false).expect_err("it is a pool's");
        let named = ["memory:128MiB", "pool tank", "--destroy-data"];
        let names_all = named.iter().all(|word| error.message.contains(word));
        assert!(names_all, "{error}");
        create(&request(false), &drives).expect_err("it is a pool's");
        fit(&drives, true).expect("it may be destroyed");
        create(&request(true), &drives).expect("it may be destroyed");
    }
}
