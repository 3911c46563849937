//! Which drives these are, and what their newest root says.

use crate::comeback::{Comeback, Returning, read_label, roots, serves, share_drives, write_name};
use crate::drives::Drives;
use crate::error::PoolError;
use crate::format::{DriveClass, Features, Label, MAX_MEMBERS, Member, MemberState, Root};
use crate::membership::{Word, word_on};
use crate::recover::ImportOptions;
use crate::sizes::{GRANULE, LABEL_AT};

/// What the drives say of the pool.
pub(super) struct Identified {
    /// A label of a member in service.
    pub(super) label: Label,
    /// The newest root, without the members that are missing.
    pub(super) root: Root,
    /// Those members.
    pub(super) missing: Vec<usize>,
    /// The class of each member, by its label; none of those that are not here.
    pub(super) classes: Vec<Option<DriveClass>>,
    /// Members that were left out and are here with what they had.
    pub(super) returning: Vec<Returning>,
}

/// Reads labels and roots, and puts the drives in the order of the pool's members. Members that are
/// missing, and drives that the pool has left out, are not among them afterwards, and the root says
/// that they are excluded. Returns the missing ones, too.
pub(super) fn identify(
    drives: &mut Drives,
    options: &ImportOptions,
) -> Result<Identified, PoolError> {
    drives.put_back();
    let (labels, places, strangers) = read_labels(drives, options)?;
    let Some(first) = labels.first().cloned() else {
        let why = strangers.join("; ");
        return Err(refuse(format!(
            "none of the drives given belongs to a pool: {why}"
        )));
    };
    for label in &labels {
        check_same_pool(&first, label)?;
    }
    // From here on, drive `i` is the one that label `i` was read from.
    drives.arrange(&places);
    let comebacks = comebacks(drives, &labels)?;
    let roots: Vec<Option<Root>> = comebacks
        .iter()
        .map(|one| one.roots.first().cloned())
        .collect();
    // Two imports that were both cut short may have written roots of one generation: the one that
    // leaves more out is right about the drives that missed something.
    let excluded = |root: &Root| {
        let members = root.members.iter();
        members
            .filter(|member| member.state == MemberState::Excluded)
            .count()
    };
    let newest = roots
        .iter()
        .flatten()
        .max_by_key(|root| (root.generation, excluded(root)));
    let Some(mut root) = newest.cloned() else {
        let name = &first.pool_name;
        let here: Vec<String> = (0..labels.len()).map(|drive| drives.name(drive)).collect();
        return Err(PoolError::Damaged(format!(
            "no root of pool {name} can be read on {}",
            here.join(", ")
        )));
    };
    check_exclusions(drives, &labels, &roots, &root)?;
    let order = order(&labels, &root)?;
    drives.arrange(&order);
    let is_removed = |comeback: &&Comeback| {
        let memory = options.memory.as_ref();
        memory.is_some_and(|memory| memory.has_removed(root.pool, comeback.label.drive))
    };
    let returning: Vec<Returning> = comebacks
        .iter()
        .filter(|comeback| !is_removed(comeback))
        .filter_map(|comeback| comeback.returning(&root).ok())
        .collect();
    let missing = exclude_missing(&mut root, &order, &first, options)
        .map_err(|error| also(error, &strangers))?;
    for (index, member) in root.members.iter().enumerate() {
        if returning.iter().any(|one| one.member == index) {
            drives.set_aside(index);
        } else if member.state == MemberState::Excluded {
            drives.leave_out(index);
        } else {
            check_length(drives, index, member, &labels)?;
        }
    }
    let is_member = |label: &&Label| {
        let index = usize::from(label.index);
        let member = root.members.get(index);
        member.is_some_and(|member| member.drive == label.drive) && drives.is_here(index)
    };
    let label = labels.iter().find(is_member);
    let class = |(index, member): (usize, &Member)| {
        let is_it = |label: &&Label| label.drive == member.drive && drives.is_here(index);
        labels.iter().find(is_it).map(|label| label.class)
    };
    let classes = root.members.iter().enumerate().map(class).collect();
    Ok(Identified {
        label: label.cloned().unwrap_or(first),
        classes,
        root,
        missing,
        returning,
    })
}

/// Members that the newest root on these drives counts on, and that are none of these drives. Nothing is
/// changed.
///
/// # Errors
/// None of the drives has a label, or none a root; one belongs to a newer program.
pub fn missing_members(drives: &mut Drives) -> Result<Vec<uuid::Uuid>, PoolError> {
    let (labels, places, strangers) = read_labels(drives, &ImportOptions::default())?;
    let Some(first) = labels.first() else {
        return Err(refuse(strangers.join("; ")));
    };
    drives.arrange(&places);
    let first = first.clone();
    let mut newest: Option<Root> = None;
    for drive in 0..drives.len() {
        let found = roots(drives, drive, &first)?;
        let all = newest.into_iter().chain(found);
        newest = all.max_by_key(|root| root.generation);
    }
    let newest = newest.ok_or_else(|| refuse("no root can be read".to_owned()))?;
    let is_here = |member: &Member| labels.iter().any(|label| label.drive == member.drive);
    let members = newest.members.into_iter();
    let missing = members.filter(|member| member.state.in_service() && !is_here(member));
    Ok(missing.map(|member| member.drive).collect())
}

/// Labels, where the drives with those are, and why others have none.
type Labelled = (Vec<Label>, Vec<Option<usize>>, Vec<String>);

/// The labels of the drives that have one, where those drives are, and why the others have none.
///
/// # Errors
/// [`PoolError::Version`], unless drives may be left out.
fn read_labels(drives: &mut Drives, options: &ImportOptions) -> Result<Labelled, PoolError> {
    let (mut labels, mut places, mut strangers) = (Vec::new(), Vec::new(), Vec::new());
    for drive in 0..drives.len() {
        if !drives.is_here(drive) {
            continue;
        }
        let usable = drives
            .check(drive)
            .map_err(|why| refuse(format!("{}: {why}", drives.name(drive))));
        match usable.and_then(|()| read_label(drives, drive)) {
            Ok(label) => {
                labels.push(label);
                places.push(Some(drive));
            }
            Err(error @ PoolError::Version(_)) if !options.degraded => return Err(error),
            Err(error) => strangers.push(error.to_string()),
        }
    }
    Ok((labels, places, strangers))
}

/// Says why drives that were given do not count.
fn also(error: PoolError, strangers: &[String]) -> PoolError {
    match error {
        PoolError::Refused(why) if !strangers.is_empty() => {
            PoolError::Refused(format!("{why} ({})", strangers.join("; ")))
        }
        error => error,
    }
}

/// Refuses a member that is shorter than its label says. A drive that was to become a member, and then
/// another did in its place, has a label with the same number.
fn check_length(
    drives: &Drives,
    index: usize,
    member: &Member,
    labels: &[Label],
) -> Result<(), PoolError> {
    let bytes = drives.geometry(index).bytes();
    match labels.iter().find(|label| label.drive == member.drive) {
        Some(label) if bytes < label.bytes => Err(refuse(format!(
            "{} of pool {} has {bytes} bytes, its label says {}: it has been cut short. Nothing was \
             changed: give it its size back, or import without it if the others are enough",
            drives.name(index),
            label.pool_name,
            label.bytes
        ))),
        _ => Ok(()),
    }
}

fn refuse(why: String) -> PoolError {
    PoolError::Refused(why)
}

/// Writes labels that have rotted again, from their drive's other copy: the next rot would take the drive
/// out of the pool. Returns the drives, once a copy, and whether it was written. One that cannot be is no
/// reason to go on without its drive: the other is good, and the root that is written by now names it.
pub(super) fn mend_labels(drives: &mut Drives) -> Vec<(usize, bool)> {
    let mut mended = Vec::new();
    for drive in 0..drives.len() {
        if !drives.is_here(drive) {
            continue;
        }
        let copies = LABEL_AT.map(|at| (at, drives.read(drive, at, GRANULE).ok()));
        let mut found = copies.iter().filter_map(|(_, copy)| copy.as_deref());
        let is_good = |copy: &&[u8]| matches!(Label::decode(copy), Ok(Some(_)));
        let Some(good) = found.find(is_good) else {
            continue;
        };
        for (at, copy) in &copies {
            // What a newer program has written is no rot.
            if !copy.as_deref().is_some_and(Label::is_sound) {
                let written = drives.write(&[(drive, *at)], good).is_ok();
                drives.take_broken();
                mended.push((drive, written));
            }
        }
    }
    mended
}

/// Gives labels the features that the pool's roots name by now, one copy after the other. They only have a program
/// that lacks one say so earlier: a label that cannot be written is no reason to go on without its drive.
pub(super) fn name_features(drives: &mut Drives, features: Features) {
    let here = (0..drives.len()).filter(|_| !features.is_empty());
    for drive in here.collect::<Vec<usize>>() {
        if !drives.is_here(drive) {
            continue;
        }
        for at in LABEL_AT {
            let copy = drives.read(drive, at, GRANULE).ok();
            let Some(Ok(Some(mut label))) = copy.map(|copy| Label::decode(&copy)) else {
                continue;
            };
            if label.features.has(features) {
                continue;
            }
            label.features = label.features.and(features);
            let written = drives.write(&[(drive, at)], &label.encode());
            if written.is_err() {
                drives.take_broken();
                break;
            }
        }
    }
}

/// Gives the pool another name, drive by drive: on each one label is whole at every moment, and a name
/// is not what makes drives one pool. So one that is interrupted does it again.
pub(super) fn rename(drives: &mut Drives, name: &str) -> Result<(), PoolError> {
    for drive in 0..drives.len() {
        if !drives.is_here(drive) {
            continue;
        }
        let label = read_label(drives, drive)?;
        write_name(drives, drive, label, name)?;
    }
    Ok(())
}

/// Gives these drives' labels the pool's name, if they missed that it got another.
pub(super) fn name_again(
    drives: &mut Drives,
    which: impl Iterator<Item = usize>,
    name: &str,
) -> Result<(), PoolError> {
    for drive in which {
        let label = read_label(drives, drive)?;
        if label.pool_name != name {
            write_name(drives, drive, label, name)?;
        }
    }
    Ok(())
}

fn check_same_pool(first: &Label, label: &Label) -> Result<(), PoolError> {
    if label.pool != first.pool {
        return Err(refuse(format!(
            "drive {} belongs to pool {} ({}), drive {} to pool {} ({}): import one pool at a time, naming \
             its drives only",
            first.drive, first.pool_name, first.pool, label.drive, label.pool_name, label.pool
        )));
    }
    if label.sizes.check().is_err() || label.sizes != first.sizes || label.salt != first.salt {
        return Err(PoolError::Damaged(format!(
            "the labels of drives {} and {} of pool {} disagree about its sizes: one of them is not what was \
             written",
            first.drive, label.drive, first.pool_name
        )));
    }
    Ok(())
}

/// What each drive says of itself; drive `i` is the one with label `i`.
fn comebacks(drives: &mut Drives, labels: &[Label]) -> Result<Vec<Comeback>, PoolError> {
    let read = |(drive, label): (usize, &Label)| {
        Ok(Comeback {
            geometry: drives.geometry(drive),
            roots: roots(drives, drive, label)?,
            label: label.clone(),
        })
    };
    labels.iter().enumerate().map(read).collect()
}

/// Refuses drives that have gone separate ways: each side has left the other out, so each may hold
/// acknowledged writes that the other lacks. A drive that was only left out, before or after others were, knows
/// one at least of those that are in service now as one in service.
fn check_exclusions(
    drives: &Drives,
    labels: &[Label],
    roots: &[Option<Root>],
    newest: &Root,
) -> Result<(), PoolError> {
    for (place, (label, root)) in labels.iter().zip(roots).enumerate() {
        let Some(root) = root else { continue };
        // One that was emptied and let go says so itself.
        let went_on = serves(root, label.drive);
        // Of one generation, neither knows what the other has missed.
        let is_older = root.generation < newest.generation;
        let was_left_out = is_older && share_drives(newest, root);
        if !went_on || serves(newest, label.drive) || was_left_out {
            continue;
        }
        // Where all numbers have been given, a drive that was left out may have lost its own to another.
        let is_full = [root, newest]
            .iter()
            .any(|root| root.members.len() == MAX_MEMBERS);
        let left_out = |one: &&Member| {
            let theirs = root.members.iter().find(|their| their.drive == one.drive);
            theirs.map_or(is_full, |their| their.state == MemberState::Excluded)
        };
        let mut serving = newest.members.iter().filter(|one| one.state.in_service());
        if let Some(other) = serving.find(left_out) {
            return Err(refuse(format!(
                "the drives of pool {} have gone separate ways: {} was left out by the others and went on \
                 without drive {}. Each side may hold writes that the other lacks, and nothing was changed: \
                 import one side alone, naming its drives only. Those of the other can then be added anew, \
                 which destroys what they hold",
                label.pool_name,
                drives.name(place),
                other.drive
            )));
        }
    }
    Ok(())
}

/// For each member, where its drive is among those given.
fn order(labels: &[Label], root: &Root) -> Result<Vec<Option<usize>>, PoolError> {
    let mut order = Vec::new();
    for (index, member) in root.members.iter().enumerate() {
        let is_it = |label: &&Label| label.drive == member.drive;
        if labels.iter().filter(is_it).count() > 1 {
            let name = &labels[0].pool_name;
            return Err(refuse(format!(
                "drive {} of pool {name} was given twice",
                member.drive
            )));
        }
        let place = labels.iter().position(|label| label.drive == member.drive);
        let here = place.filter(|&place| usize::from(labels[place].index) == index);
        order.push(here);
    }
    Ok(order)
}

/// Leaves out the members that are missing, if those here may decide that.
fn exclude_missing(
    root: &mut Root,
    order: &[Option<usize>],
    label: &Label,
    options: &ImportOptions,
) -> Result<Vec<usize>, PoolError> {
    let active = |(_, member): &(usize, &Member)| member.state.in_service();
    let members: Vec<(usize, &Member)> = root.members.iter().enumerate().filter(active).collect();
    let missing: Vec<(usize, &Member)> = members
        .iter()
        .filter(|(i, _)| order[*i].is_none())
        .copied()
        .collect();
    let here = members.len() - missing.len();
    let name = &label.pool_name;
    let is_here = |(i, _): &&(usize, &Member)| order[*i].is_some();
    let drives = members
        .iter()
        .filter(is_here)
        .map(|(_, member)| member.drive);
    let word = word_on(&options.memory, &drives.collect(), root);
    if word == Word::Forbidden && !options.degraded {
        return Err(refuse(format!(
            "others of the drives of pool {name} are missing, and went on without these when this node served it last: \
             bring them, or import with --degraded only if what was written since may be lost"
        )));
    }
    let is_enough =
        here * 2 > members.len() || (here * 2 == members.len() && word == Word::HalfIsEnough);
    if let Some((index, member)) = missing.first()
        && (here == 0 || (!options.degraded && !is_enough))
    {
        return Err(refuse(format!(
            "drive {} (number {index}) of pool {name} is missing, and with {here} of {} drives the \
             others may have gone on without these: bring it, or import with --degraded only if you know \
             that they have not",
            member.drive,
            members.len()
        )));
    }
    let missing: Vec<usize> = missing.iter().map(|(index, _)| *index).collect();
    for &index in &missing {
        let member = &mut root.members[index];
        if member.state == MemberState::Active {
            root.reserve.spent = root.reserve.spent.saturating_add(member.extents);
        }
        member.state = MemberState::Excluded;
    }
    check_logs(root, name)?;
    Ok(missing)
}

/// Refuses a pool that has lost every copy of a part of its logs.
fn check_logs(root: &Root, name: &str) -> Result<(), PoolError> {
    let chunks = root.ring.chunks.iter().chain(&root.map.chunks);
    let here =
        |copy: &crate::format::ChunkCopy| root.members[usize::from(copy.drive)].state.in_service();
    if chunks
        .into_iter()
        .any(|chunk| !chunk.copies.iter().any(here))
    {
        return Err(refuse(format!(
            "too many drives of pool {name} are missing: its logs are not complete without them. Bring \
             them"
        )));
    }
    Ok(())
}
