//! Writers at depth, each with a part of the volume of its own, that check every read.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::host::{BLOCK, Done, Host};
use crate::ledger::{Ledger, Seq, fill};
use crate::random::Random;

const DEPTH: u16 = 8;
/// What writes up to 64 KiB promise: `atomic_bytes`.
const ATOMIC_BLOCKS: u64 = 16;

enum Op {
    Read {
        at: u64,
        allowed: Vec<Vec<Seq>>,
    },
    /// A deallocation is a write of number 0.
    Write {
        at: u64,
        blocks: u64,
        seq: Seq,
    },
}

struct Writer {
    ledger: Ledger,
    random: Random,
    flying: Vec<Option<Op>>,
}

/// Whom to load, and what may happen meanwhile.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub address: SocketAddr,
    pub nqn: &'a str,
}

/// What a round is told and tells.
pub struct Round {
    stop: AtomicBool,
    killed: AtomicBool,
    done: AtomicU64,
}

impl Round {
    /// The daemon is about to die: connections that break are its own doing.
    pub fn will_be_killed(&self) {
        self.killed.store(true, Ordering::SeqCst);
    }

    /// Commands that have ended so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// Waits until so many more commands have ended.
    pub fn more(&self, count: u64) {
        let goal = self.done() + count;
        crate::common::eventually("the load goes on", || self.done() >= goal);
    }
}

impl Writer {
    fn is_busy(&self, at: u64, blocks: u64) -> bool {
        self.flying.iter().flatten().any(|op| match op {
            Op::Write {
                at: other,
                blocks: count,
                ..
            } => at < other + count && *other < at + blocks,
            Op::Read { .. } => false,
        })
    }

    fn submit(&mut self, host: &mut Host, cid: u16) -> std::io::Result<()> {
        let (at, blocks) = loop {
            let blocks = [1, 1, 4, 4, 16][self.random.below(5) as usize];
            // Some places are written again and again.
            let places = self.ledger.len() / if self.random.below(3) == 0 { 8 } else { 1 };
            let at = self.ledger.first + self.random.below(places / blocks) * blocks;
            if !self.is_busy(at, blocks) {
                break (at, blocks);
            }
        };
        let op = match self.random.below(20) {
            0 => Op::Write { at, blocks, seq: 0 },
            1..=12 => Op::Write {
                at,
                blocks,
                seq: self.ledger.number(),
            },
            _ => Op::Read {
                at,
                allowed: self.ledger.allowed(at, blocks),
            },
        };
        if let Op::Write { seq, .. } = op {
            self.tell_readers(at, blocks, seq);
            self.ledger.begin(at, blocks, seq);
        }
        self.flying[usize::from(cid)] = Some(op);
        match &self.flying[usize::from(cid)] {
            Some(Op::Write { seq: 0, .. }) => host.submit_deallocate(cid, at, blocks),
            Some(Op::Write { seq, .. }) => {
                let mut data = vec![0; blocks as usize * BLOCK];
                let all = data.chunks_exact_mut(BLOCK).zip(at..);
                all.for_each(|(bytes, block)| fill(block, *seq, bytes));
                host.submit_write(cid, at, data)
            }
            _ => host.submit_read(cid, at, blocks),
        }
    }

    /// Reads that are on their way may find the new write.
    fn tell_readers(&mut self, at: u64, blocks: u64, seq: Seq) {
        for op in self.flying.iter_mut().flatten() {
            let Op::Read { at: from, allowed } = op else {
                continue;
            };
            for (allowed, block) in allowed.iter_mut().zip(*from..) {
                if (at..at + blocks).contains(&block) {
                    allowed.push(seq);
                }
            }
        }
    }

    fn ended(&mut self, done: &Done) {
        let op = self.flying[usize::from(done.cid)]
            .take()
            .expect("a command on its way");
        match op {
            Op::Read { at, allowed } => {
                assert!(done.status.is_success(), "read at {at}: {:?}", done.status);
                if let Err(why) = Ledger::check(at, &done.data, &allowed) {
                    panic!("under load: {why}");
                }
            }
            Op::Write { at, blocks, seq } => {
                assert!(done.status.is_success(), "write at {at}: {:?}", done.status);
                self.ledger.acknowledge(at, blocks, seq);
            }
        }
    }

    /// Until it is told to stop, or the connection ends.
    fn drive(&mut self, host: &mut Host, round: &Round) -> std::io::Result<()> {
        for cid in 0..DEPTH {
            self.submit(host, cid)?;
        }
        let mut open = DEPTH;
        while open > 0 {
            let done = host.next()?;
            self.ended(&done);
            round.done.fetch_add(1, Ordering::SeqCst);
            if round.stop.load(Ordering::SeqCst) {
                open -= 1;
            } else {
                self.submit(host, done.cid)?;
            }
        }
        Ok(())
    }

    fn run(&mut self, place: Place<'_>, round: &Round) {
        self.flying = (0..DEPTH).map(|_| None).collect();
        let result = Host::connect(place.address, place.nqn)
            .and_then(|mut host| self.drive(&mut host, round));
        for op in std::mem::take(&mut self.flying).into_iter().flatten() {
            if let Op::Write { at, blocks, seq } = op {
                self.ledger.lose(at, blocks, seq);
            }
        }
        if let Err(error) = result {
            let killed = round.killed.load(Ordering::SeqCst);
            assert!(killed, "the connection ended by itself: {error}");
        }
    }

    /// Reads everything.
    fn verify(&mut self, place: Place<'_>, atomic_blocks: u64) {
        let mut host = Host::connect(place.address, place.nqn).expect("the volume is served");
        let mut found = Vec::new();
        let end = self.ledger.first + self.ledger.len();
        for at in (self.ledger.first..end).step_by(64) {
            let blocks = (end - at).min(64);
            host.submit_read(0, at, blocks).expect("connected");
            let done = host.next().expect("an answer");
            assert!(done.status.is_success(), "read at {at}: {:?}", done.status);
            let allowed = self.ledger.allowed(at, blocks);
            match Ledger::check(at, &done.data, &allowed) {
                Ok(seqs) => found.extend(seqs),
                Err(why) => panic!("nothing is on its way: {why}"),
            }
        }
        if let Err(why) = self.ledger.settle(&found, atomic_blocks) {
            panic!("torn: {why}");
        }
    }
}

/// A verifying load, and what it knows of the volume.
pub struct Load {
    writers: Vec<Writer>,
    /// Writes of so many blocks are there as a whole or not at all.
    atomic_blocks: u64,
}

impl Load {
    /// Three writers over the first `blocks` of a volume.
    pub fn new(blocks: u64, random: &mut Random) -> Self {
        let each = blocks / 3 / 16 * 16;
        let writer = |index: u64| Writer {
            ledger: Ledger::new(index * each, each, index + 1),
            random: Random::new(random.next()),
            flying: Vec::new(),
        };
        Self {
            writers: (0..3).map(writer).collect(),
            atomic_blocks: ATOMIC_BLOCKS,
        }
    }

    /// Of a volume whose writes of more blocks may be there in part.
    pub fn whole_up_to(self, atomic_blocks: u64) -> Self {
        Self {
            atomic_blocks,
            ..self
        }
    }

    /// Loads the volume while `meanwhile` happens, and gives its result.
    pub fn during<T>(&mut self, place: Place<'_>, meanwhile: impl FnOnce(&Round) -> T) -> T {
        let round = Round {
            stop: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            done: AtomicU64::new(0),
        };
        /// Also when `meanwhile` panics: a test must end.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::SeqCst);
            }
        }
        std::thread::scope(|scope| {
            for writer in &mut self.writers {
                let round = &round;
                scope.spawn(move || writer.run(place, round));
            }
            let _stop = Stop(&round.stop);
            meanwhile(&round)
        })
    }

    /// Reads everything, and holds it against what was acknowledged.
    pub fn verify(&mut self, place: Place<'_>) {
        for writer in &mut self.writers {
            writer.verify(place, self.atomic_blocks);
        }
    }

    /// The same of a file that has what the volume had, when nothing is on its way.
    pub fn verify_file(&self, path: &Path) {
        let file = File::open(path).expect("a file");
        for Writer { ledger, .. } in &self.writers {
            let mut data = vec![0; ledger.len() as usize * BLOCK];
            let at = ledger.first * BLOCK as u64;
            file.read_exact_at(&mut data, at).expect("read");
            let allowed = ledger.allowed(ledger.first, ledger.len());
            if let Err(why) = Ledger::check(ledger.first, &data, &allowed) {
                panic!("in {}: {why}", path.display());
            }
        }
    }

    /// Writes that were acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        self.writers
            .iter()
            .map(|writer| writer.ledger.acknowledged)
            .sum()
    }
}
