//! Which drives these are, and what their newest root says.

use crate::drives::Drives;
use crate::error::PoolError;
use crate::format::{Label, MemberState, Root};
use crate::sizes::{GRANULE, LABEL_AT, ROOT_AT, ROOT_BYTES};

/// Reads labels and roots, and puts the drives in the order of the pool's members.
pub(super) fn identify(drives: &mut Drives) -> Result<(Label, Root), PoolError> {
    let mut labels = Vec::new();
    for drive in 0..drives.len() {
        drives
            .check(drive)
            .map_err(|why| refuse(format!("drive {drive}: {why}")))?;
        labels.push(read_label(drives, drive)?);
    }
    let Some(first) = labels.first().cloned() else {
        return Err(refuse("no drives were given".into()));
    };
    for label in &labels {
        check_same_pool(&first, label)?;
    }
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by_key(|&drive| labels[drive].index);
    labels.sort_by_key(|label| label.index);
    drives.arrange(&order);
    let root = newest_root(drives, &first)?;
    check_members(&labels, &root)?;
    for (drive, label) in labels.iter().enumerate() {
        let bytes = drives.geometry(drive).bytes();
        if bytes < label.bytes {
            return Err(refuse(format!(
                "drive {} of pool {} has {bytes} bytes, its label says {}: it has been cut short",
                label.drive, label.pool_name, label.bytes
            )));
        }
    }
    Ok((labels.swap_remove(0), root))
}

fn refuse(why: String) -> PoolError {
    PoolError::Refused(why)
}

/// The label of a drive, from either copy.
pub(crate) fn read_label(drives: &mut Drives, drive: usize) -> Result<Label, PoolError> {
    let mut damage = None;
    for at in LABEL_AT {
        match drives
            .read(drive, at, GRANULE)
            .map(|bytes| Label::decode(&bytes))
        {
            Ok(Ok(Some(label))) => return Ok(label),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => damage = Some(error.to_string()),
            Err(error) => damage = Some(error.to_string()),
        }
    }
    Err(match damage {
        Some(why) => PoolError::Damaged(format!("drive {drive}: {why}")),
        None => refuse(format!("drive {drive} belongs to no pool: it has no label")),
    })
}

fn check_same_pool(first: &Label, label: &Label) -> Result<(), PoolError> {
    if label.pool != first.pool {
        return Err(refuse(format!(
            "drive {} belongs to pool {} ({}), drive {} to pool {} ({}): import one pool at a time",
            first.drive, first.pool_name, first.pool, label.drive, label.pool_name, label.pool
        )));
    }
    if label.sizes.check().is_err() || label.sizes != first.sizes || label.salt != first.salt {
        return Err(PoolError::Damaged(format!(
            "the labels of drives {} and {} disagree",
            first.drive, label.drive
        )));
    }
    Ok(())
}

fn newest_root(drives: &mut Drives, label: &Label) -> Result<Root, PoolError> {
    let mut newest: Option<Root> = None;
    let mut damage = String::from("no root was ever written");
    for drive in 0..drives.len() {
        for at in ROOT_AT {
            let read = drives.read(drive, at, ROOT_BYTES as usize);
            match read.map(|bytes| Root::decode(&bytes, label.salt)) {
                Ok(Ok(root)) if root.pool != label.pool => {}
                Ok(Ok(root)) => {
                    if newest
                        .as_ref()
                        .is_none_or(|n| n.generation < root.generation)
                    {
                        newest = Some(root);
                    }
                }
                Ok(Err(error)) => damage = error.to_string(),
                Err(error) => damage = error.to_string(),
            }
        }
    }
    let name = &label.pool_name;
    newest.ok_or_else(|| {
        PoolError::Damaged(format!("pool {name} has no root that verifies: {damage}"))
    })
}

fn check_members(labels: &[Label], root: &Root) -> Result<(), PoolError> {
    let name = &labels[0].pool_name;
    for (index, member) in root.members.iter().enumerate() {
        let here = labels.iter().filter(|l| usize::from(l.index) == index);
        let mut here = here.map(|l| l.drive);
        if member.state == MemberState::Active && here.next() != Some(member.drive) {
            return Err(refuse(format!(
                "drive {} (number {index}) of pool {name} is missing",
                member.drive
            )));
        }
        if here.next().is_some() {
            return Err(refuse(format!(
                "pool {name} has two drives with number {index}"
            )));
        }
    }
    if labels.len() != root.members.len() {
        return Err(refuse(format!(
            "pool {name} has {} drives, {} were given",
            root.members.len(),
            labels.len()
        )));
    }
    Ok(())
}
