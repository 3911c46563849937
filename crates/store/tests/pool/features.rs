//! Features of the format: named in labels and roots before they are used, and refused by their names.

use crate::common::{Bench, Medium, SALT, fill};
use ashlar_block::{ErrorKind, Moment};
use ashlar_store::format::{Feature, Features, Label, Root};
use ashlar_store::sizes::{LABEL_AT, ROOT_AT, ROOT_BYTES};
use ashlar_store::{
    Drives, HotTier, ImportOptions, Layout, Manage, Managed, PoolError, ReplicaIdentity, Share,
    VolumePlan, missing_members,
};
use uuid::Uuid;

/// Labels, or roots, of the pool.
const COPIES: usize = 6;
const MIRROR: Layout = Layout::Mirror { copies: 2 };

fn new_pool() -> Bench {
    Bench::new(COPIES / 2, 32 << 20)
}

fn only(feature: Feature) -> Features {
    Features::NONE.with(feature)
}

fn all() -> Features {
    Feature::ALL.into_iter().collect()
}

fn bytes_at(medium: &Medium, at: u64, bytes: u64) -> Vec<u8> {
    medium.borrow()[at as usize..(at + bytes) as usize].to_vec()
}

fn put(medium: &Medium, at: u64, bytes: &[u8]) {
    medium.borrow_mut()[at as usize..][..bytes.len()].copy_from_slice(bytes);
}

fn root_at(medium: &Medium, at: u64) -> Option<Root> {
    Root::decode(&bytes_at(medium, at, ROOT_BYTES), SALT).ok()
}

fn label_at(medium: &Medium, at: u64) -> Label {
    let label = Label::decode(&bytes_at(medium, at, Label::BYTES as u64));
    label.expect("a sound one").expect("a label")
}

/// What each root says, of all drives.
fn named(media: &[Medium]) -> Vec<Features> {
    let root = |medium, at| root_at(medium, at).map_or(Features::NONE, |root| root.features);
    let both = media.iter().flat_map(|one| ROOT_AT.map(|at| root(one, at)));
    both.collect()
}

/// What each label says.
fn labelled(media: &[Medium]) -> Vec<Features> {
    let label = |medium, at| label_at(medium, at).features;
    let both = media
        .iter()
        .flat_map(|one| LABEL_AT.map(|at| label(one, at)));
    both.collect()
}

fn hot(copies: u8) -> Option<HotTier> {
    let share = Share::of_percent(20).expect("a share");
    Some(HotTier {
        copies,
        class: None,
        share,
    })
}

/// The order that brings the first byte of a feature; there is a volume already.
fn first_use(bench: &Bench, feature: Feature, volume: u32) -> Manage {
    let plan = bench.plan(64, MIRROR);
    match feature {
        Feature::Replicas => Manage::MakeReplica {
            volume,
            identity: ReplicaIdentity {
                position: 0,
                uuid: Uuid::from_u128(77),
            },
            granules: None,
        },
        Feature::Tiers => Manage::CreateVolume(VolumePlan {
            layout: Layout::Parity { data: 2, parity: 1 },
            hot: hot(2),
            ..plan
        }),
        Feature::Caches => Manage::CreateVolume(VolumePlan {
            is_cache: true,
            ..plan
        }),
    }
}

fn uses(bench: &Bench, feature: Feature) -> bool {
    let volumes = bench.engine.volumes();
    match feature {
        Feature::Replicas => !bench.engine.replicas().list().is_empty(),
        Feature::Tiers => volumes.iter().any(|volume| volume.tier.is_some()),
        Feature::Caches => volumes.iter().any(|volume| volume.is_cache),
    }
}

fn using_all() -> Bench {
    let mut bench = new_pool();
    let volume = bench.volume(64, 2);
    for feature in Feature::ALL {
        let wish = first_use(&bench, feature, volume);
        bench.manage(wish).expect("used");
    }
    bench
}

#[test]
fn a_pool_that_uses_none_names_none() {
    let mut bench = new_pool();
    let volume = bench.volume(512, 2);
    bench.write(volume, 0, &fill(40, 1)).expect("written");
    bench.manage(Manage::Drain).expect("settled");
    // What is refused is not used either.
    let identity = ReplicaIdentity {
        position: 9,
        uuid: Uuid::from_u128(1),
    };
    let refused = bench.manage(Manage::MakeReplica {
        volume,
        identity,
        granules: None,
    });
    refused.expect_err("no such position");
    let plan = VolumePlan {
        hot: hot(2),
        ..bench.plan(64, MIRROR)
    };
    let refused = bench.manage(Manage::CreateVolume(plan));
    refused.expect_err("no faster than the volume");
    let mut bench = bench.restart();
    bench.manage(Manage::Drain).expect("settled");
    assert_eq!(bench.engine.status().features, Features::NONE);
    assert_eq!(named(&bench.media), [Features::NONE; COPIES]);
    for (medium, at) in bench
        .media
        .iter()
        .flat_map(|one| LABEL_AT.map(|at| (one, at)))
    {
        let label = bytes_at(medium, at, Label::BYTES as u64);
        assert!(label[16..24].iter().chain(&label[160..]).all(|&b| b == 0));
    }
    for (medium, at) in bench
        .media
        .iter()
        .flat_map(|one| ROOT_AT.map(|at| (one, at)))
    {
        assert_eq!(bytes_at(medium, at + 8, 4), [1, 0, 0, 0]);
    }
}

/// The node dies after each request to a drive in turn.
#[test]
fn both_roots_name_a_feature_before_its_first_byte_is_written() {
    for feature in Feature::ALL {
        // Roots that do not name it all, roots that do though it is not used, and its use.
        let mut seen = [0; 3];
        for budget in 0..60 {
            let mut bench = new_pool();
            let volume = bench.volume(64, 2);
            let wish = first_use(&bench, feature, volume);
            bench.manage_cut(wish, budget);
            let media = bench.media.clone();
            drop(bench);
            let named = named(&media);
            let is_named = named == [only(feature); COPIES];
            let bench = Bench::open(media);
            let is_used = uses(&bench, feature);
            assert!(
                is_named || !is_used,
                "{feature:?} is used after {budget} requests, and the roots say {named:?}"
            );
            let begun = named.iter().any(|one| !one.is_empty());
            seen[0] += usize::from(begun && !is_named);
            seen[1] += usize::from(is_named && !is_used);
            seen[2] += usize::from(is_used);
            // What has been said is not taken back.
            let status = bench.engine.status().features;
            assert!(!begun || status == only(feature), "{feature:?}, {budget}");
        }
        assert!(seen.iter().all(|&count| count > 0), "{feature:?}: {seen:?}");
    }
}

/// Two orders at once need two features, and a stopped engine answers those that wait.
#[test]
fn orders_that_wait_are_answered() {
    let mut bench = new_pool();
    let volume = bench.volume(64, 2);
    let wishes = Feature::ALL.map(|feature| first_use(&bench, feature, volume));
    // They would have one name.
    let [replica, Manage::CreateVolume(tier), cache] = wishes else {
        panic!("another order");
    };
    let tier = Manage::CreateVolume(VolumePlan {
        name: "tier".into(),
        ..tier
    });
    for answer in bench.manage_together([replica, tier, cache]) {
        answer.expect("done");
    }
    assert_eq!(bench.engine.status().features, all());
    assert_eq!(named(&bench.media), [all(); COPIES]);

    let mut bench = new_pool();
    bench.may_fail = true;
    for faults in &bench.seen.faults[..COPIES / 2] {
        faults.set(Some((|_| true, ErrorKind::Media)));
    }
    let wish = first_use(&bench, Feature::Caches, 0);
    let error = bench.manage(wish).expect_err("no drive is left");
    assert_eq!(error.kind(), ErrorKind::Latched);
}

#[test]
fn labels_follow_with_the_next_import_and_with_drives_that_join() {
    let bench = using_all();
    assert_eq!(labelled(&bench.media), [Features::NONE; COPIES]);
    let mut bench = bench.restart();
    assert_eq!(labelled(&bench.media), [all(); COPIES]);
    bench.add_drive(32 << 20);
    assert_eq!(labelled(&bench.media), [all(); COPIES + 2]);
    // One copy that was not written before a crash is written by the next import.
    let media = bench.media.clone();
    let mut label = label_at(&media[1], LABEL_AT[1]);
    label.features = Features::NONE;
    put(&media[1], LABEL_AT[1], &label.encode());
    let bench = bench.restart();
    assert_eq!(labelled(&bench.media), [all(); COPIES + 2]);
}

/// A program from before features used all of them without a word.
#[test]
fn a_pool_from_before_features_is_imported_and_names_what_it_uses() {
    let mut bench = using_all();
    bench.write(16, 0, &fill(20, 3)).expect("written");
    let media = bench.media.clone();
    drop(bench);
    for (medium, at) in media.iter().flat_map(|one| ROOT_AT.map(|at| (one, at))) {
        let mut root = root_at(medium, at).expect("a root");
        root.features = Features::NONE;
        put(medium, at, &root.encode(SALT).expect("encoded"));
    }
    assert_eq!(named(&media), [Features::NONE; COPIES]);
    let mut bench = Bench::open(media.clone());
    assert_eq!(bench.engine.status().features, all());
    assert!(Feature::ALL.iter().all(|&feature| uses(&bench, feature)));
    assert_eq!(bench.read(16, 0, 20).expect("read"), fill(20, 3));
    bench.pass(0);
    assert_eq!(named(&media), [all(); COPIES]);
    assert_eq!(labelled(&media), [all(); COPIES]);
}

/// Deleting what uses a feature takes nothing back: records of it may be in the logs, and its number is never used again.
#[test]
fn features_stay_when_what_used_them_is_gone() {
    let mut bench = new_pool();
    let plain = bench.volume(64, 2);
    let wish = first_use(&bench, Feature::Tiers, plain);
    let Ok(Managed::Volume(volume)) = bench.manage(wish) else {
        panic!("no volume");
    };
    bench.manage(Manage::DeleteVolume { volume }).expect("gone");
    bench.manage(Manage::Drain).expect("settled");
    let bench = bench.restart();
    assert_eq!(bench.engine.status().features, only(Feature::Tiers));
}

/// A root or label as a newer program writes it, with a feature that it calls `dedup`.
fn newer(bytes: &mut [u8], count_at: usize, entry_at: usize) {
    bytes[count_at] |= match count_at {
        10 => 1,
        _ => 1 << 3,
    };
    bytes[entry_at..entry_at + 16].copy_from_slice(b"\x03dedup\0\0\0\0\0\0\0\0\0\0");
}

fn seal(bytes: &mut [u8], salt: ashlar_store::format::Salt) {
    bytes[12..16].fill(0);
    let crc = salt.crc(bytes);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
}

#[track_caller]
fn refused(media: &[Medium], why: &str) {
    let before: Vec<Vec<u8>> = media.iter().map(|one| one.borrow().clone()).collect();
    for degraded in [false, true] {
        let options = ImportOptions {
            degraded,
            ..ImportOptions::default()
        };
        let refusal = Bench::open_with(media.to_vec(), &options).err();
        let refusal = refusal.map(|error| error.to_string()).unwrap_or_default();
        assert!(refusal.contains(why), "{refusal:?} is not {why:?}");
    }
    let now = media.iter().map(|one| one.borrow().clone());
    assert!(now.eq(before), "something was changed");
}

#[test]
fn a_root_of_a_newer_program_is_refused_by_its_feature_s_name() {
    for (drive, slot) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut bench = new_pool();
        let volume = bench.volume(64, 2);
        bench.write(volume, 0, &fill(1, 1)).expect("written");
        let media = bench.media.clone();
        drop(bench);
        let mut root = bytes_at(&media[drive], ROOT_AT[slot], 4096);
        newer(&mut root, 10, 4096 - 16);
        seal(&mut root, SALT);
        put(&media[drive], ROOT_AT[slot], &root);
        let why = format!(
            "drive {drive} of pool tank: unusable root: it needs features that this program lacks: dedup (bit 3)"
        );
        refused(&media, &why);
        let mut drives = Drives::new(
            media.iter().map(Bench::device).collect(),
            Box::new(|| Moment::ORIGIN),
        );
        let missing = missing_members(&mut drives);
        assert!(matches!(missing, Err(PoolError::Refused(_))), "{missing:?}");
    }
}

#[test]
fn a_label_of_a_newer_program_is_refused_by_its_feature_s_name() {
    let bench = using_all().restart();
    let media = bench.media.clone();
    drop(bench);
    for (medium, at) in media.iter().flat_map(|one| LABEL_AT.map(|at| (one, at))) {
        let mut label = bytes_at(medium, at, Label::BYTES as u64);
        newer(&mut label, 16, 3072 + 3 * 16);
        seal(&mut label, ashlar_store::format::Salt(0));
        put(medium, at, &label);
    }
    refused(
        &media,
        "unusable label: it needs features that this program lacks: dedup (bit 3)",
    );
}
