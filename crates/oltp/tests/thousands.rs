//! Thousands of streams on a database that does nothing: what they ask for is done, nearly when it is due, and a stream is
//! a state of a few hundred bytes and no thread. A program of its own: what it looks at is the whole process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ashlar_lab::Progress;
use ashlar_oltp::database::Database;
use ashlar_oltp::inputs::Mix;
use ashlar_oltp::{Mode, Null, RunPlan, begin, run};

const STREAMS: u32 = 10_000;
/// Transactions a second that they ask for: each one every two seconds.
const ASKED: f64 = 5_000.0;
const SESSIONS: usize = 4;

/// A figure of this process, as the kernel counts it: `Threads`, or in KiB `VmHWM`, the most memory that it ever had.
fn counted(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("there");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

fn plan(mode: Mode) -> RunPlan {
    RunPlan {
        users: vec![SESSIONS],
        ramp: Duration::from_millis(200),
        measure: Duration::from_secs(2),
        mode,
        mix: Mix::TprocC,
        all_warehouses: false,
        pauses: None,
        slow_down: 0.0,
        repeats: 1,
        seed: 1,
    }
}

#[test]
fn ten_thousand_streams_are_served_in_time_and_are_no_threads() {
    let database: Arc<dyn Database> = Arc::new(Null::new("100").expect("so many"));
    let plan = plan(Mode::Streams(STREAMS, ASKED / f64::from(STREAMS)));
    let before = counted("VmHWM");
    let (most, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut result = begin(database.as_ref(), &plan).expect("begins");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                most.fetch_max(counted("Threads"), Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let ran = run(&database, &plan, &mut result, &Progress::silent());
        is_over.store(true, Ordering::SeqCst);
        ran.expect("ran");
    });
    let step = &result.steps[0];
    let done: u64 = step.transactions.values().map(|kind| kind.count).sum();
    let kept = done as f64 / step.elapsed_s / ASKED;
    assert!((0.9..1.1).contains(&kept), "{kept} of what was asked for");
    let late = step
        .lateness_us
        .expect("an open loop tells how late it was");
    assert!(late.p50 < 50_000.0 && late.p95 < 300_000.0, "{late:?}");
    assert!(step.missed < u64::from(STREAMS) / 20, "{}", step.missed);
    let threads = most.load(Ordering::SeqCst);
    assert!((SESSIONS as u64..30).contains(&threads), "{threads}");
    let memory = counted("VmHWM") - before;
    assert!(memory < 32 << 10, "{memory} KiB more");
}
