use std::time::Duration;

use ashlar_lab::Progress;

use super::*;
use crate::inputs::Mix;
use crate::scan::{self, ScanPlan};
use crate::schema::Shape;
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
    let documented = include_str!("../../../../docs/results.md");
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
    let keys: std::collections::BTreeSet<String> = all.iter().flat_map(ashlar_lab::keys).collect();
    assert!(keys.len() > 60, "{}", keys.len());
    for key in keys {
        assert!(
            documented.contains(&format!("`{key}`")),
            "{key} is not in docs/results.md"
        );
    }
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
}
