//! On which class of drives a cache lies that names none.

use ashlar_store::format::DriveClass;
use ashlar_store::{Layout, MemberStatus};

/// In a pool of several classes the fastest that has so much room, if there is one.
pub(super) fn fastest(members: &[MemberStatus], layout: Layout, needed: u64) -> Option<DriveClass> {
    let free = |class: DriveClass| -> Vec<u64> {
        let ours = members
            .iter()
            .filter(|one| one.in_service && !one.leaving && one.class == Some(class));
        ours.map(|one| one.bytes.saturating_sub(one.used_bytes))
            .collect()
    };
    let there = DriveClass::ALL.map(|class| (class, free(class)));
    let is_there = |free: &Vec<u64>| !free.is_empty();
    if there.iter().filter(|(_, free)| is_there(free)).count() < 2 {
        return None;
    }
    let mut fits = there.into_iter();
    let fits = fits.find(|(_, free)| room(free, layout) >= needed);
    fits.map(|(class, _)| class)
}

/// How much drives with so much free hold in a layout, each column of a slot on another drive.
fn room(free: &[u64], layout: Layout) -> u64 {
    let columns = layout.drives();
    let mut free = free.to_vec();
    free.sort_unstable_by(|a, b| b.cmp(a));
    // The largest drives may have a column each throughout; the others share the rest.
    let of_rest = |largest: usize| {
        let rest = free.iter().skip(largest).sum::<u64>();
        rest / (columns - largest) as u64
    };
    let column = (0..columns).map(of_rest).min().unwrap_or(0);
    let data = columns - usize::from(layout.survives());
    column * data as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIRROR: Layout = Layout::Mirror { copies: 2 };

    fn drive(class: DriveClass, free: u64) -> MemberStatus {
        MemberStatus {
            drive: uuid::Uuid::nil(),
            class: Some(class),
            in_service: true,
            returning: false,
            reason: None,
            bytes: 1000 + free,
            used_bytes: 1000,
            leaving: false,
            holds: true,
            holds_homes: true,
            bad_copies: 0,
            replies: Default::default(),
            wait: None,
        }
    }

    #[test]
    fn a_cache_lies_on_the_fastest_class_with_room_for_it() {
        use DriveClass::{Hdd, Nvme, Ssd};
        let mut pool = vec![
            drive(Hdd, 9000),
            drive(Nvme, 100),
            drive(Hdd, 9000),
            drive(Ssd, 500),
            drive(Nvme, 100),
            drive(Ssd, 600),
        ];
        let found = |pool: &[MemberStatus], needed| fastest(pool, MIRROR, needed);
        assert_eq!(found(&pool, 100), Some(Nvme));
        assert_eq!(found(&pool, 101), Some(Ssd));
        assert_eq!(found(&pool, 501), Some(Hdd));
        assert_eq!(found(&pool, 9001), None);
        // One drive of it takes nothing more.
        pool[1].leaving = true;
        assert_eq!(found(&pool, 100), Some(Ssd));
        pool[3].in_service = false;
        assert_eq!(found(&pool, 100), Some(Hdd));
        // There is nothing to choose.
        assert_eq!(found(&[pool[0].clone(), pool[2].clone()], 1), None);
    }

    #[test]
    fn what_drives_hold_is_what_has_its_columns_on_different_ones() {
        let parity = Layout::Parity { data: 2, parity: 1 };
        for (free, layout, expected) in [
            (&[100, 100][..], MIRROR, 100),
            (&[1000, 100], MIRROR, 100),
            (&[100, 60, 40], MIRROR, 100),
            (&[100], MIRROR, 0),
            (&[], MIRROR, 0),
            (&[50, 50, 50], parity, 100),
            (&[500, 50, 50], parity, 100),
        ] {
            assert_eq!(room(free, layout), expected, "{free:?}");
        }
    }
}
