//! When a pool is nearly full.

use ashlar_store::HomeStatus;

/// Below this share of what a layout holds and could hold, it is nearly full.
const LITTLE: f64 = 0.10;
/// From this share on it is not any more: what comes and goes in between is told once.
const ENOUGH: f64 = 0.12;

/// What a layout can still take, in bytes counted once.
pub fn room_of(home: &HomeStatus) -> u64 {
    home.free_bytes + home.growth_bytes
}

/// Its homes, with those that are one volume's hot homes among others of their layout and drives.
pub fn merged(homes: &[HomeStatus]) -> Vec<HomeStatus> {
    let mut merged: Vec<HomeStatus> = Vec::new();
    let is_hot = |home: &&HomeStatus| home.hot_of.is_some();
    let (hot, others): (Vec<&HomeStatus>, Vec<&HomeStatus>) = homes.iter().partition(is_hot);
    for home in others.into_iter().chain(hot) {
        let is_alike = |other: &&mut HomeStatus| {
            let theirs = (other.layout, other.grain, other.class);
            home.hot_of.is_some() && theirs == (home.layout, home.grain, home.class)
        };
        match merged.iter_mut().find(is_alike) {
            Some(other) => other.used_bytes += home.used_bytes,
            None => merged.push(*home),
        }
    }
    merged
}

fn has_less(home: &HomeStatus, share: f64) -> bool {
    let room = room_of(home);
    // A hot home that is full stops nothing.
    home.hot_of.is_none()
        && home.used_bytes > 0
        && (room as f64) < (home.used_bytes + room) as f64 * share
}

/// Of the layouts that hold something and are nearly full, the one with the least room.
pub fn scarcest(homes: &[HomeStatus]) -> Option<&HomeStatus> {
    let scarce = homes.iter().filter(|home| has_less(home, LITTLE));
    scarce.min_by_key(|home| room_of(home))
}

/// Whether a pool that was nearly full is so no more.
pub(super) fn is_over(homes: &[HomeStatus]) -> bool {
    !homes.iter().any(|home| has_less(home, ENOUGH))
}

#[cfg(test)]
mod tests {
    use ashlar_store::{Grain, Layout};

    use super::*;

    fn home(used_bytes: u64, free_bytes: u64) -> HomeStatus {
        HomeStatus {
            layout: Layout::Mirror { copies: 2 },
            grain: Grain::K64,
            class: None,
            hot_of: None,
            used_bytes,
            free_bytes,
            growth_bytes: 0,
        }
    }

    #[test]
    fn hot_homes_are_shown_among_others_of_their_kind() {
        let hot = |hot_of, class| HomeStatus {
            hot_of: Some(hot_of),
            class,
            ..home(100, 50)
        };
        let fast = Some(ashlar_store::format::DriveClass::Nvme);
        let shown = merged(&[hot(16, None), home(10, 1000), hot(17, fast), hot(18, fast)]);
        let used: Vec<u64> = shown.iter().map(|home| home.used_bytes).collect();
        assert_eq!(used, [110, 200]);
        assert_eq!(room_of(&shown[0]), 1000);
        assert_eq!(scarcest(&[hot(16, None)]), None);
    }

    #[test]
    fn little_room_is_told_and_its_end_somewhat_later() {
        let cases = [
            ((0, 0), None, true),
            ((900, 100), None, false),
            ((901, 99), Some(99), false),
            ((1000, 0), Some(0), false),
            ((880, 120), None, true),
        ];
        for ((used, free), scarce, over) in cases {
            let homes = [home(10, 1000), home(used, free)];
            assert_eq!(scarcest(&homes).map(room_of), scarce, "{used} {free}");
            assert_eq!(is_over(&homes), over, "{used} {free}");
        }
    }
}
