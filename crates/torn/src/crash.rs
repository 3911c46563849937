//! The power cuts of one place.

use std::path::PathBuf;

use ashlar_device::record::{PowerCut, TraceError, write_image};
use ashlar_lab::{Journal, LabError, Turn};
use ashlar_testbed::process::Attached;
use serde::{Deserialize, Serialize};

use super::place::{Place, Served};
use super::recording::{DataWrites, DriveTold, Recording};
use super::setting::Setting;
use super::verify::complaint;

/// What the power cuts of a place have shown.
#[derive(Serialize, Deserialize)]
pub(super) struct Crashes {
    pub(super) place: String,
    /// What the namespace says that it writes whole, even when the power fails, in bytes.
    advertised_atomic_bytes: u64,
    /// The block device, as the kernel sees it: largest atomic write in bytes, 0 if it knows of none.
    kernel_atomic_write_bytes: u64,
    /// What the load has written, by drive.
    recorded: Vec<DriveTold>,
    /// Writes that touched the database's files, and those that split one of its pages. Only where what
    /// is recorded is the file system's own disk.
    pub(super) data_writes: Option<DataWrites>,
    /// Commits of the ledger that were acknowledged.
    pub(super) commits: u64,
    /// Of these, those in whose time no flush and no durable write completed on some drive.
    pub(super) commits_not_made_durable: u64,
    pub(super) cuts: Vec<Cut>,
    pub(super) broken: usize,
    /// There were to be more power cuts.
    pub(super) partial: bool,
}

/// One power cut.
#[derive(Serialize, Deserialize)]
pub(super) struct Cut {
    seed: u64,
    at: u64,
    /// Changes of all drives that were not settled, and what became of them.
    there: u64,
    missing: u64,
    torn: u64,
    /// Commits that had been acknowledged.
    acknowledged: u64,
    /// What is wrong with the database; null if nothing is.
    pub(super) complaint: Option<String>,
}

/// A power cut that was looked at, and how what it was looked at with has ended.
struct Looked {
    cut: Cut,
    ended: Result<(), LabError>,
}

impl Cut {
    /// One of which only this is known.
    #[cfg(test)]
    pub(super) fn with(seed: u64, complaint: Option<&str>) -> Self {
        Self {
            seed,
            at: 0,
            there: 0,
            missing: 0,
            torn: 0,
            acknowledged: 0,
            complaint: complaint.map(str::to_owned),
        }
    }

    /// What its chance followed from.
    pub(super) fn seed(&self) -> u64 {
        self.seed
    }
}

impl Crashes {
    /// Of a place where nothing was done.
    #[cfg(test)]
    pub(super) fn none(place: &str) -> Self {
        Self {
            place: place.to_owned(),
            advertised_atomic_bytes: 0,
            kernel_atomic_write_bytes: 0,
            recorded: Vec::new(),
            data_writes: None,
            commits: 0,
            commits_not_made_durable: 0,
            cuts: Vec::new(),
            broken: 0,
            partial: false,
        }
    }

    /// Of a place where a load was recorded, and no power cut yet.
    fn of(recording: &Recording) -> Self {
        Self {
            place: recording.place.name().to_owned(),
            advertised_atomic_bytes: recording.advertised_bytes,
            kernel_atomic_write_bytes: recording.atomic_bytes,
            recorded: recording.drives_told(),
            data_writes: recording.data_writes(),
            commits: recording.ledger.commits().len() as u64,
            commits_not_made_durable: recording.not_made_durable(),
            cuts: Vec::new(),
            broken: 0,
            partial: true,
        }
    }

    /// Cuts the power again and again; what is found until an error is kept.
    fn cut(
        &mut self,
        place: Place,
        images: u64,
        mut one: impl FnMut(u64) -> Result<Looked, LabError>,
    ) -> Result<(), LabError> {
        while self.goes_on(place, images) {
            let looked = one(self.cuts.len() as u64)?;
            self.push(looked.cut);
            looked.ended?;
        }
        self.partial = false;
        Ok(())
    }

    fn push(&mut self, cut: Cut) {
        self.broken += usize::from(cut.complaint.is_some());
        self.cuts.push(cut);
    }

    /// Whether there is to be another power cut.
    fn goes_on(&self, place: Place, images: u64) -> bool {
        goes_on(place, self.cuts.len() as u64, self.broken, images)
    }

    /// What another load of the same place was told belongs to it, too.
    fn follow(&mut self, other: Self) {
        self.recorded.extend(other.recorded);
        self.data_writes = DataWrites::of_both(self.data_writes.take(), other.data_writes);
        self.commits += other.commits;
        self.commits_not_made_durable += other.commits_not_made_durable;
        other.cuts.into_iter().for_each(|cut| self.push(cut));
    }

    /// What a journal has of a place; nothing if it has no load of it. Whether it has all is in `partial`.
    pub(super) fn kept(
        place: Place,
        images: u64,
        journal: &Journal,
    ) -> Result<Option<Self>, LabError> {
        let loads: Vec<Self> = journal.outcomes(&turn(place, LOAD, 1))?;
        let mut all = loads.into_iter();
        let Some(mut kept) = all.next() else {
            return Ok(None);
        };
        all.for_each(|load| kept.follow(load));
        let cuts: Vec<Cut> = journal.outcomes(&turn(place, CUT, 1))?;
        cuts.into_iter().for_each(|cut| kept.push(cut));
        kept.partial = kept.goes_on(place, images);
        Ok(Some(kept))
    }

    /// All of it, in a line.
    pub(super) fn line(&self) -> String {
        let split = match &self.data_writes {
            Some(found) => format!(
                "; {} of {} writes of data split a page",
                found.splitting_a_page, found.writes
            ),
            None => String::new(),
        };
        format!(
            "{}: {} of {} power cuts left a broken database{split}; {} of {} commits without a flush\n",
            self.place,
            self.broken,
            self.cuts.len(),
            self.commits_not_made_durable,
            self.commits
        )
    }
}

/// An error of a trace, as the lab's.
pub(super) fn trouble(error: TraceError) -> LabError {
    LabError::environment(error.to_string())
}

/// As long as nothing has broken on the plain disk, there are up to so many power cuts more than were asked
/// for: what breaks nothing there shows nothing of the volume.
const MORE: u64 = 12;

/// Whether there is to be another power cut, after so many.
fn goes_on(place: Place, done: u64, broken: usize, images: u64) -> bool {
    let until_one_breaks = place == Place::Disk && broken == 0;
    done < images || (until_one_breaks && done < images.saturating_add(MORE))
}

/// Loads that were recorded, and power cuts, in the journal.
const LOAD: &str = "load";
const CUT: &str = "power cut";

fn turn(place: Place, cell: &str, repeat: u32) -> Turn {
    Turn {
        configuration: match place {
            Place::Disk => 1,
            Place::Volume => 2,
        },
        cell: cell.to_owned(),
        repeat,
    }
}

/// Records a load on `drives`, which hold the database, and looks at what the power cuts leave that the journal does not
/// have, of as many as were asked for. What was done is in `found` also if an error ends it.
pub(super) fn crashes(
    place: Place,
    drives: &[PathBuf],
    setting: &Setting<'_>,
    journal: &mut Journal,
    found: &mut Option<Crashes>,
) -> Result<(), LabError> {
    let recording = Recording::of(place, drives, setting)?;
    let loads: Vec<Crashes> = journal.outcomes(&turn(place, LOAD, 1))?;
    let load = Crashes::of(&recording);
    journal.keep(&turn(place, LOAD, loads.len() as u32 + 1), &load)?;
    let found = match found {
        Some(found) => {
            found.follow(load);
            found
        }
        None => found.insert(load),
    };
    found.cut(place, setting.images, |number| {
        setting.progress.go_on()?;
        let seed = setting.seed.wrapping_mul(1000).wrapping_add(number);
        let looked = one(&recording, seed, setting)?;
        journal.keep(&turn(place, CUT, number as u32 + 1), &looked.cut)?;
        let what = looked.cut.complaint.as_deref().unwrap_or("whole");
        let text = format!("{}: power cut {seed}: {what}", place.name());
        setting.progress.say(&text);
        Ok(looked)
    })?;
    if !setting.keeps {
        recording.remove()?;
    }
    Ok(())
}

/// What `attach` says if the device is there and mount(8) does not take what is on it, or it cannot be read.
const REFUSED: [&str; 2] = ["mount: exit code 32", "Input/output error"];

/// Makes the images of one power cut and looks at what is on them.
fn one(recording: &Recording, seed: u64, setting: &Setting<'_>) -> Result<Looked, LabError> {
    let place = recording.place;
    let folder = setting.dir.join("cut");
    let caused = |e| LabError::caused(folder.display(), e);
    std::fs::create_dir_all(&folder).map_err(caused)?;
    let images = place.drives(&folder);
    let mut cut = images_of(recording, seed, &images, setting.tear)?;
    let ended = match place.serve(&images, &folder.join(seed.to_string()), false) {
        Ok(served) => look(served, &mut cut, setting)?,
        // What the images hold was refused.
        Err(LabError::Check(text)) => {
            cut.complaint = Some(text);
            Ok(())
        }
        Err(error) => return Err(error),
    };
    let cleared = if setting.keeps && cut.complaint.is_some() {
        let kept = setting.dir.join(format!("{}-{seed}", place.name()));
        std::fs::rename(&folder, kept)
    } else {
        std::fs::remove_dir_all(&folder)
    };
    let ended = ended.and(cleared.map_err(caused));
    Ok(Looked { cut, ended })
}

/// Looks at what is served. A broken one may not end in order, which makes it no less broken: how it has ended is told
/// apart.
fn look(
    served: Served,
    cut: &mut Cut,
    setting: &Setting<'_>,
) -> Result<Result<(), LabError>, LabError> {
    let detached = match Attached::attach(&served.url, &setting.mount()) {
        Ok(attached) => {
            cut.complaint = complaint(&setting.mount(), cut.acknowledged, setting.progress)?;
            // What was interrupted is not broken.
            setting.progress.go_on()?;
            match cut.complaint.is_some() {
                true => attached.detach_by_force(),
                false => attached.detach(),
            }
        }
        Err(error) if is_refused(&error) => {
            cut.complaint = Some(format!("the file system cannot be mounted: {error}"));
            Ok(())
        }
        Err(error) => return Err(error),
    };
    let stopped = served.stop();
    Ok(detached.and(match cut.complaint.is_some() {
        // It is gone either way.
        true => Ok(()),
        false => stopped,
    }))
}

fn is_refused(error: &LabError) -> bool {
    let text = error.to_string();
    REFUSED.iter().any(|word| text.contains(word))
}

/// Makes the images of one power cut.
fn images_of(
    recording: &Recording,
    seed: u64,
    images: &[PathBuf],
    tear: u32,
) -> Result<Cut, LabError> {
    let at = PowerCut::moment(&recording.traces, &recording.span, seed).map_err(trouble)?;
    let power = PowerCut { at, seed, tear };
    let mut cut = Cut {
        seed,
        at,
        there: 0,
        missing: 0,
        torn: 0,
        acknowledged: recording.ledger.acknowledged(at),
        complaint: None,
    };
    let drives = recording.traces.iter().zip(&recording.bases).zip(images);
    for (number, ((trace, base), out)) in (0..).zip(drives) {
        let image = write_image(trace, number, &power, Some(base), out).map_err(trouble)?;
        cut.there += image.there;
        cut.missing += image.missing;
        cut.torn += image.torn;
    }
    Ok(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_cuts_before_an_error_are_kept() {
        let mut crashes = Crashes::none("volume");
        crashes.partial = true;
        let looked = |cut| Looked { cut, ended: Ok(()) };
        let mut one = |number| match number {
            0 => Ok(looked(Cut::with(0, None))),
            1 => Ok(looked(Cut::with(1, Some("a page is torn")))),
            _ => Err(LabError::environment("interrupted")),
        };
        let error = crashes.cut(Place::Volume, 20, &mut one);
        assert_eq!(error.expect_err("it was").exit_code(), 3);
        assert_eq!((crashes.cuts.len(), crashes.broken), (2, 1));
        assert!(crashes.partial);
        let mut crashes = Crashes::none("volume");
        crashes.partial = true;
        crashes.cut(Place::Volume, 2, &mut one).expect("two");
        assert!(!crashes.partial && crashes.cuts.len() == 2);
    }

    #[test]
    fn a_power_cut_that_broke_something_counts_however_it_ends() {
        let mut crashes = Crashes::none("volume");
        let ended = crashes.cut(Place::Volume, 2, |number| {
            Ok(Looked {
                cut: Cut::with(number, Some("a page is torn")),
                ended: Err(LabError::environment("it is still mounted")),
            })
        });
        assert_eq!(ended.expect_err("it was").exit_code(), 3);
        assert_eq!((crashes.cuts.len(), crashes.broken), (1, 1));
    }

    #[test]
    fn a_device_that_cannot_be_read_is_broken_and_a_machine_that_cannot_attach_is_not() {
        let of = |text: &str| is_refused(&LabError::environment(text));
        assert!(of("attach: mount: exit code 32: bad superblock"));
        assert!(of("attach: reading /dev/loop3: Input/output error"));
        assert!(!of("attach: /dev/fuse: No such file or directory"));
    }

    #[test]
    fn power_cuts_and_loads_of_a_journal_are_told_together() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut journal =
            Journal::begin(dir.path(), &ashlar_lab::Origin::default()).expect("begun");
        let kept = |journal: &Journal| Crashes::kept(Place::Disk, 3, journal).expect("readable");
        for (number, complaint) in [(1, None), (2, Some("a page is torn"))] {
            let mut load = Crashes::none("disk");
            (load.commits, load.commits_not_made_durable) = (10, 1);
            let all = [(LOAD, true), (CUT, false)];
            for (cell, is_load) in all {
                let turn = turn(Place::Disk, cell, number);
                let done = match is_load {
                    true => journal.keep(&turn, &load),
                    false => journal.keep(&turn, &Cut::with(number.into(), complaint)),
                };
                done.expect("kept");
            }
        }
        assert!(kept(&journal).is_none(), "this run has measured it itself");
        drop(journal);
        let machine = ashlar_lab::Machine::default();
        let (mut journal, _) = Journal::resume(dir.path(), &machine).expect("goes on");
        let found = kept(&journal).expect("there");
        assert_eq!((found.commits, found.commits_not_made_durable), (20, 2));
        assert_eq!(
            (found.cuts.len(), found.broken, found.partial),
            (2, 1, true)
        );
        let last = turn(Place::Disk, CUT, 3);
        journal.keep(&last, &Cut::with(3, None)).expect("kept");
        drop(journal);
        let (journal, _) = Journal::resume(dir.path(), &machine).expect("goes on");
        assert!(!kept(&journal).expect("there").partial);
    }

    #[test]
    fn the_disk_is_cut_off_until_something_breaks_and_the_volume_as_asked() {
        for (place, done, broken, expected) in [
            (Place::Volume, 3, 0, true),
            (Place::Volume, 4, 0, false),
            (Place::Disk, 3, 2, true),
            (Place::Disk, 4, 1, false),
            (Place::Disk, 4, 0, true),
            (Place::Disk, 4 + MORE, 0, false),
        ] {
            assert_eq!(
                goes_on(place, done, broken, 4),
                expected,
                "{place:?} {done} {broken}"
            );
        }
    }
}
