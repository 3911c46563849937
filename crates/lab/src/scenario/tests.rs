use std::path::Path;
use std::time::Duration;

use super::*;
use crate::simulated::{Model, Simulated};
use crate::units::parse_block;
use crate::{
    CellSpec, Configuration, Journal, LabError, Means, OpenOptions, Pattern, PoolStack,
    PrepareOptions, Prepared, Progress, ResultFile, RunOutcome, Service, Services, Stacks,
    SweepPlan, Worker,
};

const MIB: u64 = 1 << 20;

/// Opens simulated devices whatever the spec: a stripe is twice as parallel, and what is served
/// is slower.
struct Lab(Simulated);

impl Lab {
    fn new() -> Self {
        let model = |us, parallel| Model::new(256 * MIB, Duration::from_micros(us), parallel);
        let devices = Simulated::new()
            .with("one", model(2000, 1))
            .with("stripe", model(2000, 2))
            .with("served", model(2500, 2));
        Self(devices)
    }

    fn kind(spec: &str) -> &'static str {
        match spec {
            _ if spec.starts_with("nvme-tcp:") => "served",
            _ if spec.starts_with("stripe:") => "stripe",
            _ => "one",
        }
    }
}

impl Stacks for Lab {
    fn prepare(&self, spec: &str, options: &PrepareOptions) -> Result<Prepared, LabError> {
        assert!(!spec.contains('{'), "a placeholder is left in {spec}");
        self.0.prepare(Self::kind(spec), options)
    }

    fn open(&self, spec: &str, options: &OpenOptions) -> Result<Box<dyn Worker>, LabError> {
        self.0.open(Self::kind(spec), options)
    }
}

struct Server;

impl Services for Server {
    fn serve(&self, spec: &str, _: &PrepareOptions) -> Result<Box<dyn Service>, LabError> {
        assert!(spec.starts_with("stripe:file:/"), "{spec}");
        Ok(Box::new(Server))
    }

    fn pool(&self, pool: &PoolStack) -> Result<Box<dyn Service>, LabError> {
        assert!(pool.pool.drives >= 4 && pool.bytes > 0, "{pool:?}");
        Ok(Box::new(Server))
    }
}

impl Service for Server {
    fn url(&self) -> &str {
        "nvme-tcp://127.0.0.1:4420/nqn?ns=1"
    }
}

fn options(dir: &Path) -> ScenarioOptions {
    ScenarioOptions {
        scale: Scale::MIN,
        dir: dir.to_owned(),
        destroy_data: false,
        changed: vec!["--set measure.repeat=2".into()],
    }
}

/// A scenario run to its end on the simulated devices.
fn ran(text: &str, dir: &Path) -> RunOutcome {
    run(text, dir).expect("it runs")
}

fn run(text: &str, dir: &Path) -> Result<RunOutcome, LabError> {
    let means = Means {
        stacks: &Lab::new(),
        services: &Server,
        progress: &Progress::silent(),
        journal: &mut Journal::none(),
        clients: None,
    };
    run_scenario(text, &options(dir), means)
}

fn shipped(name: &str) -> ScenarioFile {
    ScenarioFile::parse(&scenario_text(name).expect("it ships")).expect("it parses")
}

#[test]
fn what_ships_has_the_published_cells() {
    let plan = shipped("nvmeof-local-vs-remote").plan().expect("a plan");
    assert_eq!(plan.cells().len(), 168);
    let plan = shipped("virtual-device-scaling").plan().expect("a plan");
    assert_eq!(plan.cells().len(), 64);
    let plan = shipped("drive-baseline").plan().expect("a plan");
    assert_eq!(plan.cells().len(), 7);
    let plan = shipped("vsan-vs-s2d").plan().expect("a plan");
    assert_eq!(plan.cells().len(), 37 + 3);
    let usable = |of: &Configuration| of.pool.as_ref().and_then(crate::Pool::usable_pct);
    let usable: Vec<_> = plan.configurations.iter().map(usable).collect();
    assert_eq!(usable, [Some(80.0), Some(50.0)]);
    for (name, table) in [
        ("nvmeof-local-vs-remote", "local"),
        ("virtual-device-scaling", "2"),
        ("drive-baseline", "single_drive"),
        ("vsan-vs-s2d", "vsan_mirror_raid5"),
        ("vsan-vs-s2d", "s2d_map_mirror_only"),
        ("vsan-vs-s2d-tiers", "s2d_map_mirror_only"),
        ("vsan-vs-s2d-tiers", "s2d_map_both_tiers"),
    ] {
        let file = shipped(name);
        let published = file.published.as_deref().map(Published::table);
        let published = published.expect("named").expect("a table");
        for cell in file.plan().expect("a plan").cells() {
            assert!(
                published.find(table, &cell).is_some(),
                "{name}: {}",
                cell.slug()
            );
        }
    }
}

#[test]
fn every_published_row_of_vsan_and_storage_spaces_has_a_cell() {
    const CSV: &str = include_str!("../../../../published/vsan_vs_s2d.csv");
    let table = Published::table("vsan_vs_s2d.csv").expect("a table");
    let mut cells = std::collections::HashSet::new();
    for name in ["drive-baseline", "vsan-vs-s2d", "vsan-vs-s2d-tiers"] {
        let file = shipped(name);
        let plan = file.plan().expect("a plan");
        for of in file
            .configuration
            .iter()
            .filter_map(|c| c.published.as_ref())
        {
            let found = |cell: &CellSpec| table.find(of, cell).is_some();
            let found = plan.cells().into_iter().filter(found);
            cells.extend(found.map(|cell| (of.clone(), cell)));
        }
    }
    assert_eq!(cells.len(), CSV.lines().count() - 1);
}

#[test]
fn min_is_minutes_at_most() {
    for (name, _) in SHIPPED {
        let file = shipped(name);
        let mut plan = file.plan().expect("a plan");
        let kept: Vec<CellSpec> = file
            .promise
            .iter()
            .map(|p| p.cell().expect("a cell"))
            .collect();
        Scale::MIN.apply(&mut plan, &kept);
        let one = |cell: &CellSpec| {
            let of = plan.measuring(cell);
            (of.measure + of.warmup) * of.repeats
        };
        let configurations = plan.configurations.len() as u32;
        let measured = plan.cells().iter().map(one).sum::<Duration>() * configurations;
        assert!(measured < Duration::from_secs(60), "{name}: {measured:?}");
        assert!(plan.size.is_some_and(|size| size == 128 * MIB));
        assert_eq!(plan.repeats, 3);
        assert!(kept.iter().all(|cell| plan.cells().contains(cell)));
        let mut whole = file.plan().expect("a plan");
        Scale::FULL.apply(&mut whole, &kept);
        assert_eq!(whole, file.plan().expect("a plan"));
    }
}

#[test]
fn the_published_procedure_is_told_by_kind_of_cell_and_can_be_set() {
    let plan = shipped("vsan-vs-s2d").plan().expect("a plan");
    let of = |plan: &SweepPlan, role: &str| {
        let matrix = plan.matrices.iter().find(|matrix| matrix.role == role);
        let cell = matrix.expect("there").cells().next().expect("a cell");
        plan.measuring(&cell)
    };
    let hours =
        |of: crate::procedure::Measuring| of.precondition.map(|of| of.time.as_secs() / 3600);
    let (read, write) = (of(&plan, "4k read"), of(&plan, "4k write"));
    assert_eq!(
        (read.measure.as_secs(), write.measure.as_secs()),
        (600, 1800)
    );
    assert_eq!(
        (hours(read), hours(of(&plan, "64k write"))),
        (Some(4), Some(2))
    );
    let text = scenario_text("vsan-vs-s2d").expect("ships");
    let set = [
        "matrix.4k write.seconds=60",
        "matrix.4k write.precondition.seconds=30",
    ];
    let set = with_set(&text, &set.map(str::to_owned)).expect("set");
    let plan = ScenarioFile::parse(&set)
        .expect("parses")
        .plan()
        .expect("a plan");
    let write = of(&plan, "4k write");
    assert_eq!(write.measure.as_secs(), 60);
    assert_eq!(write.precondition.map(|of| of.time.as_secs()), Some(30));
    assert_eq!(of(&plan, "4k read"), read, "nothing else");
}

#[test]
fn remote_is_served_and_stands_beside_what_was_published() {
    let dir = tempfile::tempdir().expect("a folder");
    let outcome = ran(
        &scenario_text("nvmeof-local-vs-remote").expect("ships"),
        dir.path(),
    );
    assert_eq!(outcome.exit_code(), 0, "{:?}", outcome.result.head.problems);
    let remote = &outcome.result.configurations[1];
    assert!(remote.remote && remote.spec.starts_with("nvme-tcp:"));
    let cell = &remote.cells[0];
    let published = cell
        .published
        .as_ref()
        .and_then(|p| p.pct_of_first)
        .expect("published");
    assert!((published - 100.0 * 346_726.0 / 452_210.0).abs() < 1e-9);
    let ours = cell.versus_first.as_ref().expect("a ratio").ratio;
    assert!((ours - 0.8).abs() < 0.03, "{ours}");
    assert_eq!(
        (cell.role.as_str(), cell.pattern),
        ("mdf", Pattern::RandRead)
    );
    assert_eq!(
        std::fs::read_dir(dir.path()).expect("a folder").count(),
        0,
        "cleaned up"
    );
}

#[test]
fn the_depth_from_which_it_doubles_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let outcome = ran(
        &scenario_text("virtual-device-scaling").expect("ships"),
        dir.path(),
    );
    let check = outcome
        .result
        .findings
        .iter()
        .find(|c| c.name == "randread 4k, 1 thread");
    let text = &check.expect("judged").text;
    assert!(text.contains("doubles from depth 4 on"), "{text}");
    assert!(
        text.contains("published: does not double (at most 1.35 x, at depth 128)"),
        "{text}"
    );
    assert_eq!(outcome.exit_code(), 0);
}

#[test]
fn a_missed_promise_fails_the_run() {
    let dir = tempfile::tempdir().expect("a folder");
    let text = scenario_text("drive-baseline").expect("ships");
    let strict = text.replace("iops = 10000", "iops = 100000");
    let outcome = ran(&strict, dir.path());
    assert_eq!(outcome.exit_code(), 1);
    let missed: Vec<_> = outcome
        .result
        .head
        .checks
        .iter()
        .filter(|check| !check.passed)
        .collect();
    assert!(missed[0].text.contains("of 100,000 IOPS") && missed[0].text.ends_with("MISSED"));
    let kept = outcome
        .result
        .head
        .checks
        .iter()
        .find(|check| check.name.contains("read-1m"));
    assert!(kept.is_some_and(|check| check.passed), "{kept:?}");
}

#[test]
fn claims_stand_beside_the_first_configuration() {
    let dir = tempfile::tempdir().expect("a folder");
    let text = |claim: &str| {
        format!(
            "name = 'x'\n[measure]\nsize = '128MiB'\nseconds = 0.2\n[[configuration]]\nname = 'one'\n\
             stack = 'file:{{dir}}/a'\n[[configuration]]\nname = 'two'\nstack = 'stripe:file:{{dir}}/b'\n\
             distribution = 'hot:100/14'\n\
             [[matrix]]\npattern = 'randwrite'\nblock = ['64k']\nthreads = [1]\ndepth = [4]\n\
             [[claim]]\nconfiguration = {claim}\n"
        )
    };
    // Two in parallel are twice as many.
    for (claim, passes) in [
        ("'two'\nfigure = 'iops'\nat_least = 1.8", true),
        ("'two'\nfigure = 'iops'\nat_least = 2.2", false),
        ("'two'\nfigure = 'write_p95'\nat_most = 0.6", true),
        ("'two'\nfigure = 'write_p95'\nat_most = 0.4", false),
        ("'one'\nfigure = 'stalled'\nat_most = 0", true),
    ] {
        let outcome = ran(&text(claim), dir.path());
        let check = &outcome.result.head.checks[0];
        assert_eq!(check.passed, passes, "{claim}: {check:?}");
        assert_eq!(check.text.contains("MISSED"), !passes, "{check:?}");
        assert_eq!(outcome.exit_code(), i32::from(!passes), "{claim}");
    }
    // One at a time is no faster: what is claimed of the others is not asked of it.
    let narrow = "[[matrix]]\nrole = 'narrow'\npattern = 'randwrite'\nblock = ['64k']\nthreads = [1]\n\
                  depth = [1]\n[[claim]]";
    let both = |claim: &str| {
        text(claim)
            .replace("[[claim]]", narrow)
            .replace("= [4]", "= [4]\nrole = 'wide'")
    };
    for (role, passes) in [("wide", true), ("narrow", false)] {
        let claim = format!("'two'\nrole = '{role}'\nfigure = 'iops'\nat_least = 1.8");
        let check = ran(&both(&claim), dir.path()).result.head.checks.remove(0);
        assert_eq!(check.passed, passes, "{check:?}");
        assert!(
            check.name.ends_with(role) && check.text.contains("one cell"),
            "{check:?}"
        );
    }
    for wrong in [
        "'one'\nfigure = 'iops'",
        "'unknown'\nfigure = 'stalled'",
        "'two'\nrole = 'unknown'\nfigure = 'iops'",
    ] {
        let file = ScenarioFile::parse(&text(wrong)).expect("parses");
        let error = file.plan().expect_err("refused");
        assert!(
            error.exit_code() == 2 && error.to_string().contains("claim"),
            "{error}"
        );
    }
}

#[test]
fn a_stack_is_measured_in_the_place_of_a_pool() {
    let text = scenario_text("vsan-vs-s2d").expect("ships");
    let set = ["configuration.mirror.stack=nvme-tcp://127.0.0.1:1/nqn?ns=1".to_owned()];
    let text = with_set(&text, &set).expect("set");
    let plan = ScenarioFile::parse(&text).expect("parses").plan();
    let plan = plan.expect("a plan");
    assert!(plan.configurations[0].pool.is_some());
    let mirror = &plan.configurations[1];
    assert!(
        mirror.pool.is_none() && mirror.spec.starts_with("nvme-tcp:"),
        "{mirror:?}"
    );
}

#[test]
fn pools_are_as_large_and_as_full_as_they_are_asked_to_be() {
    let plan = shipped("vsan-vs-s2d-tiers").plan().expect("a plan");
    let pool = plan.configurations[0].pool.clone().expect("a pool");
    // A fifth twice, four fifths 1.25 times.
    let usable = pool.usable_pct().expect("known");
    assert!((usable - 100.0 / 1.4).abs() < 0.01, "{usable}");
    assert!(
        pool.words(MIB).contains("hot mirror:2 for 20 % of it"),
        "{}",
        pool.words(MIB)
    );
    let plan = shipped("write-cache").plan().expect("a plan");
    let pool = plan.configurations[1].pool.clone().expect("a pool");
    let words = pool.words(4 << 30);
    assert!(
        words.contains("70 % full") && words.contains("2 faster"),
        "{words}"
    );
    assert!(pool.words(409 * MIB).contains("20 % full instead of 70"));
    assert_eq!(pool.drive_bytes(7 << 30), 5 << 30);
    let over = crate::Pool {
        full_pct: Some(95),
        ..pool
    };
    assert!(over.check().is_err_and(|why| why.contains("full_pct")));
}

#[test]
fn placeholders_and_mistakes() {
    let dir = Path::new("/d");
    let filled = file::fill_in("a:{dir}/x?size={size/2},{size}", Some(dir), Some(5 * MIB));
    assert_eq!(filled, Ok("a:/d/x?size=3145728,5242880".to_owned()));
    for bad in ["{", "{what}", "{size/0}", "{size/x}"] {
        assert!(file::fill_in(bad, Some(dir), Some(MIB)).is_err(), "{bad}");
    }
    assert!(file::fill_in("{size}", None, None).is_err());
    let typo = scenario_text("drive-baseline")
        .expect("ships")
        .replace("seconds", "secnods");
    let error = ScenarioFile::parse(&typo).expect_err("refused");
    assert!(error.exit_code() == 2 && error.to_string().contains("secnods"));
    for seconds in ["0", "1e19"] {
        let text = format!(
            "name = 'x'\n[measure]\nseconds = {seconds}\n[[configuration]]\nname = 'one'\nstack = 'file:a'\n\
             [[matrix]]\npattern = 'read'\nblock = ['4k']\nthreads = [1]\ndepth = [1]\n"
        );
        let error = run(&text, dir).expect_err("refused").to_string();
        assert!(error.starts_with("seconds: must be between"), "{error}");
    }
    assert_eq!(scenario_text("/nowhere").map_err(|e| e.exit_code()), Err(2));
    assert!(parse_block("1m").is_ok());
}

#[test]
fn a_sweep_becomes_a_scenario_that_repeats_it() {
    let mut plan = shipped("virtual-device-scaling").plan().expect("a plan");
    // With procedures of its own.
    plan.matrices = shipped("vsan-vs-s2d").plan().expect("a plan").matrices;
    plan.nodes = 2;
    let text = toml::to_string_pretty(&ScenarioFile::of(&plan)).expect("serialises");
    let again = ScenarioFile::parse(&text)
        .expect("parses")
        .plan()
        .expect("a plan");
    assert_eq!(again, plan);
}

/// `ASHLAR_LAB_SAMPLE=DIR cargo test -p ashlar-lab -- --ignored sample_scenario`
#[test]
#[ignore = "writes a report to look at"]
fn sample_scenario() {
    let out = std::env::var_os("ASHLAR_LAB_SAMPLE")
        .map(PathBuf::from)
        .expect("a folder");
    let dir = tempfile::tempdir().expect("a folder");
    for name in ["nvmeof-local-vs-remote", "virtual-device-scaling"] {
        let outcome = ran(&scenario_text(name).expect("ships"), dir.path());
        outcome.write(&out.join(name)).expect("written");
        println!("{}", outcome.result.text());
    }
}
