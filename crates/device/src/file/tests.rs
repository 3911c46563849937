use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ashlar_block::{BlockRange, Durability, ErrorKind, Operation, Request};

use super::*;
use crate::testing::{Bench, Loop, Mounted, root};

const ZERO: Operation = Operation::WriteZeroes {
    durability: Durability::Cached,
    deallocate: false,
};
const ZERO_DURABLY: Operation = Operation::WriteZeroes {
    durability: Durability::Durable,
    deallocate: true,
};

fn sized(path: &Path, size: u64) -> FileOptions {
    FileOptions {
        size: Some(size),
        ..FileOptions::new(path)
    }
}

fn refusal(options: &FileOptions, block_size: BlockSize) -> String {
    let error = FileDevice::open(options, block_size)
        .err()
        .expect("refused");
    let text = error.to_string();
    let path = options.path.display().to_string();
    assert!(text.contains(&path), "names the path: {text}");
    text
}

fn exercise(options: &FileOptions, block_size: BlockSize) {
    let device = FileDevice::open(options, block_size).expect("opens");
    let mut bench = Bench::open(&*device);
    let mut other = Bench::open(&*device);
    let blocks = device.geometry().blocks;
    bench
        .write(BlockRange::new(0, 8), 1, Durability::Cached)
        .expect("cached");
    bench
        .write(BlockRange::new(blocks - 4, 4), 2, Durability::Durable)
        .expect("durable");
    bench.flush().expect("flush");
    assert!(
        other
            .read(BlockRange::new(0, 8))
            .expect("read")
            .iter()
            .all(|&b| b == 1)
    );
    assert!(
        other
            .read(BlockRange::new(blocks - 4, 4))
            .expect("read")
            .iter()
            .all(|&b| b == 2)
    );
    let most = device.geometry().max_blocks;
    for at in [most, 2 * most] {
        let range = BlockRange::new(at.into(), most);
        bench.write(range, 4, Durability::Cached).expect("more");
    }
    bench
        .write(BlockRange::new(0, most), 3, Durability::Cached)
        .expect("large");
    bench
        .zero(ZERO, BlockRange::new(1, 2 * most + 1))
        .expect("zeroes");
    bench
        .zero(ZERO_DURABLY, BlockRange::new(blocks - 4, 3))
        .expect("durable zeroes");
    bench
        .zero(Operation::Deallocate, BlockRange::new(2, most))
        .expect("deallocate");
    assert!(
        other
            .read(BlockRange::new(0, 1))
            .expect("read")
            .iter()
            .all(|&b| b == 3)
    );
    assert!(
        other
            .read(BlockRange::new(1, most - 1))
            .expect("read")
            .iter()
            .all(|&b| b == 0)
    );
    let second = other
        .read(BlockRange::new(most.into(), most))
        .expect("read");
    assert!(second.iter().all(|&b| b == 0));
    let third = other
        .read(BlockRange::new(2 * u64::from(most), 3))
        .expect("read");
    let block = block_size.bytes() as usize;
    assert!(third[..2 * block].iter().all(|&b| b == 0));
    assert!(third[2 * block..].iter().all(|&b| b == 4));
    let tail = other.read(BlockRange::new(blocks - 4, 4)).expect("read");
    assert!(tail[..3 * block].iter().all(|&b| b == 0) && tail[3 * block..].iter().all(|&b| b == 2));
    let error = bench.read(BlockRange::new(blocks, 1)).expect_err("beyond");
    assert_eq!(error.kind(), ErrorKind::OutOfRange);
}

#[test]
fn a_file_keeps_what_it_is_given() {
    let dir = tempfile::tempdir().expect("directory");
    for (direct, block_size) in [
        (true, BlockSize::B4096),
        (true, BlockSize::B512),
        (false, BlockSize::B512),
    ] {
        let path = dir.path().join(format!("{direct}-{block_size}"));
        let options = FileOptions {
            direct,
            ..sized(&path, 8 << 20)
        };
        exercise(&options, block_size);
        let metadata = fs::metadata(&path).expect("created");
        assert_eq!(metadata.len(), 8 << 20);
    }
}

#[test]
fn a_file_in_memory_is_transferred_at_once() {
    let shared_memory = Path::new("/dev/shm");
    if !fs::File::open(shared_memory).is_ok_and(limits::is_in_memory) {
        eprintln!("skipped: /dev/shm is no tmpfs");
        return;
    }
    let folder = tempfile::tempdir_in(shared_memory).expect("folder");
    let options = sized(&folder.path().join("file"), 16 << 20);
    exercise(&options, BlockSize::B4096);
    let device = FileDevice::open(&options, BlockSize::B4096).expect("opens");
    let mut bench = Bench::open(&*device);
    // None of them takes a turn of the ring.
    let mut at_once = |request: Request| {
        bench.device.submit(request);
        let mut done = Vec::new();
        let now = bench.handle().now();
        bench.device.poll(now, &mut done);
        let completion = done.pop().expect("completed");
        completion.result.expect("done");
        completion.buffer
    };
    let range = BlockRange::new(3, 16);
    let pool = ashlar_block::BufferPool::new(4 << 20);
    for (durability, byte) in [(Durability::Cached, 5), (Durability::Durable, 6)] {
        let mut data = pool.get(64 << 10).expect("buffer");
        data.fill(byte);
        at_once(Request::write(1, range, data, durability));
        let back = at_once(Request::read(2, range, pool.get(64 << 10).expect("buffer")));
        assert!(back.expect("data").iter().all(|&b| b == byte));
    }
    at_once(Request::flush(3));
}

#[test]
fn zeroes_are_written_where_the_file_system_cannot() {
    if !root("zeroes_are_written_where_the_file_system_cannot") {
        return;
    }
    // tmpfs punches holes but zeroes no ranges.
    let mounted = Mounted::tmpfs("16m");
    exercise(
        &sized(&mounted.path().join("file"), 8 << 20),
        BlockSize::B4096,
    );
}

#[test]
fn a_block_device_works_and_knows_its_block() {
    if !root("a_block_device_works_and_knows_its_block") {
        return;
    }
    let dir = tempfile::tempdir().expect("directory");
    let backing = dir.path().join("backing");
    fs::File::create(&backing)
        .and_then(|f| f.set_len(8 << 20))
        .expect("backing");
    let device = Loop::new(&backing, 4096);
    let options = FileOptions::new(&device.0);
    exercise(&options, BlockSize::B4096);
    let text = refusal(&options, BlockSize::B512);
    assert!(
        text.contains("512 bytes is smaller than its logical block of 4096"),
        "{text}"
    );
    let text = refusal(&sized(Path::new(&device.0), 4 << 20), BlockSize::B4096);
    assert!(
        text.contains("has 8388608 bytes (8 MiB), not the 4194304"),
        "{text}"
    );
}

#[test]
fn unaligned_parts_of_a_buffer_are_bounced() {
    let dir = tempfile::tempdir().expect("directory");
    let device =
        FileDevice::open(&sized(&dir.path().join("f"), 1 << 20), BlockSize::B512).expect("opens");
    let mut bench = Bench::open(&*device);
    let mut head = bench.buffer(4096);
    let mut tail = head.split_off(100);
    tail.truncate(1024);
    tail.fill(0x77);
    let range = BlockRange::new(3, 2);
    let done = bench.run(Request::write(1, range, tail, Durability::Durable));
    done.result.expect("written");
    let mut tail = done.buffer.expect("comes back");
    assert_eq!(tail.as_ptr() as usize % 512, 100);
    tail.fill(0);
    let done = bench.run(Request::read(1, range, tail));
    done.result.expect("read");
    assert!(done.buffer.expect("comes back").iter().all(|&b| b == 0x77));
}

#[test]
fn what_is_wrong_is_said_at_opening() {
    let dir = tempfile::tempdir().expect("directory");
    let at = |name: &str| dir.path().join(name);
    let b4096 = BlockSize::B4096;
    assert!(refusal(&FileOptions::new(dir.path()), b4096).contains("is a directory"));
    assert!(refusal(&FileOptions::new(at("no")), b4096).contains("/no?size=4GiB"));
    assert!(refusal(&sized(&at("no/file"), 1 << 20), b4096).contains("there is no directory"));
    assert!(refusal(&FileOptions::new("/dev/zero"), b4096).contains("is a character device"));
    assert!(refusal(&sized(&at("odd"), 4097), b4096).contains("not a multiple of the block size"));
    assert!(refusal(&sized(&at("none"), 0), b4096).contains("smaller than one block"));
    fs::write(at("empty"), b"").expect("write");
    assert!(refusal(&FileOptions::new(at("empty")), b4096).contains("/empty?size=4GiB"));
    fs::write(at("short"), [1; 5000]).expect("write");
    assert!(refusal(&FileOptions::new(at("short")), b4096).contains("not a multiple"));
    let text = refusal(&sized(&at("short"), 8192), b4096);
    assert!(
        text.contains("has 5000 bytes (5000 B), not the 8192 bytes (8 KiB)"),
        "{text}"
    );
    assert_eq!(fs::read(at("short")).expect("still there"), [1; 5000]);
    assert!(!at("odd").exists() && !at("no").exists());
}

#[test]
fn a_full_disk_is_said_at_opening_and_leaves_nothing() {
    if !root("a_full_disk_is_said_at_opening_and_leaves_nothing") {
        return;
    }
    let mounted = Mounted::tmpfs("4m");
    let path = mounted.path().join("file");
    let options = sized(&path, 64 << 20);
    let text = refusal(&options, BlockSize::B4096);
    assert!(
        text.contains("67108864 bytes) more are needed and 4194304 bytes are available"),
        "{text}"
    );
    assert!(!path.exists());
    // Without allocation the writes find out.
    let options = FileOptions {
        allocate: false,
        ..options
    };
    let device = FileDevice::open(&options, BlockSize::B4096).expect("opens");
    let mut bench = Bench::open(&*device);
    let results: Vec<_> = (0..10)
        .map(|i| bench.write(BlockRange::new(i * 256, 256), 1, Durability::Cached))
        .collect();
    let error = results.into_iter().find_map(Result::err).expect("full");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(
        error.to_string().contains("write of 1048576 bytes at"),
        "{error}"
    );
}

#[test]
fn two_users_of_one_file_must_both_share() {
    let dir = tempfile::tempdir().expect("directory");
    let options = sized(&dir.path().join("f"), 1 << 20);
    let shared = FileOptions {
        share: true,
        ..options.clone()
    };
    let first = FileDevice::open(&options, BlockSize::B512).expect("opens");
    let text = refusal(&options, BlockSize::B512);
    assert!(text.contains("is in use by this process already"), "{text}");
    assert!(refusal(&shared, BlockSize::B512).contains("both need share=on"));
    // A queue keeps the lock when the description is gone.
    let bench = Bench::open(&*first);
    drop(first);
    refusal(&options, BlockSize::B512);
    drop(bench);
    let a = FileDevice::open(&shared, BlockSize::B512).expect("shared");
    let b = FileDevice::open(&shared, BlockSize::B512).expect("shared");
    refusal(&options, BlockSize::B512);
    drop((a, b));
    FileDevice::open(&options, BlockSize::B512).expect("free again");
}

#[test]
fn a_file_that_shrank_gives_media_errors_that_name_it() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("f");
    let device = FileDevice::open(&sized(&path, 1 << 20), BlockSize::B4096).expect("opens");
    let mut bench = Bench::open(&*device);
    fs::File::options()
        .write(true)
        .open(&path)
        .and_then(|f| f.set_len(8192))
        .expect("shrink");
    let error = bench.read(BlockRange::new(1, 4)).expect_err("short");
    assert_eq!(error.kind(), ErrorKind::Media);
    let text = error.to_string();
    assert!(
        text.contains("f: read of 16384 bytes at 4096: media error: only 4096 bytes"),
        "{text}"
    );
}

#[test]
fn a_failed_flush_latches_every_queue() {
    let dir = tempfile::tempdir().expect("directory");
    let device =
        FileDevice::open(&sized(&dir.path().join("f"), 1 << 20), BlockSize::B4096).expect("opens");
    let mut a = Bench::open(&*device);
    let mut b = Bench::open(&*device);
    b.write(BlockRange::new(0, 1), 1, Durability::Durable)
        .expect("before");
    // What a queue does when the kernel reports that a sync has failed.
    let mut queue = queue::FileQueue::new(device.0.clone(), &b.handle()).expect("queue");
    queue.inject(Request::flush(7), rustix::io::Errno::IO.into());
    let mut done = Vec::new();
    queue.poll(b.handle().now(), &mut done);
    assert_eq!(
        done.remove(0).result.expect_err("fails").kind(),
        ErrorKind::Media
    );
    assert_eq!(a.flush().expect_err("latched").kind(), ErrorKind::Latched);
    let error = b
        .write(BlockRange::new(0, 1), 1, Durability::Cached)
        .expect_err("latched");
    assert_eq!(error.kind(), ErrorKind::Latched);
    assert_eq!(
        b.read(BlockRange::new(0, 1)).expect_err("latched").kind(),
        ErrorKind::Latched
    );
}

#[test]
fn only_failures_that_may_have_lost_something_latch() {
    let dir = tempfile::tempdir().expect("directory");
    let cases = [
        (Durability::Cached, rustix::io::Errno::IO, false),
        (Durability::Durable, rustix::io::Errno::NOSPC, false),
        (Durability::Durable, rustix::io::Errno::NOMEM, false),
        (Durability::Durable, rustix::io::Errno::IO, true),
    ];
    for (i, (durability, errno, latches)) in cases.into_iter().enumerate() {
        let path = dir.path().join(i.to_string());
        let device = FileDevice::open(&sized(&path, 1 << 20), BlockSize::B4096).expect("opens");
        let bench = Bench::open(&*device);
        let mut queue = queue::FileQueue::new(device.0.clone(), &bench.handle()).expect("queue");
        let write = Request::write(1, BlockRange::new(0, 1), bench.buffer(4096), durability);
        queue.inject(write, errno.into());
        assert_eq!(device.0.is_latched(), latches, "{durability:?} {errno}");
    }
}

#[test]
fn blocks_land_where_they_belong() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("f");
    fs::write(&path, vec![9; 64 << 10]).expect("write");
    let device = FileDevice::open(&FileOptions::new(&path), BlockSize::B4096).expect("opens");
    let mut bench = Bench::open(&*device);
    bench
        .write(BlockRange::new(3, 1), 4, Durability::Durable)
        .expect("write");
    let mut bytes = vec![0; 3 * 4096];
    fs::File::open(&path)
        .and_then(|f| f.read_exact_at(&mut bytes, 2 * 4096))
        .expect("read");
    assert!(bytes[..4096].iter().chain(&bytes[8192..]).all(|&b| b == 9));
    assert!(bytes[4096..8192].iter().all(|&b| b == 4));
}
