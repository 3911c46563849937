//! An fsync of a file is a flush of the volume, after the data.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::common::can_attach;
use crate::rig::Rig;

const SYNCS: usize = 20;

/// Lines of the trace: kind, offset, length.
fn trace(rig: &Rig) -> Vec<(String, u64, u64)> {
    let text = fs::read_to_string(rig.path("trace")).expect("a trace");
    text.lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words.len(), 4, "{line}");
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            assert!(number(0) > 0);
            (words[1].to_owned(), number(2), number(3))
        })
        .collect()
}

fn sync_often(rig: &Rig) {
    let path = rig.path("mnt/file");
    fs::write(&path, vec![1; 1 << 20]).expect("written");
    let file = OpenOptions::new().write(true).open(&path).expect("a file");
    file.sync_all().expect("synced");
    let flushes =
        |trace: &[(String, u64, u64)]| trace.iter().filter(|(kind, ..)| kind == "flush").count();
    for round in 0..SYNCS {
        let before = trace(rig);
        file.write_all_at(&[round as u8; 8192], 65536 * round as u64 % (1 << 20))
            .expect("written");
        file.sync_all().expect("synced");
        let after = trace(rig);
        assert!(
            flushes(&after) > flushes(&before),
            "fsync {round} was no flush"
        );
        // The data went before the last flush.
        let rest = &after[before.len()..];
        let data = rest
            .iter()
            .position(|(kind, _, length)| kind == "write" && *length >= 8192);
        let flush = rest.iter().rposition(|(kind, ..)| kind == "flush");
        assert!(data.is_some() && data < flush, "fsync {round}: {rest:?}");
    }
}

#[test]
fn every_fsync_is_a_flush_after_its_data() {
    if !can_attach() {
        return;
    }
    // A device with a cache needs flushes; a volume of a pool gets them if that is asked for.
    let (rig, url) = Rig::bare();
    let trace = rig.path("trace").display().to_string();
    rig.attach(&url, &["--fs", "xfs", "--trace", &trace]);
    sync_often(&rig);
    rig.detach();
    let rig = Rig::new("320MiB");
    let trace = rig.path("trace").display().to_string();
    rig.attach(
        "tank/db",
        &["--fs", "ext4", "--trace", &trace, "--always-flush"],
    );
    sync_often(&rig);
    rig.detach();
    rig.is_clean();
}
