//! Roots whose checksum is right and whose contents are not.

use super::samples::*;
use crate::format::*;
use crate::sizes::GRANULE;

/// Why a root with a change is neither written nor (by the same rules) read.
fn root_with(change: impl Fn(&mut Root)) -> String {
    let mut root = root();
    change(&mut root);
    refusal(root.encode(SALT))
}

/// Why a root with `value` at `at` is not read.
fn root_bytes_with(at: usize, value: &[u8]) -> String {
    let mut bytes = root().encode(SALT).unwrap();
    bytes[at..at + value.len()].copy_from_slice(value);
    SALT.seal(&mut bytes, 12);
    refusal(Root::decode(&bytes, SALT))
}

#[test]
fn roots_that_refer_to_nothing() {
    let no_member = "unusable root: a copy is on no member, or behind its end";
    assert_eq!(
        root_with(|root| root.ring.chunks[2].copies[1].drive = 2),
        no_member
    );
    assert_eq!(
        root_with(|root| root.map.chunks[0].copies[0].extent = 1000),
        no_member
    );
    assert_eq!(
        root_with(|root| root.meta[0].columns[0].drive = 9),
        no_member
    );
    let twice = "unusable root: two copies are on one drive";
    assert_eq!(
        root_with(|root| root.map.chunks[1].copies[1].drive = 0),
        twice
    );
    let nowhere = "unusable root: a page in no metadata segment";
    assert_eq!(root_with(|root| root.meta[0].id = 8), nowhere);
}

#[test]
fn roots_out_of_bounds() {
    let members = "unusable root: the number of members is out of bounds";
    assert_eq!(root_with(|root| root.members.clear()), members);
    let member = |id: usize| Member {
        drive: uuid::Uuid::from_u128(id as u128),
        ..root().members[0]
    };
    assert_eq!(
        root_with(|root| root.members = (0..65).map(member).collect()),
        members
    );
    assert_eq!(
        root_with(|root| root.members = (0..64).map(member).collect()),
        "accepted"
    );
    let chunks = "unusable root: the number of chunks is out of bounds";
    assert_eq!(root_with(|root| root.ring.chunks.clear()), chunks);
    let chunk = Chunk {
        copies: copies(&[(0, 1)]),
    };
    assert_eq!(
        root_with(|root| root.ring.chunks = vec![chunk.clone(); 1025]),
        chunks
    );
    assert_eq!(
        root_with(|root| root.ring.chunks = vec![chunk.clone(); 1024]),
        "accepted"
    );
    let number = "unusable root: the number of copies is out of bounds";
    assert_eq!(root_with(|root| root.ring.chunks[0].copies.clear()), number);
    let terms = "unusable root: the number of terms is out of bounds";
    assert_eq!(root_with(|root| root.map.terms.clear()), terms);
    let start = |at: u64| TermStart {
        term: at,
        first_batch: at,
    };
    let with_terms = |count| {
        root_with(|root| {
            root.term = 100;
            root.map.terms = (0..count).map(start).collect();
        })
    };
    assert_eq!(with_terms(65), terms);
    assert_eq!(with_terms(64), "accepted");
    let segment = |id| MetaSegment {
        id,
        columns: copies(&[(0, 1), (1, 1)]),
    };
    let meta = |count: u32| root_with(|root| root.meta = (7..7 + count).map(segment).collect());
    assert_eq!(meta(10_000), "accepted");
    assert_eq!(meta(12_000), "unusable root: it has outgrown its place");
}

#[test]
fn roots_that_contradict_themselves() {
    for (text, change) in [
        (
            "a drive is two members",
            (|root| root.members[1].drive = root.members[0].drive) as fn(&mut Root),
        ),
        ("its map sequence is above its next sequence", |root| {
            root.map_sequence = 5001
        }),
        ("a log of a later term", |root| root.term = 2),
        ("a log's terms are out of order", |root| {
            root.ring.terms.reverse()
        }),
        ("a log's terms are out of order", |root| {
            root.ring.terms[0].first_batch = 41
        }),
        ("two metadata segments of one number", |root| {
            root.meta.push(root.meta[0].clone())
        }),
        ("two places of one page", |root| {
            root.tops.push(root.tops[0])
        }),
        (
            "its generation 9223372036854775808 is out of bounds",
            |root| root.generation = 1 << 63,
        ),
    ] {
        assert_eq!(root_with(change), format!("unusable root: {text}"));
    }
}

#[test]
fn root_bytes_that_claim_too_much() {
    let short = "unusable root: too short";
    let version = "unusable root: format version 2; this program reads version 1";
    assert_eq!(root_bytes_with(8, &[2]), version);
    assert_eq!(root_bytes_with(16, &[0, 0x20]), "unusable root: cut short");
    assert_eq!(
        root_bytes_with(16, &[0; 4]),
        "unusable root: its length is out of bounds"
    );
    assert_eq!(
        root_bytes_with(16, &[0xff; 4]),
        "unusable root: its length is out of bounds"
    );
    assert_eq!(
        root_bytes_with(20, &[65]),
        "unusable root: too many members"
    );
    assert_eq!(
        root_bytes_with(72, &[0xff; 4]),
        "unusable root: too many copies"
    );
    assert_eq!(root_bytes_with(76, &[0xff; 4]), short);
    assert_eq!(
        root_bytes_with(80, &[0xff; 4]),
        "unusable root: too many chunks"
    );
    assert_eq!(
        root_bytes_with(84, &[0xff; 4]),
        "unusable root: too many terms"
    );
    assert_eq!(
        root_bytes_with(112, &[0, 4]),
        "unusable root: too many copies"
    );
    assert_eq!(
        root_bytes_with(22, &[4]),
        "unusable root: unknown reserve 4 of 0"
    );
    assert_eq!(
        root_bytes_with(108, &[1]),
        "unusable root: unknown reserve 0 of 1"
    );
    assert_eq!(
        root_bytes_with(4095, &[1]),
        "unusable root: its padding must be zero"
    );
    assert_eq!(
        root_bytes_with(164, &[4]),
        "unusable root: unknown state 4 of a member"
    );
    let mut longer = root().encode(SALT).unwrap();
    longer.resize(2 * GRANULE, 0);
    longer[16..20].copy_from_slice(&(2 * GRANULE as u32).to_le_bytes());
    SALT.seal(&mut longer, 12);
    let padded = "unusable root: its length is not that of its parts";
    assert_eq!(refusal(Root::decode(&longer, SALT)), padded);
}

/// Why a newer program's root is not read that has these features.
fn root_named(entries: &[&[u8; 16]]) -> (String, bool) {
    let mut bytes = root().encode(SALT).unwrap();
    bytes[10] = entries.len() as u8;
    // Whatever else has changed.
    bytes[20..24].fill(0xff);
    let at = bytes.len() - 16 * entries.len();
    let entries: Vec<u8> = entries.iter().copied().flatten().copied().collect();
    bytes[at..].copy_from_slice(&entries);
    SALT.seal(&mut bytes, 12);
    let newer = Root::is_of_another_version(&bytes, SALT);
    (refusal(Root::decode(&bytes, SALT)), newer)
}

#[test]
fn roots_with_features_of_newer_programs() {
    let replicas = b"\0replicas\0\0\0\0\0\0\0";
    let dedup = b"\x03dedup\0\0\0\0\0\0\0\0\0\0";
    let lacking = "unusable root: it needs features that this program lacks: dedup (bit 3)";
    assert_eq!(root_named(&[replicas, dedup]), (lacking.to_owned(), true));
    let malformed = "unusable root: its list of features is malformed";
    assert_eq!(root_named(&[dedup, replicas]), (malformed.to_owned(), true));
    assert_eq!(root_named(&[dedup, dedup]), (malformed.to_owned(), true));
    let beyond = b"\x40dedup\0\0\0\0\0\0\0\0\0\0";
    assert_eq!(root_named(&[beyond]), (malformed.to_owned(), true));
    assert_eq!(root_bytes_with(10, &[0xff, 0xff]), malformed);
    // What this program knows is no reason, and what does not verify says nothing.
    let members = "unusable root: too many members";
    assert_eq!(root_named(&[replicas]), (members.to_owned(), false));
    let mut bytes = root().encode(SALT).unwrap();
    bytes[8] = 2;
    assert!(!Root::is_of_another_version(&bytes, SALT));
    SALT.seal(&mut bytes, 12);
    assert!(Root::is_of_another_version(&bytes, SALT));
}

/// The names take what room they need behind the parts, and none of it is padding.
#[test]
fn a_root_s_features_never_overlap_its_parts() {
    let features: Features = Feature::ALL.into_iter().collect();
    for tops in 100..130u32 {
        let mut root = root();
        root.features = features;
        root.tops = (0..tops)
            .map(|index| TopEntry {
                index,
                ..root.tops[0]
            })
            .collect();
        let bytes = root.encode(SALT).unwrap();
        assert_eq!(Root::decode(&bytes, SALT), Ok(root));
    }
}
