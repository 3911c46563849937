use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;
use crate::simulated::{Model, Simulated};
use crate::{
    Conditioning, Configuration, Matrix, OpenOptions, Pattern, PrepareOptions, Prepared, Procedure,
    Worker,
};

const MIB: u64 = 1 << 20;

fn device() -> Model {
    Model::new(16 * MIB, Duration::from_micros(100), 4)
}

fn plan(specs: &[&str], pattern: Pattern) -> SweepPlan {
    let matrix = Matrix {
        role: String::new(),
        pattern,
        read_pct: 50,
        blocks: vec![8192],
        threads: vec![2],
        depths: vec![1, 8],
        procedure: Procedure::default(),
    };
    let on = specs.iter().map(|spec| Configuration::on(*spec)).collect();
    let mut plan = SweepPlan::new(on, vec![matrix]);
    plan.set_measure(Duration::from_millis(200));
    plan.size = Some(8 * MIB);
    plan
}

fn run(stacks: &Simulated, plan: &SweepPlan) -> RunOutcome {
    run_sweep(plan, stacks, &Progress::silent()).expect("the run begins")
}

#[test]
fn a_closed_loop_measures_the_service_model() {
    let stacks = Simulated::new().with("a", device());
    let outcome = run(&stacks, &plan(&["a"], Pattern::RandRead));
    let cells = &outcome.result.configurations[0].cells;
    assert_eq!(cells.len(), 2);
    // 100-110 us a request: depth 1 on 2 threads 2 / 105 us; depth 8 at 4 servers a thread.
    let near = |value: f64, want: f64| (value / want - 1.0).abs() < 0.05;
    assert!(near(cells[0].iops, 19_000.0), "{}", cells[0].iops);
    assert!(near(cells[1].iops, 76_000.0), "{}", cells[1].iops);
    for cell in cells {
        let in_flight = cell.iops * cell.latency_us.mean / 1e6;
        let depth = f64::from(cell.threads * cell.depth);
        assert!(
            near(in_flight, depth),
            "Little's law: {in_flight} of {depth}"
        );
        assert!(near(cell.mib_s, cell.iops / 128.0));
        assert_eq!(
            (cell.repeats.len(), cell.errors, cell.partial),
            (3, 0, false)
        );
        assert!(cell.steady && cell.spread < 0.05);
        assert!(cell.latency_us.p50 >= 100.0 && cell.latency_us.p999 >= cell.latency_us.p50);
    }
    assert_eq!(outcome.exit_code(), 0);
}

#[test]
fn two_configurations_are_interleaved_and_compared() {
    let mut slow = device();
    slow.read = Duration::from_micros(200);
    let stacks = Simulated::new().with("fast", device()).with("slow", slow);
    let outcome = run(&stacks, &plan(&["fast", "slow"], Pattern::RandRead));
    let order: Vec<_> = outcome
        .details
        .iter()
        .map(|d| (d.configuration, d.repeat))
        .collect();
    let mut repeats: Vec<_> = order[..6].to_vec();
    repeats.sort_unstable_by_key(|&(configuration, repeat)| (repeat, configuration));
    assert_eq!(order[..6], repeats, "details are told in order");
    let ratio = outcome.result.configurations[1].cells[0]
        .versus_first
        .clone()
        .expect("a ratio");
    assert!(
        ratio.differs && (ratio.ratio - 0.5).abs() < 0.02,
        "{ratio:?}"
    );
}

#[test]
fn an_open_loop_keeps_its_rate_and_counts_from_when_due() {
    let stacks = Simulated::new().with("a", device());
    let mut plan = plan(&["a"], Pattern::RandRead);
    plan.rate = Some(10_000.0);
    let cells = run(&stacks, &plan).result.configurations.remove(0).cells;
    assert!(
        (cells[1].iops - 10_000.0).abs() < 100.0,
        "{}",
        cells[1].iops
    );
    assert!(
        cells[1].latency_us.mean < 160.0,
        "{:?}",
        cells[1].latency_us
    );
    assert_eq!(cells[1].repeats[0].missed, 0);
    // Ten times what depth 1 can do: what waits is bounded, and what is lost is told.
    plan.rate = Some(200_000.0);
    let outcome = run(&stacks, &plan);
    let cell = &outcome.result.configurations[0].cells[0];
    assert!(cell.iops < 20_500.0);
    assert!(
        cell.latency_us.p50 > 10_000.0,
        "the wait counts: {:?}",
        cell.latency_us
    );
    assert!(cell.repeats[0].backlog_max > 1000 && cell.repeats[0].missed > 0);
    assert!(
        outcome
            .result
            .head
            .flags
            .iter()
            .any(|flag| flag.contains("arrivals"))
    );
}

#[test]
fn a_stall_at_the_end_of_an_open_loop_is_felt_by_what_was_due() {
    let mut slow = device();
    slow.read = Duration::from_millis(500);
    let stacks = Simulated::new().with("a", slow);
    let mut plan = plan(&["a"], Pattern::RandRead);
    plan.rate = Some(10.0);
    let cells = run(&stacks, &plan).result.configurations.remove(0).cells;
    for repeat in cells.iter().flat_map(|cell| &cell.repeats) {
        assert!(
            repeat.stalled > 0 && repeat.max_us >= 500_000.0,
            "{repeat:?}"
        );
        assert_eq!(repeat.iops, 0.0, "none has ended in time");
    }
}

#[test]
fn verification_passes_a_sound_device_and_catches_a_lying_one() {
    for pattern in Pattern::ALL {
        let stacks = Simulated::new().with("a", device());
        let mut plan = plan(&["a"], pattern);
        plan.verify = true;
        let outcome = run(&stacks, &plan);
        assert_eq!(
            outcome.exit_code(),
            0,
            "{pattern}: {:?}",
            outcome.result.head.checks
        );
        let found = outcome.result.configurations[0]
            .verify
            .clone()
            .expect("verified");
        assert_eq!(found.blocks_read_back, 8 * MIB / 4096);
        assert_eq!(found.blocks_checked > 0, pattern.read_pct(50) > 0);
    }
    let mut lying = device();
    lying.lose_every = 501;
    let stacks = Simulated::new().with("a", lying);
    let mut plan = plan(&["a"], Pattern::RandRw);
    plan.verify = true;
    let outcome = run(&stacks, &plan);
    assert_eq!(outcome.exit_code(), 1);
    let found = outcome.result.configurations[0]
        .verify
        .clone()
        .expect("verified");
    assert!(
        found.failures.lost > 0 && found.failures.corrupt == 0,
        "{:?}",
        found.failures
    );
    assert!(!found.examples.is_empty() && found.examples[0].expected.contains("generation"));
}

#[test]
fn data_is_not_destroyed_unasked() {
    let mut full = device();
    full.holds = Some("ext4 file system `home`".into());
    let stacks = Simulated::new().with("a", full);
    let writes = plan(&["a"], Pattern::RandWrite);
    let error = run_sweep(&writes, &stacks, &Progress::silent()).expect_err("refused");
    assert_eq!(error.exit_code(), 2);
    assert!(
        error.to_string().contains("ext4 file system `home`"),
        "{error}"
    );
    assert_eq!(
        run(&stacks, &plan(&["a"], Pattern::RandRead)).exit_code(),
        0
    );
    let mut meant = writes;
    meant.destroy_data = true;
    assert_eq!(run(&stacks, &meant).exit_code(), 0);
}

#[test]
fn failures_and_lost_workers_are_told_and_the_rest_kept() {
    let mut failing = device();
    failing.fail_every = 100;
    let mut dying = device();
    dying.die_after = 4000;
    let stacks = Simulated::new()
        .with("failing", failing)
        .with("dying", dying);
    let outcome = run(&stacks, &plan(&["failing", "dying"], Pattern::RandRead));
    assert_eq!(outcome.exit_code(), 3);
    let [failing, dying] = &outcome.result.configurations[..] else {
        panic!("two")
    };
    assert!(failing.cells[1].errors > 0 && !failing.cells[1].partial);
    assert!(dying.cells[1].partial && dying.cells[1].iops > 0.0);
    assert_eq!(dying.cells[1].repeats[0].lost_workers, 2);
    let problems = outcome.result.head.problems.join("\n");
    assert!(
        problems.contains("simulated failure") && problems.contains("died"),
        "{problems}"
    );
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let stacks = Simulated::new().with("a", device());
    let refused = |plan: &SweepPlan| {
        let error = run_sweep(plan, &stacks, &Progress::silent()).expect_err("refused");
        (error.exit_code(), error.to_string())
    };
    let mut too_big = plan(&["a"], Pattern::Read);
    too_big.size = Some(1 << 40);
    assert_eq!(
        refused(&too_big),
        (2, "size 1.0 TiB is more than a has (16.0 MiB)".into())
    );
    let mut odd = plan(&["a"], Pattern::Read);
    odd.matrices[0].blocks = vec![512];
    assert!(refused(&odd).1.contains("blocks of 4096 bytes"));
    let mut large = plan(&["a"], Pattern::Read);
    large.matrices[0].blocks = vec![2 << 20];
    assert!(refused(&large).1.contains("largest request"));
    assert_eq!(refused(&plan(&["b"], Pattern::Read)).0, 3);
}

#[test]
fn what_is_new_is_filled_even_for_reads() {
    let mut new = device();
    new.fresh = true;
    let stacks = Simulated::new().with("new", new).with("old", device());
    let filled = |spec| {
        run(&stacks, &plan(&[spec], Pattern::RandRead))
            .result
            .method
            .filled
    };
    assert!(filled("new") && !filled("old"));
}

/// A journal in a folder of its own.
fn journal(dir: &std::path::Path) -> Journal {
    let origin = crate::Origin {
        machine: Machine::here(),
        ..crate::Origin::default()
    };
    match Journal::begin(dir, &origin) {
        Ok(journal) => journal,
        Err(_) => Journal::resume(dir, &origin.machine).expect("goes on").0,
    }
}

#[test]
fn a_run_that_was_cut_anywhere_goes_on_with_every_cell_once() {
    let stacks = Simulated::new().with("a", device()).with("b", device());
    let mut plan = plan(&["a", "b"], Pattern::RandWrite);
    plan.verify = true;
    let dir = tempfile::tempdir().expect("folder");
    let run = |stop_after: Option<u64>| {
        let stop = Arc::new(AtomicBool::new(stop_after == Some(0)));
        let lines = Stopping {
            stop: Arc::clone(&stop),
            left: stop_after,
        };
        let progress = Progress::lines(Box::new(lines)).until(stop);
        let mut journal = journal(dir.path());
        let means = Means {
            stacks: &stacks,
            services: &crate::NoServices,
            clients: None,
            progress: &progress,
            journal: &mut journal,
        };
        run_plan(&plan, means)
    };
    assert!(run(Some(0)).is_err_and(|error| error.to_string().contains("interrupted")));
    let mut had = 0;
    let outcome = loop {
        let outcome = run(Some(1)).expect("some was measured");
        assert!(outcome.details.len() > had || had == 12, "it goes on");
        had = outcome.details.len();
        if outcome.is_complete {
            break outcome;
        }
        assert_eq!(
            (outcome.result.head.partial, outcome.exit_code()),
            (true, 3),
            "{:?}",
            (&outcome.result.head.problems, &outcome.result.head.checks)
        );
        assert!(
            outcome
                .result
                .head
                .problems
                .iter()
                .any(|text| text.contains("interrupted"))
        );
    };
    assert_eq!(had, 2 * 2 * 3);
    assert_eq!(outcome.exit_code(), 0, "{:?}", outcome.result.head.problems);
    for of in &outcome.result.configurations {
        let checked = of.verify.as_ref().expect("verified");
        assert!(checked.blocks_read_back > 0 && checked.failures.total() == 0);
        for cell in &of.cells {
            let numbers: Vec<u32> = cell.repeats.iter().map(|of| of.repeat).collect();
            assert_eq!((numbers, cell.partial), (vec![1, 2, 3], false));
            assert!(cell.settled.is_some(), "settled before it is told");
        }
    }
}

/// Hears lines of progress, and types Ctrl-C after some that tell of a measurement.
struct Stopping {
    stop: Arc<AtomicBool>,
    left: Option<u64>,
}

impl std::io::Write for Stopping {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        if text.windows(4).any(|of| of == b"IOPS") {
            self.left = self.left.map(|left| left.saturating_sub(1));
            self.stop.store(self.left == Some(0), Ordering::SeqCst);
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_repeat_that_failed_shifts_no_other() {
    let cell = |repeats: &[(u32, f64)]| {
        let outcome = run(
            &Simulated::new().with("a", device()),
            &plan(&["a"], Pattern::RandRead),
        );
        let mut cell = outcome.result.configurations[0].cells[0].clone();
        let repeat = |&(repeat, iops): &(u32, f64)| RepeatResult {
            repeat,
            iops,
            ..RepeatResult::default()
        };
        cell.repeats = repeats.iter().map(repeat).collect();
        cell
    };
    let (base, ours) = cell(&[(1, 10.0), (2, 20.0), (3, 30.0)]).pairs(&cell(&[(2, 2.0), (3, 3.0)]));
    assert_eq!((base, ours), (vec![20.0, 30.0], vec![2.0, 3.0]));
    let (base, _) = cell(&[(0, 10.0), (0, 20.0)]).pairs(&cell(&[(0, 1.0), (0, 2.0)]));
    assert_eq!(base, [10.0, 20.0], "of an old result");
}

#[test]
fn what_comes_between_accesses_is_done_and_counted_apart() {
    let stacks = Simulated::new().with("a", device());
    let run_with = |change: &dyn Fn(&mut SweepPlan)| {
        let mut plan = plan(&["a"], Pattern::RandWrite);
        plan.matrices[0].threads = vec![1];
        plan.matrices[0].depths = vec![1];
        change(&mut plan);
        let outcome = run(&stacks, &plan);
        assert_eq!(outcome.exit_code(), 0, "{:?}", outcome.result.head.problems);
        outcome.result.configurations[0].cells[0].repeats[0].clone()
    };
    let near = |value: f64, want: f64| (value / want - 1.0).abs() < 0.06;
    let plain = run_with(&|_| ());
    assert!(near(plain.iops, 1e6 / 105.0) && plain.flushes.is_none());
    // Four writes and a flush, 105 us each.
    let flushed = run_with(&|plan| plan.access.flush_every = 4);
    let flushes = flushed.flushes.expect("flushes");
    assert!(near(flushed.iops, 0.8 * plain.iops), "{}", flushed.iops);
    assert!(near(flushes.per_s, flushed.iops / 4.0), "{flushes:?}");
    assert!(near(flushes.latency_us.mean, 105.0));
    let thinking = run_with(&|plan| plan.access.think = Duration::from_micros(395));
    assert!(near(thinking.iops, 2_000.0), "{}", thinking.iops);
    assert!(
        near(thinking.latency_us.mean, 105.0),
        "thinking is no latency"
    );
    let mixed = run_with(&|plan| {
        plan.access.sizes = vec![
            "4k:75".parse().expect("a share"),
            "64k:25".parse().expect("a share"),
        ];
    });
    let each = mixed.mib_s * MIB as f64 / mixed.iops;
    assert!(near(each, 0.75 * 4096.0 + 0.25 * 65536.0), "{each}");
    let mut verified = plan(&["a"], Pattern::RandRw);
    verified.verify = true;
    verified.access.sizes = vec![
        "4k:50".parse().expect("a share"),
        "16k:50".parse().expect("a share"),
    ];
    verified.access.distribution = "zipf:1.2".parse().expect("a distribution");
    assert_eq!(run(&stacks, &verified).exit_code(), 0);
}

#[test]
fn accesses_that_cannot_be_are_refused_by_name() {
    let stacks = Simulated::new().with("a", device());
    let refused = |change: &dyn Fn(&mut SweepPlan), pattern| {
        let mut plan = plan(&["a"], pattern);
        change(&mut plan);
        let error = run_sweep(&plan, &stacks, &Progress::silent()).expect_err("refused");
        assert_eq!(error.exit_code(), 2, "{error}");
        error.to_string()
    };
    let trims = refused(&|plan| plan.access.trim_pct = 10, Pattern::RandRw);
    assert!(trims.contains("a gives no space back"), "{trims}");
    let zipf = |plan: &mut SweepPlan| {
        plan.access.distribution = "zipf:1".parse().expect("a distribution");
    };
    assert!(refused(&zipf, Pattern::Read).contains("distribution"));
    let sizes = |plan: &mut SweepPlan| {
        plan.access.sizes = vec!["512:100".parse().expect("a share")];
    };
    assert!(refused(&sizes, Pattern::RandRead).contains("multiple"));
}

/// Counts how often a device is opened: once for each load thread.
struct Counted(Simulated, std::sync::atomic::AtomicU32);

impl Stacks for Counted {
    fn prepare(&self, spec: &str, options: &PrepareOptions) -> Result<Prepared, LabError> {
        self.0.prepare(spec, options)
    }

    fn open(&self, spec: &str, options: &OpenOptions) -> Result<Box<dyn Worker>, LabError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.open(spec, options)
    }
}

#[test]
fn cells_have_the_procedure_of_their_matrix() {
    let mut plan = plan(&["a"], Pattern::RandWrite);
    plan.precondition.settle_limit = Duration::ZERO;
    let before = |block_bytes| Conditioning {
        pattern: Pattern::RandWrite,
        block_bytes,
        threads: 5,
        depth: 2,
        time: Duration::from_millis(50),
        until_steady: false,
    };
    let mut large = plan.matrices[0].clone();
    large.blocks = vec![65_536];
    large.procedure = Procedure {
        measure: Some(Duration::from_millis(400)),
        repeats: Some(2),
        sync: true,
        precondition: Some(before(65_536)),
        ..Procedure::default()
    };
    plan.matrices[0].procedure.precondition = Some(before(4096));
    plan.matrices.push(large);
    let stacks = Counted(Simulated::new().with("a", device()), 0.into());
    let outcome = run_sweep(&plan, &stacks, &Progress::silent()).expect("it runs");
    let cells = &outcome.result.configurations[0].cells;
    let repeats: Vec<usize> = cells.iter().map(|cell| cell.repeats.len()).collect();
    assert_eq!(repeats, [3, 3, 2, 2]);
    assert!(cells.iter().all(|cell| !cell.partial));
    let sync: Vec<bool> = cells.iter().map(|cell| cell.sync).collect();
    assert_eq!(sync, [false, false, true, true]);
    let own = |at: usize| cells[at].procedure.clone().expect("its own");
    assert_eq!((own(0).seconds, own(2).seconds), (0.2, 0.4));
    assert_eq!(
        own(2).precondition.as_deref(),
        Some("0.05 s of randwrite 64k 5 x 2")
    );
    // Filled once, preconditioned once a kind and not once a cell, then two threads a repeat.
    let opened = stacks.1.load(Ordering::SeqCst);
    assert_eq!(opened, 1 + 2 * 5 + 2 * (3 + 3 + 2 + 2));
    plan.matrices[0].procedure.precondition = Some(Conditioning {
        pattern: Pattern::Read,
        ..before(4096)
    });
    let error = plan.check().expect_err("reads bring nothing into a state");
    assert!(error.to_string().contains("must write"), "{error}");
}

/// Nodes of a pool of the lab's own, which lose a copy after the first look.
struct Copies(Arc<AtomicBool>);

impl Service for Copies {
    fn url(&self) -> &str {
        "a"
    }

    fn unlike(&self) -> Option<String> {
        let had_lost = self.0.swap(true, Ordering::Relaxed);
        had_lost.then(|| "the copy of node b is not in sync".to_owned())
    }
}

impl Services for Copies {
    fn serve(&self, _: &str, _: &PrepareOptions) -> Result<Box<dyn Service>, LabError> {
        Err(LabError::environment("none"))
    }

    fn pool(&self, _: &crate::PoolStack) -> Result<Box<dyn Service>, LabError> {
        Ok(Box::new(Self(Arc::clone(&self.0))))
    }
}

/// Their processor time is one machine's, and what lost a copy is flagged.
#[test]
fn nodes_of_the_lab_s_own_share_a_machine_and_are_looked_at_after_each_cell() {
    let stacks = Simulated::new().with("a", device());
    let mut plan = plan(&["a"], Pattern::RandRead);
    plan.configurations[0].pool = Some(crate::Pool {
        layout: "mirror:1".into(),
        drives: 1,
        nodes: Some(2),
        ..crate::Pool::default()
    });
    plan.repeats = 2;
    let means = Means {
        stacks: &stacks,
        services: &Copies(Arc::default()),
        clients: None,
        progress: &Progress::silent(),
        journal: &mut Journal::none(),
    };
    let result = run_plan(&plan, means).expect("the run begins").result;
    let cells = &result.configurations[0].cells;
    assert_eq!(cells[0].nodes, 2);
    assert_eq!(cells[0].repeats[0].unlike, None);
    assert!(cells[1].repeats[0].unlike.is_some());
    let flags = &result.head.flags;
    let told = flags.iter().any(|flag| flag.contains("node b is not in"));
    assert!(told, "{flags:?}");
    assert_eq!(plan.configurations[0].machines(&plan), 1);
    // Nodes of one's own are machines.
    plan.configurations[0].pool = None;
    plan.nodes = 2;
    assert_eq!(plan.configurations[0].machines(&plan), 2);
}
