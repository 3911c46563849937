use std::sync::Arc;
use std::time::Duration;

use ashlar_block::{
    BlockDevice, BlockRange, BlockSize, Checked, Completion, Durability, Moment, Request,
};
use ashlar_reactor::Opener;

use super::*;
use crate::testing::Bench;
use crate::{Memory, Null, NullReads};

/// A device on a clock of its own, kept busy by as many requests as the depth says.
struct Load {
    device: Checked<Box<dyn BlockDevice>>,
    bench: Bench,
    now: Moment,
    random: fastrand::Rng,
    next: u64,
}

const BLOCKS: u64 = (1 << 40) / 4096;

fn load(make: impl Fn(Arc<dyn Opener>) -> Arc<Media>) -> Load {
    let null = Null::new(1 << 40, BlockSize::B4096, NullReads::Untouched).expect("null");
    let bench = Bench::open(&*null);
    let device = make(null).open(&bench.handle()).expect("opens");
    Load {
        device: Checked::new(device),
        bench,
        now: Moment::from_nanos(1_000_000),
        random: fastrand::Rng::with_seed(1),
        next: 0,
    }
}

#[derive(Clone, Copy)]
struct Shape {
    write: Option<Durability>,
    random: bool,
    blocks: u32,
    depth: usize,
}

const READ: Shape = Shape {
    write: None,
    random: true,
    blocks: 1,
    depth: 1,
};

impl Load {
    fn submit(&mut self, shape: Shape) {
        let start = match shape.random {
            true => self.random.u64(..BLOCKS / u64::from(shape.blocks)) * u64::from(shape.blocks),
            false => {
                self.next += u64::from(shape.blocks);
                self.next
            }
        };
        let range = BlockRange::new(start, shape.blocks);
        let buffer = self.bench.buffer(shape.blocks as usize * 4096);
        self.device.submit(match shape.write {
            Some(durability) => Request::write(0, range, buffer, durability),
            None => Request::read(0, range, buffer),
        });
    }

    /// Completions a second over `count` of them.
    fn rate(&mut self, shape: Shape, count: usize) -> f64 {
        (0..shape.depth).for_each(|_| self.submit(shape));
        let (start, mut finished) = (self.now, 0);
        let mut done: Vec<Completion> = Vec::new();
        while finished < count {
            self.device.poll(self.now, &mut done);
            if done.is_empty() {
                self.now = self.device.next_deadline().expect("something is under way");
            }
            for completion in done.drain(..) {
                completion.result.expect("no errors");
                finished += 1;
                self.submit(shape);
            }
        }
        count as f64 / self.now.since(start).as_secs_f64()
    }
}

fn near(value: f64, low: f64, high: f64) {
    assert!(
        (low..=high).contains(&value),
        "{value:.0} is outside {low}..{high}"
    );
}

#[test]
fn a_disk_seeks_rotates_and_streams() {
    let disk = || load(|child| Media::disk(child, DiskModel::NEARLINE));
    // One at a time: 7.4 ms of seek and half of 8.33 ms of rotation.
    near(disk().rate(READ, 2000), 82.0, 91.0);
    // The nearest of 32 is much nearer.
    near(disk().rate(Shape { depth: 32, ..READ }, 4000), 170.0, 330.0);
    // The first zone streams at the data sheet's rate, also one request at a time.
    let stream = Shape {
        random: false,
        blocks: 256,
        ..READ
    };
    near(disk().rate(stream, 500) * 1.048_576, 240.0, 256.0);
    near(
        disk().rate(
            Shape {
                random: false,
                ..READ
            },
            20_000,
        ) * 4096.0
            / 1e6,
        60.0,
        256.0,
    );
}

#[test]
fn the_write_cache_hides_the_arm_until_it_is_full() {
    let mut disk = load(|child| Media::disk(child, DiskModel::NEARLINE));
    let write = Shape {
        write: Some(Durability::Cached),
        ..READ
    };
    near(disk.rate(write, 100), 5_000.0, 20_000.0);
    near(disk.rate(write, 4000), 150.0, 450.0);
    let before = disk.now;
    disk.device.submit(Request::flush(9));
    let mut done = Vec::new();
    while !done.iter().any(|c: &Completion| c.tag == 9) {
        disk.device.poll(disk.now, &mut done);
        disk.now = disk.device.next_deadline().unwrap_or(disk.now);
    }
    assert!(
        disk.now.since(before) > Duration::from_millis(200),
        "a flush empties the cache"
    );
    let off = DiskModel {
        cached_writes: 0,
        ..DiskModel::NEARLINE
    };
    near(
        load(|child| Media::disk(child, off)).rate(write, 1000),
        78.0,
        95.0,
    );
    let durable = Shape {
        write: Some(Durability::Durable),
        ..READ
    };
    near(
        load(|child| Media::disk(child, DiskModel::NEARLINE)).rate(durable, 1000),
        78.0,
        95.0,
    );
}

#[test]
fn an_ssd_meets_its_data_sheet() {
    let ssd = || load(|child| Media::flash(child, FlashModel::DATA_CENTRE));
    near(ssd().rate(READ, 2000), 18_000.0, 21_000.0);
    near(
        ssd().rate(Shape { depth: 32, ..READ }, 50_000),
        70_000.0,
        78_000.0,
    );
    let write = Shape {
        write: Some(Durability::Cached),
        ..READ
    };
    near(ssd().rate(write, 100), 14_000.0, 18_000.0);
    near(
        ssd().rate(Shape { depth: 32, ..write }, 50_000),
        34_000.0,
        37_000.0,
    );
    let large = Shape {
        random: false,
        blocks: 32,
        depth: 32,
        ..READ
    };
    near(ssd().rate(large, 5000) * 0.131_072, 480.0, 550.0);
    let large = Shape {
        write: Some(Durability::Durable),
        ..large
    };
    near(ssd().rate(large, 5000) * 0.131_072, 440.0, 465.0);
}

#[test]
fn equal_runs_are_equal_and_queues_share_the_arm() {
    let run =
        || load(|child| Media::disk(child, DiskModel::FAST)).rate(Shape { depth: 8, ..READ }, 500);
    assert_eq!(run(), run());
    let null = Null::new(1 << 40, BlockSize::B4096, NullReads::Zeroes).expect("null");
    let media = Media::disk(null, DiskModel::NEARLINE);
    let bench = Bench::open(&*media);
    let mut queues: Vec<_> = (0..2)
        .map(|_| media.open(&bench.handle()).expect("opens"))
        .collect();
    let mut done = Vec::new();
    let start = Moment::from_nanos(1);
    for (i, queue) in queues.iter_mut().enumerate() {
        let range = BlockRange::new(BLOCKS / 2 + i as u64 * BLOCKS / 3, 1);
        queue.submit(Request::read(7 + i as u64, range, bench.buffer(4096)));
        queue.poll(start, &mut done);
    }
    assert!(done.is_empty());
    let first = queues[1]
        .next_deadline()
        .expect("waits for the other's command");
    queues[1].poll(first, &mut done);
    assert!(done.is_empty(), "the arm was at the other queue's command");
    let second = queues[1].next_deadline().expect("its own");
    queues[1].poll(second, &mut done);
    queues[0].poll(second, &mut done);
    assert_eq!(done.iter().map(|c| c.tag).collect::<Vec<_>>(), [8, 7]);
}

#[test]
fn data_goes_through_in_real_time() {
    let memory = Memory::new(1 << 20, BlockSize::B4096).expect("memory");
    let media = Media::flash(memory, FlashModel::DATA_CENTRE);
    assert!(media.geometry().volatile_cache);
    assert!(
        media
            .describe()
            .to_string()
            .starts_with("SATA SSD, 8 channels\n└─ memory, 1 MiB")
    );
    let mut bench = Bench::open(&*media);
    bench
        .write(BlockRange::new(3, 5), 0x42, Durability::Durable)
        .expect("write");
    bench.flush().expect("flush");
    assert!(
        bench
            .read(BlockRange::new(3, 5))
            .expect("read")
            .iter()
            .all(|&b| b == 0x42)
    );
}

/// What the maker says of a drive, and what people who plan with it say of it and of arrays.
#[test]
fn a_ten_k_disk_is_as_its_maker_says() {
    let mut disk = load(|child| Media::disk(child, DiskModel::TEN_K));
    // 4.0 ms of average seek and 3.0 ms of latency: 143 a second; 140 is what is planned with.
    near(disk.rate(READ, 4000), 133.0, 147.0);
    // 360,000 bytes a track on average: 60 MB/s, and more where it begins.
    let stream = Shape {
        random: false,
        blocks: 256,
        ..READ
    };
    let mut disk = load(|child| Media::disk(child, DiskModel::TEN_K));
    near(disk.rate(stream, 300) * 1.048_576, 66.0, 73.0);
}

/// The penalties of small writes that are planned with: 4 with parity, 2 with pairs. Reads go to all disks.
#[test]
fn an_array_reads_as_its_disks_and_pays_for_writes() {
    let disk = DiskModel {
        cached_writes: 0,
        queue_depth: 1,
        ..DiskModel::TEN_K
    };
    let array = |level| {
        let disks = 10;
        load(move |child| Media::array(child, ArrayModel { disk, level, disks }))
    };
    let many = Shape { depth: 200, ..READ };
    let write = Shape {
        write: Some(Durability::Durable),
        ..many
    };
    let single = load(|child| Media::disk(child, disk)).rate(READ, 2000);
    for (level, penalty) in [(Level::Raid5, 4.0), (Level::Raid10, 2.0)] {
        let reads = array(level).rate(many, 20_000) / single;
        near(reads * 100.0, 800.0, 1010.0);
        // A write right behind the read of the same sector waits for one turn and seeks nowhere, so the penalty is
        // a little less.
        let writes = array(level).rate(write, 10_000) / single;
        near(
            writes * 100.0,
            80.0 * 10.0 / penalty,
            145.0 * 10.0 / penalty,
        );
    }
    // A whole row needs no reading: nine disks write what is asked for, at once.
    let row = Shape {
        write: Some(Durability::Durable),
        random: false,
        blocks: 9 * 16,
        depth: 4,
    };
    let mut whole = array(Level::Raid5);
    near(whole.rate(row, 200) * 9.0 * 0.065_536, 150.0, 650.0);
}

#[test]
fn seeks_are_counted() {
    let null = Null::new(1 << 40, BlockSize::B4096, NullReads::Zeroes).expect("null");
    let media = Media::disk(null, DiskModel::TEN_K);
    let bench = Bench::open(&*media);
    let mut device = media.open(&bench.handle()).expect("opens");
    let (mut now, mut done) = (Moment::from_nanos(1), Vec::new());
    for block in [0, 1, 2, 500, 501, 7] {
        let range = BlockRange::new(block, 1);
        device.submit(Request::read(block, range, bench.buffer(4096)));
        while done.pop().is_none() {
            device.poll(now, &mut done);
            now = device.next_deadline().unwrap_or(now);
        }
    }
    assert_eq!(media.seeks(), 2);
}
