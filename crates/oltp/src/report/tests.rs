use std::time::Duration;

use ashlar_lab::Progress;
use ashlar_lab::stats::Ratio;

use super::*;
use crate::inputs::Mix;
use crate::scan::{self, ScanPlan};
use crate::schema::Shape;
use crate::usage::DeviceBytes;
use crate::{BuildPlan, Mode, RunPlan, Sqlite, begin, build, run};

fn ran(dir: &Path) -> OltpResult {
    let database: std::sync::Arc<dyn crate::database::Database> =
        std::sync::Arc::new(Sqlite::new(dir.join("a <b>.db")));
    let shape = Shape {
        warehouses: 1,
        items: 200,
        customers: 60,
    };
    let plan = BuildPlan {
        shape,
        seed: 1,
        users: 1,
        destroy_data: false,
    };
    let silent = Progress::silent();
    build(database.as_ref(), &plan, &silent).expect("built");
    let plan = RunPlan {
        users: vec![1, 2],
        ramp: Duration::ZERO,
        measure: Duration::from_millis(2100),
        mode: Mode::Timed,
        mix: Mix::TprocC,
        all_warehouses: false,
        pauses: None,
        slow_down: 0.0,
        repeats: 1,
        seed: 2,
    };
    let mut result = begin(database.as_ref(), &plan).expect("begins");
    run(&database, &plan, &mut result, &silent).expect("ran");
    result
}

/// What every report must be: whole, self-contained, without figures that are none.
fn sound(html: &str) {
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>"));
    for bad in ["NaN", "inf ", "http://", "https://", "<script", "<b>"] {
        assert!(!html.contains(bad), "{bad} in {html}");
    }
}

#[test]
fn a_run_s_report_has_charts_latencies_and_conditions() {
    let dir = tempfile::tempdir().expect("folder");
    let result = ran(dir.path());
    let out = dir.path().join("out");
    std::fs::create_dir(&out).expect("made");
    result.write(&out).expect("written");
    render_report(&out).expect("rendered");
    let html = std::fs::read_to_string(out.join("report.html")).expect("there");
    sound(&html);
    for word in [
        "NOPM",
        "stock_level",
        "all hold",
        "Over time",
        "machine CPU",
        "<svg",
        "a &lt;b&gt;.db",
    ] {
        assert!(html.contains(word), "no {word}");
    }
    assert!(
        html.contains("NOPM with 1, 2 users") && html.contains("new orders a minute, 95 % within")
    );
    assert!(
        result
            .steps
            .iter()
            .all(|step| step.machine_cpu_pct.is_some())
    );
    // A database of a few MB is in memory, and that is told where it can be known.
    let told = result
        .head
        .flags
        .iter()
        .any(|flag| flag.contains("from memory"));
    let known = result
        .steps
        .iter()
        .all(|s| s.device.own_read_bytes.is_some());
    assert!(told || !known, "{:?}", result.head.flags);
    let known = result.steps.iter().all(|s| s.device.read_bytes.is_some());
    assert!(
        result
            .steps
            .iter()
            .all(|s| known != s.device_series.is_empty())
    );
}

#[test]
fn two_runs_stand_beside_each_other_with_what_their_difference_is_worth() {
    let dir = tempfile::tempdir().expect("folder");
    let mut first = ran(dir.path());
    let template = first.steps[0].clone();
    first.steps.clear();
    let of = |nopm: f64| {
        let mut result = first.clone();
        for repeat in 1..=5 {
            let mut step = template.clone();
            (step.repeat, step.nopm) = (repeat, nopm + f64::from(repeat));
            result.steps.push(step);
        }
        result.sum_up();
        result
    };
    let (a, b, c) = (
        dir.path().join("a"),
        dir.path().join("b"),
        dir.path().join("c"),
    );
    for (path, nopm) in [(&a, 1000.0), (&b, 810.0), (&c, 1000.0)] {
        std::fs::create_dir(path).expect("made");
        of(nopm).write(path).expect("written");
    }
    let to = dir.path().join("both.html");
    render_comparison(&a, &b, &to).expect("rendered");
    let html = std::fs::read_to_string(&to).expect("there");
    sound(&html);
    assert!(
        html.contains("b is 0.81 x a (0.81-0.81 over 5 pairs of repeats)"),
        "{html}"
    );
    assert!(html.contains("not interleaved"));
    assert!(html.contains("b against a") && html.contains("0.81 (0.81 to 0.81)"));
    render_comparison(&a, &c, &to).expect("rendered");
    let html = std::fs::read_to_string(&to).expect("there");
    assert!(html.contains("no difference beyond the noise: c is 1.00 x a"));
}

#[test]
fn a_scan_s_report_has_the_published_run_times_beside_ours() {
    let dir = tempfile::tempdir().expect("folder");
    let plan = ScanPlan {
        rows: 2000,
        readers: vec![1, 12],
        repeats: 2,
        build_users: 1,
    };
    let database = Sqlite::new(dir.path().join("s.db"));
    let quiet = Progress::silent();
    let mut result = scan::begin(&database, &plan, &quiet).expect("made");
    scan::scan(&database, &plan, &mut result, (&quiet, &mut |_| Ok(()))).expect("read");
    result.write(dir.path()).expect("written");
    assert!(ScanResult::is_in(dir.path()) && !OltpResult::is_in(dir.path()));
    render_report(dir.path()).expect("rendered");
    let html = std::fs::read_to_string(dir.path().join("report.html")).expect("there");
    sound(&html);
    // 17.69 s of 12 readers by 2.56 s of one.
    assert!(html.contains("6.91") && html.contains("MB/s"), "{html}");
    assert!(html.contains("In short") && html.contains("Run time with 1, 12 readers"));
}

#[test]
fn every_key_of_a_result_is_documented() {
    let mut run = OltpResult::sample(4, &[1000.0, 1001.0]);
    for step in &mut run.steps {
        let kinds = ["new_order", "payment"].map(|kind| (kind.to_owned(), Default::default()));
        step.transactions.extend(kinds);
        step.clients.push(crate::result::ClientShare {
            lost: true,
            ..Default::default()
        });
    }
    let configuration = crate::scenario::ConfigurationResult {
        oltp: Some(run.clone()),
        ..Default::default()
    };
    let all = [
        serde_json::to_value(&run).expect("JSON"),
        serde_json::to_value(&configuration).expect("JSON"),
        serde_json::to_value(crate::fleet::sample()).expect("JSON"),
    ];
    assert!(all_documented(&all) > 60);
}

/// Every key of these is in the page; how many there are.
fn all_documented(all: &[serde_json::Value]) -> usize {
    let documented = include_str!("../../../../docs/results.md");
    let keys: std::collections::BTreeSet<String> = all.iter().flat_map(ashlar_lab::keys).collect();
    for key in &keys {
        assert!(
            documented.contains(&format!("`{key}`")),
            "{key} is not in docs/results.md"
        );
    }
    keys.len()
}

/// A scan with a step.
fn a_scan() -> ScanResult {
    let step = serde_json::json!({
        "readers": 2, "repeat": 1, "began_unix_s": 1.0, "run_time_s": 2.0, "quickest_s": 1.9, "mb_s": 3.0,
        "server_cpu_s": null, "client_cpu_s": 0.1, "machine_cpu_pct": null, "device": DeviceBytes::default(),
    });
    ScanResult {
        head: Head::new(Kind::Scan, "t"),
        database: Default::default(),
        rows: 1000,
        bytes: 744_000,
        steps: vec![serde_json::from_value(step).expect("a step")],
    }
}

/// Databases with a comparison that has a published one beside it.
fn databases() -> ScenarioResult {
    let note = ashlar_lab::result::ScenarioNote {
        name: "x".into(),
        about: String::new(),
        scale: 1.0,
        scaled: String::new(),
        source: String::new(),
        changed: vec!["--users 2".into()],
    };
    let mut result = ScenarioResult::new("t", note);
    result.comparisons.push(crate::scenario::Compared {
        differ_in: "place".into(),
        figure: "nopm".into(),
        base: "a".into(),
        ours: "b".into(),
        users: 2,
        users_as_written: 100,
        ratio: Ratio::of(&[1.0, 1.1], &[2.0, 2.1]).expect("pairs"),
        text: String::new(),
        published: Some(0.5),
    });
    result
}

/// An instance against a group, with a row of all that there can be.
fn two_sides() -> VersusResult {
    let published = crate::versus::Published {
        fci: 1.0,
        group: 2.0,
        unit: "s".into(),
        fci_volume_mb_s: Some(1.0),
        group_drive_mb_s: Some(2.0),
    };
    let moved = crate::versus::Rate {
        what: "volume".into(),
        side: crate::versus::Moved::Fci,
        read_mb_s: 1.0,
        write_mb_s: 2.0,
    };
    let row = crate::versus::Row {
        count: 2,
        as_written: 12,
        fci_run_time_s: 1.0,
        group_run_time_s: 2.0,
        ratio: Ratio::of(&[1.0, 1.1], &[2.0, 2.1]).expect("pairs"),
        published: Some(published),
        moved: vec![moved],
    };
    let part = crate::versus::Part {
        name: "scan-concurrency".into(),
        title: "t".into(),
        scaled: String::new(),
        crowd: "readers".into(),
        sentence: String::new(),
        rows: vec![row],
    };
    VersusResult {
        head: Head::new(Kind::Versus, "t"),
        parts: vec![part],
        ..VersusResult::default()
    }
}

/// The death of a primary, of which something was counted.
fn a_failover() -> FailoverResult {
    let sample = OltpResult::sample(4, &[1000.0]);
    let kinds = serde_json::json!({ "new_order": crate::ledger::Count::default() });
    FailoverResult {
        head: Head::new(Kind::Failover, "t"),
        before: sample.steps[0].clone(),
        kinds: serde_json::from_value(kinds).expect("counts"),
        ..FailoverResult::default()
    }
}

#[test]
fn every_key_of_scans_comparisons_sides_and_failovers_is_documented() {
    let scan = serde_json::to_value(a_scan()).expect("JSON");
    assert!(all_documented(&[scan]) > 20);
    let compared = serde_json::to_value(databases()).expect("JSON");
    assert!(all_documented(&[compared]) > 20);
    let sides = serde_json::to_value(two_sides()).expect("JSON");
    assert!(all_documented(&[sides]) > 30);
    let failover = serde_json::to_value(a_failover()).expect("JSON");
    assert!(all_documented(&[failover]) > 40);
}

/// As version 1 wrote it: a schema of its own, and no key that came with the common head.
fn of_version_1<R: ResultFile>(result: &R, schema: &str, dir: &Path) {
    let mut old = serde_json::to_value(result).expect("JSON");
    let keys = old.as_object_mut().expect("keys");
    for key in ["kind", "checks"] {
        assert!(keys.remove(key).is_some(), "{key}");
    }
    keys.insert("schema".into(), schema.into());
    std::fs::write(dir.join("result.json"), old.to_string()).expect("written");
}

#[test]
fn results_of_version_1_are_read_and_become_the_one_schema() {
    let dir = tempfile::tempdir().expect("folder");
    let dir = dir.path();
    let run = OltpResult::sample(4, &[1000.0, 1001.0]);
    of_version_1(&run, "ashlar-oltp-1", dir);
    let read = OltpResult::load(dir).expect("read");
    assert_eq!((read.head.kind, &*read.head.title), (Kind::Oltp, "t"));
    assert_eq!(read.steps, run.steps);
    let fleet = crate::fleet::sample();
    of_version_1(&fleet, "ashlar-fleet-1", dir);
    assert!(OltpResult::load(dir).is_err(), "of another kind");
    let read = FleetResult::load(dir).expect("read");
    let scenario = read.head.scenario.clone().expect("it was one");
    assert_eq!((read.head.kind, &*scenario.name), (Kind::Fleet, "fleet"));
    read.write(dir).expect("written");
    let again = std::fs::read_to_string(dir.join("result.json")).expect("there");
    assert!(again.contains("ashlar-result-2"), "{again}");
    render_report(dir).expect("rendered by its kind");
    of_version_1(&a_scan(), "ashlar-scan-1", dir);
    let read = ScanResult::load(dir).expect("read");
    assert_eq!((read.head.kind, &read.steps), (Kind::Scan, &a_scan().steps));
    of_version_1(&databases(), "ashlar-oltp-scenario-1", dir);
    let read = ScenarioResult::load(dir).expect("read");
    let (one, was) = (&read.comparisons[0], &databases().comparisons[0]);
    assert_eq!((one.published, &one.ours), (was.published, &was.ours));
    assert_eq!((one.ratio.pairs, one.ratio.low), (2, was.ratio.low));
    of_version_1(&a_failover(), "ashlar-failover-1", dir);
    let read = FailoverResult::load(dir).expect("read");
    assert_eq!(read.before, a_failover().before);
    of_version_1(&two_sides(), "ashlar-versus-1", dir);
    let read = VersusResult::load(dir).expect("read");
    let (one, was) = (&read.parts[0].rows[0], &two_sides().parts[0].rows[0]);
    assert_eq!((&one.published, &one.moved), (&was.published, &was.moved));
}
