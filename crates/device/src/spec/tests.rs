use ashlar_block::{BlockRange, BlockSize, Durability};
use proptest::prelude::*;

use super::*;
use crate::media::Level;
use crate::testing::Bench;
use crate::{DEFAULT_CHUNK_BYTES, OpenErrorKind};

fn spec(text: &str) -> Spec {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    let error = text.parse::<Spec>().expect_err(text);
    assert_eq!(error.kind(), OpenErrorKind::Usage);
    error.to_string()
}

#[test]
fn every_kind_parses() {
    assert_eq!(spec("memory:512MiB"), Spec::Memory(512 << 20));
    assert_eq!(spec("null:1TiB"), Spec::Null(1 << 40, NullReads::Zeroes));
    assert_eq!(
        spec("null:1t?reads=untouched"),
        Spec::Null(1 << 40, NullReads::Untouched)
    );
    let plain = |path: &str| Spec::File(FileOptions::new(path));
    for text in ["file:/a", "/a", "[/a]", "[[file:/a]]"] {
        assert_eq!(spec(text), plain("/a"));
    }
    assert_eq!(spec("file:data"), plain("data"));
    let Spec::File(file) = spec("/a b?size=4GiB&direct=off&share=on&allocate=off") else {
        panic!("a file")
    };
    assert_eq!(file.path.to_str(), Some("/a b"));
    assert_eq!(file.size, Some(4 << 30));
    assert_eq!(
        (file.direct, file.share, file.allocate),
        (false, true, false)
    );
    let recording = Recording {
        limit: 1 << 20,
        reads: true,
        ..Recording::to("/t")
    };
    assert_eq!(
        spec("/a?record-limit=1m&record=/t&record-reads=on"),
        Spec::Recorded(recording, Box::new(plain("/a")))
    );
    let pair = vec![plain("/a"), plain("/b")];
    assert_eq!(
        spec("stripe:file:/a,file:/b"),
        Spec::Stripe(DEFAULT_CHUNK_BYTES, pair.clone())
    );
    assert_eq!(
        spec("stripe:chunk=1m,/a,/b"),
        Spec::Stripe(1 << 20, pair.clone())
    );
    let url = "nvme-tcp://[::1]:4420/nqn.2026-01.io.example:a,b?ns=1";
    assert_eq!(spec(url), Spec::Remote(url.into()));
    let nested = spec(
        "stripe:[stripe:/a,/b],hdd:/c,[hdd:write-cache=off,model=fast,/d],nvme-tcp://[::1]:1/n",
    );
    let Spec::Stripe(_, children) = &nested else {
        panic!("a stripe")
    };
    assert_eq!(children.len(), 4);
    assert_eq!(children[0], Spec::Stripe(DEFAULT_CHUNK_BYTES, pair));
    let fast = DiskModel {
        cached_writes: 0,
        ..DiskModel::FAST
    };
    assert_eq!(children[2], Spec::Disk(fast, Box::new(plain("/d"))));
    let paths: Vec<_> = nested
        .paths()
        .iter()
        .map(|p| p.display().to_string())
        .collect();
    assert_eq!(paths, ["/a", "/b", "/c", "/d"]);
    let image = RbdName {
        pool: "fast".to_owned(),
        image: "db".to_owned(),
        conf: Some("/etc/c.conf".into()),
        id: None,
    };
    assert_eq!(spec("rbd:fast/db?conf=/etc/c.conf"), Spec::Rbd(image));
    let raid = ArrayModel {
        disk: DiskModel::TEN_K,
        level: Level::Raid10,
        disks: 4,
    };
    assert_eq!(
        spec("hdd:model=10k,raid=10,disks=4,/a"),
        Spec::Array(raid, Box::new(plain("/a")))
    );
    let Spec::Faulty(plan, _) = spec("faulty:seed=7,read-error=0.5,switch=/s,delay=5ms,memory:1m")
    else {
        panic!("faulty")
    };
    assert_eq!((plan.seed, plan.rules.len()), (7, 2));
    assert_eq!(plan.switch.as_deref(), Some(Path::new("/s")));
    assert!(matches!(
        spec("ssd:channels=4,/a"),
        Spec::Flash(FlashModel { channels: 4, .. }, _)
    ));
}

#[test]
fn errors_name_the_piece() {
    for (text, piece) in [
        ("", "the text is empty"),
        ("data", "device `data`: is neither a path"),
        ("disk:/a", "`disk:` in `disk:/a`: is no kind of device"),
        ("nvme-tcp:host", "`nvme-tcp:` in"),
        ("memory:", "size ``: does not start with a number"),
        ("memory:1XB", "size `1XB`: unknown unit"),
        ("null:1g?fill=1", "`fill=1`: is no option of null"),
        ("rbd:db", "`rbd:db`: names no image"),
        ("rbd:pool/", "names no image"),
        ("rbd:pool/db@old", "names no image"),
        ("rbd:pool/db?size=1", "`size=1`: is no option of rbd"),
        ("hdd:disks=4,/a", "`disks=4`: is for an array"),
        (
            "hdd:raid=10,disks=5,/a",
            "`disks=5`: RAID-10 has 2 to 64 disks, in pairs",
        ),
        (
            "hdd:raid=5,disks=2,/a",
            "`disks=2`: RAID-5 has 3 to 64 disks",
        ),
        ("hdd:raid=6,/a", "`raid=6`"),
        ("file:", "`file:`: names no path"),
        ("file:/a?size=x", "size `x`"),
        (
            "file:/a?direct=maybe",
            "`direct=maybe`: is neither on nor off",
        ),
        (
            "/a?sync=on",
            "`sync=on`: is no option of a file; known are size",
        ),
        ("/a?size", "`size` in `/a?size`: is no option of the form"),
        ("/a?record=", "`record=`: names no file"),
        ("/a?record-limit=1m", "`record-limit`: is for a device with"),
        ("/a?record-reads=on", "`record-reads`: is for a device with"),
        (
            "/a?record=/t&record-reads=all",
            "`record-reads=all`: is neither",
        ),
        ("stripe:", "the text is empty"),
        ("stripe:/a,,/b", "the text is empty"),
        ("stripe:chunk=0x,/a", "size `0x`"),
        ("stripe:depth=2,/a", "`depth=2`: is no option of stripe"),
        (
            "stripe:hdd:model=fast,/a",
            "`hdd:`: names no device; inside a stripe, put it",
        ),
        ("stripe:[/a,/b", "device `stripe"),
        ("[/a", "`[/a`: has no closing bracket"),
        ("[/a]b", "`b` in `[/a]b`: follows a closing bracket"),
        ("hdd:model=drum,/a", "`model=drum`: is no option of hdd"),
        (
            "faulty:read-error=2,/a",
            "`read-error=2`: is no probability",
        ),
        ("faulty:delay=5,/a", "`delay=5`: needs a unit"),
        (
            "faulty:hang-after=soon,/a",
            "`hang-after=soon`: is no such number",
        ),
        ("faulty:seed=x,/a", "`seed=x`: is no such number"),
    ] {
        let error = refused(text);
        // An unclosed bracket inside a stripe shows up as the child's.
        let piece = if text == "stripe:[/a,/b" {
            "`[/a,/b`: has no closing bracket"
        } else {
            piece
        };
        assert!(error.contains(piece), "{text}: {error}");
    }
    assert!(refused(&("hdd:".repeat(1000) + "/a")).contains("nested more than 16 deep"));
    assert!(refused(&"[".repeat(100_000)).contains("has no closing bracket"));
    assert!(refused(&("[".repeat(99) + "/a" + &"]".repeat(99))).contains("nested more"));
}

#[test]
fn a_stack_opens_prints_itself_and_works() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().display();
    let text = format!("stripe:chunk=16k,file:{path}/a?size=1m,[ssd:channels=2,memory:1m]");
    let stack = open(&spec(&text), BlockSize::B4096).expect("opens");
    let tree = stack.describe().to_string();
    let lines: Vec<&str> = tree.lines().collect();
    assert_eq!(lines[0], "stripe of 2, 2 MiB, chunks of 16 KiB");
    assert!(
        lines[1].starts_with("├─ file ")
            && lines[1].ends_with("/a, 1 MiB, 4096-byte blocks, direct")
    );
    assert_eq!(lines[2], "└─ SATA SSD, 2 channels");
    assert_eq!(lines[3], "   └─ memory, 1 MiB, 4096-byte blocks");
    let mut bench = Bench::open(&*stack);
    bench
        .write(BlockRange::new(1, 100), 6, Durability::Durable)
        .expect("write");
    assert!(
        bench
            .read(BlockRange::new(1, 100))
            .expect("read")
            .iter()
            .all(|&b| b == 6)
    );
    bench.flush().expect("flush");
    let error = open(&spec("faulty:nvme-tcp://h/n"), BlockSize::B512)
        .err()
        .expect("no hook");
    assert!(
        error
            .to_string()
            .contains("`nvme-tcp://h/n`: a remote namespace"),
        "{error}"
    );
    let mut asked = Vec::new();
    let mut remotes = |url: &str, block_size| {
        asked.push(url.to_owned());
        open(&Spec::Memory(1 << 20), block_size)
    };
    let both = "stripe:nvme-tcp://h/n?ns=1,nvme-tcp://h/n?ns=2";
    open_with(&spec(both), BlockSize::B512, &mut remotes).expect("opens");
    assert_eq!(asked, ["nvme-tcp://h/n?ns=1", "nvme-tcp://h/n?ns=2"]);
}

proptest! {
    #[test]
    fn no_text_panics(text in "(stripe:|hdd:|\\[|\\]|,|file:/|memory:1|chunk=|\\?|&|=|é){0,12}") {
        let _ = text.parse::<Spec>();
    }
}
