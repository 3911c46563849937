//! What a drive says of itself and of its pool: its label and roots. Of drives that were left out of the pool and are
//! here again, what they had.
//!
//! What such a drive holds of homes is good as of a moment: every change of the map below a sequence was written,
//! and flushed, on all drives in service before it was recorded, or recorded again when one had gone that it was
//! written to (`engine::destage`). Which sequence that is says the *older* of the
//! drive's two roots: the newer one may have been cut short, and with it the numbers of what others never saw. A
//! root is begun only when the one before is durable on all members in service, so the older one is in the past of
//! every other drive of that time, too. If the older one is not the one before the newer, nothing is known, and
//! all that is on the drive is looked at.

use ashlar_block::Geometry;

use crate::drives::Drives;
use crate::error::PoolError;
use crate::format::{DriveClass, Label, MemberState, Root};
use crate::sizes::{GRANULE, LABEL_AT, ROOT_AT, ROOT_BYTES};

/// What a drive says of itself and of the pool as it knew it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comeback {
    pub label: Label,
    pub geometry: Geometry,
    /// Its roots that verify, the newest first.
    pub(crate) roots: Vec<Root>,
}

/// A member that may take part again once what is newer was written to it.
#[derive(Clone, Debug)]
pub(crate) struct Returning {
    pub(crate) member: usize,
    /// It has every change of the map below this sequence.
    pub(crate) since: u64,
    /// The last root that it has seen.
    pub(crate) generation: u64,
    pub(crate) geometry: Geometry,
    pub(crate) class: DriveClass,
}

/// Whether two roots are of histories that went separate ways. Each side has left all drives of the other out, so
/// no drive is in service in both.
pub(crate) fn share_drives(a: &Root, b: &Root) -> bool {
    let mut theirs = b.members.iter().filter(|member| member.state.in_service());
    theirs.any(|member| serves(a, member.drive))
}

/// Whether a root says that a drive is in service.
pub(crate) fn serves(root: &Root, drive: uuid::Uuid) -> bool {
    let mut members = root.members.iter();
    members.any(|member| member.drive == drive && member.state.in_service())
}

impl Comeback {
    /// Reads what a drive says.
    ///
    /// # Errors
    /// It has no label that can be read, or belongs to a newer program.
    pub fn read(drives: &mut Drives, drive: usize) -> Result<Self, PoolError> {
        let label = read_label(drives, drive)?;
        let roots = roots(drives, drive, &label)?;
        Ok(Self {
            label,
            geometry: drives.geometry(drive),
            roots,
        })
    }

    /// Gives the drive's label the name that the pool has by now.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn rename(&self, drives: &mut Drives, drive: usize, name: &str) -> Result<(), PoolError> {
        if self.label.pool_name == name {
            return Ok(());
        }
        write_name(drives, drive, self.label.clone(), name)
    }

    /// Gives the drive the label back that it had when it was read.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn restore_label(&self, drives: &mut Drives, drive: usize) -> Result<(), PoolError> {
        let label = read_label(drives, drive)?;
        if label == self.label {
            return Ok(());
        }
        write_name(drives, drive, label, &self.label.pool_name)
    }

    /// As which member it can take part again in a pool with this root, or why it cannot.
    pub(crate) fn returning(&self, newest: &Root) -> Result<Returning, String> {
        let drive = self.label.drive;
        let mut members = newest.members.iter().enumerate();
        let found = members.find(|(_, member)| member.drive == drive);
        let (index, member) = found.ok_or("the pool does not know it any more")?;
        if self.label.pool != newest.pool || usize::from(self.label.index) != index {
            return Err("its label is another member's".into());
        }
        if member.state != MemberState::Excluded {
            return Err("it is in service".into());
        }
        if self.geometry.bytes() < self.label.bytes {
            return Err(format!(
                "it has {} bytes, its label says {}",
                self.geometry.bytes(),
                self.label.bytes
            ));
        }
        let [newer, older] = &self.roots[..] else {
            return Err("its roots cannot be read".into());
        };
        if !serves(newer, drive) {
            return Err("it was emptied and removed".into());
        }
        if !share_drives(newest, newer) {
            return Err("it went on without those that are in service now".into());
        }
        // After it was back, or became a member, one root was written to it, and the other is of another time:
        // the sequences below that may have been given again since.
        let is_before = newer.generation == older.generation + 1;
        Ok(Returning {
            member: index,
            since: if is_before { older.next_sequence } else { 0 },
            generation: newer.generation,
            geometry: self.geometry,
            class: self.label.class,
        })
    }
}

/// The label of a drive, from either copy.
///
/// # Errors
/// [`PoolError::Refused`] when it has none, [`PoolError::Damaged`] when neither copy is usable, or
/// [`PoolError::Version`] when one would be to another version.
pub fn read_label(drives: &mut Drives, drive: usize) -> Result<Label, PoolError> {
    let (mut damage, mut is_whole) = (None, false);
    for at in LABEL_AT {
        let bytes = match drives.read(drive, at, GRANULE) {
            Ok(bytes) => bytes,
            Err(error) => {
                damage = damage.or(Some(error.to_string()));
                continue;
            }
        };
        match Label::decode(&bytes) {
            Ok(Some(label)) => return Ok(label),
            Ok(None) => {}
            // What another version says of itself is not covered up by a damaged copy.
            Err(_) if is_whole => {}
            Err(error) => {
                is_whole = Label::is_of_another_version(&bytes);
                damage = Some(error.to_string());
            }
        }
    }
    Err(match damage {
        Some(why) if is_whole => PoolError::Version(format!("{}: {why}", drives.name(drive))),
        Some(why) => PoolError::Damaged(format!("{}: {why}", drives.name(drive))),
        None => PoolError::Refused(format!(
            "{} belongs to no pool: it has no label",
            drives.name(drive)
        )),
    })
}

/// The roots of a drive that verify, the newest first.
///
/// # Errors
/// [`PoolError::Refused`] if one of them is another version's, or has features that this program lacks: an older one
/// that can be read says nothing of what has been written since.
pub(crate) fn roots(
    drives: &mut Drives,
    drive: usize,
    label: &Label,
) -> Result<Vec<Root>, PoolError> {
    let mut found = Vec::new();
    for at in ROOT_AT {
        let Ok(bytes) = drives.read(drive, at, ROOT_BYTES as usize) else {
            continue;
        };
        match Root::decode(&bytes, label.salt) {
            Ok(root) => found.push(root),
            Err(error) if Root::is_of_another_version(&bytes, label.salt) => {
                let (name, pool) = (drives.name(drive), &label.pool_name);
                return Err(PoolError::Refused(format!(
                    "{name} of pool {pool}: {error}. Nothing was changed: import with the version of Ashlar that has \
                     written it"
                )));
            }
            Err(_) => {}
        }
    }
    found.retain(|root| root.pool == label.pool);
    found.sort_by_key(|root| std::cmp::Reverse(root.generation));
    Ok(found)
}

/// Writes a label anew, with this name of the pool: one copy after the other, so that one is whole at every moment.
pub(crate) fn write_name(
    drives: &mut Drives,
    drive: usize,
    mut label: Label,
    name: &str,
) -> Result<(), PoolError> {
    name.clone_into(&mut label.pool_name);
    let bytes = label.encode();
    for at in LABEL_AT {
        drives.write(&[(drive, at)], &bytes)?;
        drives.flush()?;
    }
    Ok(())
}
