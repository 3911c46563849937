//! Volumes whose maps, full, would outgrow the pool's root.

use crate::common::{Bench, fill};
use ashlar_block::ErrorKind;
use ashlar_store::{Grain, Layout, Manage, ReplicaIdentity};
use uuid::Uuid;

/// Granules of a GiB.
const GIB: u64 = 1 << 18;
const MIRROR: Layout = Layout::Mirror { copies: 2 };

/// What a refusal says that a volume can have at most, in GiB.
fn most(error: &ashlar_block::IoError) -> u64 {
    assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
    let text = error.to_string();
    let (_, rest) = text.split_once("it can have ").expect(&text);
    rest.split(' ').next().unwrap().parse().expect(&text)
}

#[test]
fn volumes_are_made_and_enlarged_as_far_as_the_root_has_room() {
    let mut bench = Bench::new(2, 32 << 20);
    let first = bench.volume_as(GIB, MIRROR).unwrap();
    let limit = most(&bench.volume_as(8192 * GIB, MIRROR).unwrap_err());
    assert!((500..5000).contains(&limit), "{limit}");
    assert_eq!(
        most(&bench.volume_as((limit + 1) * GIB, MIRROR).unwrap_err()),
        limit
    );
    let second = bench.volume_as(limit * GIB, MIRROR).unwrap();
    let resize = |bench: &mut Bench, volume, gib: u64| {
        let granules = gib * GIB;
        bench.manage(Manage::ResizeVolume { volume, granules })
    };
    assert_eq!(
        most(&resize(&mut bench, second, limit + 1).unwrap_err()),
        limit
    );
    // The planes of a copy need pages, too.
    let make = Manage::MakeReplica {
        volume: second,
        identity: ReplicaIdentity {
            position: 0,
            uuid: Uuid::from_u128(77),
        },
        granules: None,
    };
    assert!(most(&bench.manage(make).unwrap_err()) < limit);
    // What needs none of the map is made, and the pool goes on.
    bench.volume_as(64, Layout::Stripe { columns: 2 }).unwrap();
    for at in [0, 700, limit * GIB - 3] {
        bench.write(second, at, &fill(3, 1)).unwrap();
    }
    bench.manage(Manage::Drain).unwrap();
    let mut bench = bench.restart();
    assert_eq!(bench.read(second, limit * GIB - 3, 3).unwrap(), fill(3, 1));
    // What one gives back another may have.
    resize(&mut bench, second, limit / 2).unwrap();
    resize(&mut bench, first, limit / 4).unwrap();
    bench
        .write(first, limit / 4 * GIB - 1, &fill(1, 2))
        .unwrap();
    assert_eq!(bench.read(second, 700, 3).unwrap(), fill(3, 1));
}

#[test]
fn what_is_asked_for_at_once_counts_together() {
    let mut bench = Bench::new(2, 32 << 20);
    let volumes = [0, 1].map(|_| bench.volume_as(GIB, MIRROR).unwrap());
    let limit = most(&bench.volume_as(8192 * GIB, MIRROR).unwrap_err());
    let wish = |volume| Manage::ResizeVolume {
        volume,
        granules: limit * 3 / 4 * GIB,
    };
    let answers = bench.manage_together(volumes.map(wish));
    let done: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(done, [true, false], "{answers:?}");
}

#[test]
fn what_a_deleted_volume_has_left_is_cleared_away_for_another() {
    let mut bench = Bench::new(2, 64 << 20);
    let limit = most(&bench.volume_as(8192 * GIB, MIRROR).unwrap_err());
    let small = Some(Grain::K8);
    // Most of the map stays, or it would shrink and be brought to pages for that.
    let size = limit / 10;
    let sizes = [limit - size, size];
    let [_, volume] = sizes.map(|size| {
        let volume = bench.volume_of(size * GIB, MIRROR, small).unwrap();
        // A leaf here and there: their tables are what there is most of.
        for at in (0..size * GIB).step_by(GIB as usize) {
            bench.write(volume, at, &fill(1, 1)).unwrap();
        }
        volume
    });
    bench.manage(Manage::Drain).unwrap();
    bench.manage(Manage::DeleteVolume { volume }).unwrap();
    let error = bench.volume_as(size * GIB, MIRROR).unwrap_err();
    assert!(error.to_string().contains("cleared away"), "{error}");
    let again = bench.volume_as(size * GIB, MIRROR).unwrap();
    bench.write(again, 0, &fill(1, 2)).unwrap();
}
