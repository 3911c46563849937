//! What an operator should know of a pool, and what there is to do: it must fit what is going on.

use ashlar_store::format::Reserve as Wished;
use ashlar_store::{DriveReplies, MemberStatus, Status};

use super::LivePool;
use super::status::GRANULE;
use crate::model::{DriveErrors, DriveState, DriveStatus, LayoutSpec, SpaceStatus, readable_bytes};
use crate::pool::{View, room_of, scarcest};

/// All of it.
pub(super) fn warnings(
    pool: &LivePool,
    view: &View,
    drives: &[DriveStatus],
    space: &SpaceStatus,
) -> Vec<String> {
    let status = &view.status;
    let mut warnings = Vec::new();
    if status.counters.lost > 0 {
        let lost = status.counters.lost * GRANULE;
        warnings.push(format!(
            "{lost} bytes have no good copy left: they read as errors"
        ));
    }
    if status.waits_for_node {
        warnings.push(
            "writes wait until the daemon has stored in state.toml which drives are left: if that does not end, its file \
             system takes no writes, and the log says why"
                .into(),
        );
    }
    for volume in &status.volumes {
        if let Some(why) = &volume.trouble {
            warnings.push(format!("volume {}: {why}", volume.name));
        }
    }
    warnings.extend(drives.iter().filter_map(drive_warning));
    for drive in drives {
        let mut members = status.members.iter().rev();
        let Some(member) = members.find(|member| member.drive == drive.id) else {
            continue;
        };
        let mut known = pool.drives.iter().rev();
        let known = known.find(|known| known.id == drive.id);
        let seen = Seen {
            drive,
            member,
            removed: known.is_some_and(|known| known.removed),
        };
        warnings.extend(way_out(status, &seen));
        warnings.extend(silence(drive, member));
        warnings.extend(wait_warning(drive, member));
    }
    // In the middle of a loss it would tell of a pool as it is not to stay.
    if drives.iter().all(serves) {
        warnings.extend(drives.iter().filter_map(unmatched_warning));
    }
    warnings.extend(repair_warning(status));
    if let Some(home) = scarcest(&status.homes) {
        warnings.push(format!(
            "the pool is nearly full: {} bytes are left as {}. Writes will fail when there are none: add a \
             drive, or delete something",
            room_of(home),
            LayoutSpec::from(home.layout)
        ));
    }
    warnings.extend(promise_warning(status, space));
    warnings
}

/// What a drive that serves cannot do now.
pub(super) fn wait_of(member: &MemberStatus) -> Option<String> {
    let wait = member.wait.as_ref()?;
    let seconds = wait.lasts.as_secs();
    Some(format!("waits for {seconds} s: {}", wait.why))
}

/// The same, with what there is to do.
fn wait_warning(drive: &DriveStatus, member: &MemberStatus) -> Option<String> {
    let why = wait_of(member)?;
    Some(format!(
        "drive {} {why}. It is asked again until it can; writes wait, nothing is lost. Make room on the file \
         system that it lies on, or memory on this machine",
        drive_name(drive)
    ))
}

/// For how long a drive has not answered a request, if that is worth a word.
pub(super) fn silent_seconds(replies: &DriveReplies) -> Option<u64> {
    let seconds = replies.oldest.map(|oldest| oldest.as_secs());
    seconds.filter(|&seconds| seconds > 0)
}

/// A drive that does not answer.
fn silence(drive: &DriveStatus, member: &MemberStatus) -> Option<String> {
    let seconds = drive.silent_seconds?;
    let name = drive_name(drive);
    let what = match (member.in_service, member.replies.is_awaited) {
        (true, true) => {
            "the pool cannot do without it and waits. Look at the drive and its path; if it does not come back, \
             end the daemon, bring the drive to answer or take it away, and start again"
        }
        (true, false) => {
            "reads go to other copies; writes wait until it answers or counts as failed"
        }
        (false, _) => "it is out of service",
    };
    Some(format!(
        "drive {name} has not answered for {seconds} s: {what}"
    ))
}

/// A drive in service that does not do what it should.
fn drive_warning(drive: &DriveStatus) -> Option<String> {
    let DriveErrors {
        read,
        write,
        checksum,
    } = drive.errors;
    if !serves(drive) || read + write + checksum == 0 {
        return None;
    }
    let name = drive_name(drive);
    let what = match drive.state {
        DriveState::Evacuating => LEAVE_IT_IN,
        _ => "`pool scrub` finds and mends what else is; if it goes on, replace it",
    };
    Some(format!(
        "drive {name} is in service and has errors since the import: {read} reads and {write} writes failed, \
         {checksum} copies were bad. {what}"
    ))
}

/// What there is to do about a drive that is on its way out, whatever it suffers from.
const LEAVE_IT_IN: &str = "It is being emptied: leave it where it is until it is listed no more; `work` says how far \
                           that is";

pub(super) fn serves(drive: &DriveStatus) -> bool {
    matches!(drive.state, DriveState::Online | DriveState::Evacuating)
}

/// What to do about a drive whose file is not what it was.
pub(super) fn file_advice(pool: &str, drive: &DriveStatus) -> String {
    let name = drive_name(drive);
    match drive.state {
        DriveState::Evacuating => LEAVE_IT_IN.to_owned(),
        _ => {
            format!("`pool replace {pool} --old '{name}' --new DEVICE` puts another in its place")
        }
    }
}

/// A drive as operators, its engine and the daemon see it.
struct Seen<'a> {
    drive: &'a DriveStatus,
    member: &'a MemberStatus,
    /// Its removal or replacement was ordered.
    removed: bool,
}

/// What to do about a drive that does not serve.
fn way_out(status: &Status, seen: &Seen<'_>) -> Option<String> {
    let (drive, member) = (seen.drive, seen.member);
    let state = match drive.state {
        DriveState::Online | DriveState::Evacuating => return None,
        // It gets what it has missed, as its reason says.
        _ if member.returning => return None,
        DriveState::Missing => "missing",
        DriveState::Failed => "failed",
    };
    let (pool, name) = (&status.label.pool_name, drive_name(drive));
    // A scrub makes nothing again of what has no room.
    let is_going_on = status.rebuilding || status.repair_in.is_some();
    if seen.removed {
        let rest = match is_going_on || !status.degraded {
            true => "nothing has to be done, it is listed no more when that has ended".to_owned(),
            false => format!("no drive has room for that: `pool add {pool} --drive DEVICE`"),
        };
        return Some(format!(
            "drive {name} was removed or replaced, and what it held is made again on the others: {rest}"
        ));
    }
    // Options behind ? would be a shell's.
    let replace = format!(
        "`pool replace {pool} --old '{name}' --new DEVICE` puts another in its place, and \
         `pool remove {pool} --drive '{name}'` does without it"
    );
    let back = match drive.state == DriveState::Missing && !drive.spec.is_empty() {
        true => format!(
            ". If it is here again with what it held, `pool add {pool} --drive '{name}'` takes it back"
        ),
        false => String::new(),
    };
    Some(match status.rebuilding && member.holds {
        true => format!(
            "drive {name} is {state}, and what it held is being made again on the others. When `work` has no \
             rebuild any more, {replace}{back}"
        ),
        false => format!("drive {name} is {state}: {replace}{back}"),
    })
}

/// Space that only a volume without redundancy could use, if it is worth a word.
fn unmatched_warning(drive: &DriveStatus) -> Option<String> {
    let (unmatched, bytes) = (drive.unmatched_bytes, drive.bytes);
    (unmatched > bytes / LITTLE).then(|| {
        format!(
            "{} of the {} of drive {} cannot be used by volumes that survive the loss of a drive: the other drives \
             together have only {}. Add one, or replace small ones by larger ones",
            readable_bytes(unmatched),
            readable_bytes(bytes),
            drive_name(drive),
            readable_bytes(bytes - unmatched)
        )
    })
}

/// Drives that are nearly alike differ by less than this part of one.
const LITTLE: u64 = 16;

/// Of so many bytes of each drive, what every layout leaves over that has a column on another drive, too: `mirror:2`
/// asks least of the others, and can have as much of the largest as these have together.
pub(super) fn unmatched(sizes: &[u64]) -> Option<u64> {
    let (all, largest) = (sizes.iter().sum::<u64>(), *sizes.iter().max()?);
    let others = all - largest;
    (others > 0 && largest > others).then(|| largest - others)
}

/// How people know a drive.
pub(super) fn drive_name(drive: &DriveStatus) -> String {
    match drive.spec.is_empty() {
        true => drive.id.to_string(),
        false => drive.spec.clone(),
    }
}

/// Volumes that could ask for more than there is.
fn promise_warning(status: &Status, space: &SpaceStatus) -> Option<String> {
    let live = status.volumes.iter().filter(|volume| !volume.deleting);
    let promised: u64 = live.map(|volume| volume.granules * GRANULE).sum();
    (promised > space.advertised_bytes).then(|| {
        format!(
            "the volumes are promised {promised} bytes in all, and the pool can hold {} of them: once \
             it is full, writes fail, to volumes with room of their own, too",
            space.advertised_bytes
        )
    })
}

/// What a loss would mean, where no space is kept for it or none would help.
fn repair_warning(status: &Status) -> Option<String> {
    let staying = status.members.iter().filter(|m| m.in_service && !m.leaving);
    let drives = staying.count();
    let until = "until a drive is added";
    match (status.reserve, status.reserve_can_serve, status.full_width) {
        (Wished::None, _, _) => Some(
            "no space is kept for repair: after the loss of a drive, copies are made again only as \
             far as there is room"
                .to_owned(),
        ),
        (_, false, _) => Some(format!(
            "no space is kept for repair, for with {drives} drives none could serve: what was on a lost \
             drive has no other to go to. After a loss, new data has fewer copies, or narrower stripes, \
             {until}"
        )),
        (_, true, true) => Some(format!(
            "some volumes take all {drives} drives: the space kept for repair cannot serve them. After a \
             loss, their new data has fewer copies, or narrower stripes, {until}"
        )),
        (_, true, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::live;
    use super::super::tests::Room;
    use super::*;
    use crate::control::Control;

    #[test]
    fn what_the_others_cannot_match_is_left_over() {
        for (sizes, left) in [
            (&[][..], None),
            (&[9], None),
            (&[9, 9], None),
            (&[9, 1], Some(8)),
            (&[1, 9, 2], Some(6)),
            (&[4, 9, 5], None),
        ] {
            assert_eq!(unmatched(sizes), left, "{sizes:?}");
        }
    }

    #[test]
    fn advice_about_a_drive_that_does_not_serve_fits_what_is_going_on() {
        let room = Room::new();
        room.tank(2);
        let mut drive = room.manager.pool("tank").expect("there").drives.remove(0);
        let mut status = {
            let pools = room.manager.lock();
            let pool = live(&pools, "tank").expect("in service");
            pool.link.view().expect("a view").status
        };
        let mut removed = false;
        let mut member = status.members[0].clone();
        let said = |status: &Status, drive: &DriveStatus, member: &MemberStatus, removed| {
            let seen = Seen {
                drive,
                member,
                removed,
            };
            way_out(status, &seen).unwrap_or_default()
        };
        let replace = format!("`pool replace tank --old '{}'", drive.spec);
        let back = format!("`pool add tank --drive '{}'` takes it back", drive.spec);
        assert_eq!(said(&status, &drive, &member, removed), "");
        (member.in_service, member.holds, status.degraded) = (false, true, true);
        drive.state = DriveState::Missing;
        let missing = said(&status, &drive, &member, removed);
        let tells = missing.contains("is missing: `pool replace") && missing.contains(&back);
        assert!(tells, "{missing}");
        drive.state = DriveState::Failed;
        let failed = said(&status, &drive, &member, removed);
        assert!(
            failed.contains(&replace) && !failed.contains(&back),
            "{failed}"
        );
        status.rebuilding = true;
        let rebuilt = said(&status, &drive, &member, removed);
        assert!(
            rebuilt.contains("is being made again")
                && rebuilt.contains("no rebuild any more, `pool replace"),
            "{rebuilt}"
        );
        removed = true;
        let replaced = said(&status, &drive, &member, removed);
        let calm =
            replaced.contains("nothing has to be done") && !replaced.contains("pool replace");
        assert!(calm, "{replaced}");
        (status.rebuilding, status.walk) = (false, Some(0.5));
        let stuck = said(&status, &drive, &member, removed);
        assert!(
            stuck.contains("no drive has room for that: `pool add tank"),
            "{stuck}"
        );
        member.returning = true;
        assert_eq!(said(&status, &drive, &member, removed), "");
        drive.state = DriveState::Evacuating;
        drive.errors.read = 1;
        let leaving = [
            drive_warning(&drive).unwrap_or_default(),
            file_advice("tank", &drive),
        ];
        for said in leaving {
            assert!(
                said.contains("being emptied") && !said.contains("replace"),
                "{said}"
            );
        }
    }
}
