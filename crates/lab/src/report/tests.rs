use std::path::PathBuf;
use std::time::Duration;

use crate::result::RunResult;
use crate::simulated::{Model, Simulated};
use crate::{
    Comparison, Configuration, Matrix, Pattern, Progress, ResultFile, RunOutcome, SweepPlan,
    run_sweep,
};

/// A sweep of two simulated devices with names that need escaping.
fn outcome() -> RunOutcome {
    let model = |us| Model::new(64 << 20, Duration::from_micros(us), 8);
    let stacks = Simulated::new().with("a", model(80)).with("b", model(100));
    let matrix = |pattern| Matrix {
        role: String::new(),
        pattern,
        read_pct: 60,
        blocks: vec![8192, 65536],
        threads: vec![1, 2],
        depths: vec![1, 8, 32],
        procedure: crate::Procedure::default(),
    };
    let on = |name: &str, spec: &str| Configuration {
        name: name.into(),
        spec: spec.into(),
        remote: false,
        pool: None,
        distribution: None,
    };
    let mut plan = SweepPlan::new(
        vec![on("local <1>", "a"), on("remote & co", "b")],
        vec![matrix(Pattern::RandRead), matrix(Pattern::RandRw)],
    );
    plan.set_measure(Duration::from_millis(60));
    plan.size = Some(32 << 20);
    run_sweep(&plan, &stacks, &Progress::silent()).expect("it runs")
}

#[test]
fn a_run_s_directory_is_complete_and_each_file_reads_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let outcome = outcome();
    outcome.write(dir.path()).expect("written");
    let told = outcome.result.text();
    assert!(
        told.contains("| randread-8k-t1-d8 |") && told.contains("| 80 % |"),
        "{told}"
    );
    assert!(
        told.contains("remote & co is 0.80 x local <1> in IOPS"),
        "{told}"
    );
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect(name);

    let json: serde_json::Value = serde_json::from_str(&read("result.json")).expect("JSON");
    let cell = &json["configurations"][1]["cells"][0];
    for key in [
        "pattern",
        "read_pct",
        "block_bytes",
        "threads",
        "depth",
        "nodes",
        "iops",
        "mib_s",
        "latency_us",
        "cpu_pct",
        "iops_per_cpu_pct",
        "repeats",
        "mean",
        "median",
        "spread",
        "steady",
    ] {
        assert!(cell.get(key).is_some(), "result.json has no {key}");
    }
    for key in ["mean", "p50", "p95", "p99", "p999"] {
        assert!(cell["latency_us"][key].is_number());
    }
    assert!(json["schema"].is_string() && json["machine"].is_object());
    assert!(cell.get("reads").is_none(), "reads alone are no mixed load");
    let cells = json["configurations"][0]["cells"]
        .as_array()
        .expect("cells");
    let mixed = cells.iter().find(|cell| cell["pattern"] == "randrw");
    let repeat = &mixed.expect("a mixed cell")["repeats"][0];
    let (reads, writes) = (&repeat["reads"], &repeat["writes"]);
    assert_eq!(
        (&reads["per_s"], &writes["per_s"]),
        (&repeat["read_iops"], &repeat["write_iops"])
    );
    for part in [reads, writes] {
        assert!(part["latency_us"]["p99"].as_f64() > Some(0.0), "{part}");
    }
    for cell in cells {
        let (all, storage) = (cell["cpu_pct"].as_f64(), cell["storage_cpu_pct"].as_f64());
        assert!(storage.is_none() || storage <= all, "{cell}");
    }

    let fio: serde_json::Value = serde_json::from_str(&read("result.fio.json")).expect("JSON");
    assert_eq!(fio["jobs"].as_array().map(Vec::len), Some(48));
    let job = &fio["jobs"][6];
    assert_eq!(job["job options"]["rw"], "randread");
    assert!(job["read"]["iops"].as_f64().is_some_and(|iops| iops > 0.0));
    assert!(job["read"]["clat_ns"]["percentile"]["99.000000"].is_number());
    assert_eq!(job["write"]["total_ios"], 0);

    let xml = read("result.diskspd.xml");
    let mut reader = quick_xml::Reader::from_str(&xml);
    let mut spans = 0;
    loop {
        match reader.read_event().expect("well-formed") {
            quick_xml::events::Event::Start(e) if e.name().as_ref() == "TestTimeSeconds" => {
                spans += 1
            }
            quick_xml::events::Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(spans, 48);
    assert!(xml.contains("<Percentile>99.99999</Percentile>") && xml.contains("remote &amp; co"));

    assert_eq!(read("result.csv").lines().count(), 49);
    assert_eq!(read("series.csv").lines().count(), 1 + 48 * 3 * 20);
    assert!(read("latency.hlog").contains("Tag=c2.randrw60-64k-t2-d32.r3.write,"));
    assert!(read("sweep.toml").contains("[[matrix]]"));

    let html = read("report.html");
    assert!(html.contains("remote &amp; co") && html.contains("local &lt;1&gt;"));
    let (_, short) = html.split_once("In short").expect("the first table");
    let (short, _) = short.split_once("</table>").expect("its end");
    for what in [
        "Random read: IOPS",
        "Random, 60 % read: IOPS",
        "remote &amp; co against local &lt;1&gt;",
        "0.80 (",
        " of 12 cells)",
        "less in ",
    ] {
        assert!(short.contains(what), "{what}: {short}");
    }
    assert_eq!(
        html.matches("Reads and writes apart").count(),
        1,
        "of mixed loads alone"
    );
    assert!(!html.contains("As published") && html.contains("IOPS / 1 % storage CPU"));
    assert!(html.contains("<svg") && !html.contains("http://") && !html.contains("https://"));
    assert!(!html.contains("NaN") && !html.contains("inf "));
    std::fs::remove_file(dir.path().join("report.html")).expect("removed");
    RunResult::render_again(dir.path()).expect("rendered again");
    assert_eq!(read("report.html"), html);

    let comparison = Comparison::load::<RunResult>(dir.path(), dir.path()).expect("comparable");
    assert_eq!(comparison.rows.len(), 48);
    assert!(
        comparison
            .rows
            .iter()
            .all(|c| c.ratio.as_ref().is_some_and(|r| r.ratio == 1.0))
    );
    assert!(comparison.to_string().contains("median of 48 ratios: 1.00"));
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let error = RunResult::render_again(dir.path()).expect_err("no result");
    assert!(error.exit_code() == 3 && error.to_string().contains("result.json"));
    let file = dir.path().join("file");
    std::fs::write(&file, "x").expect("written");
    let error = crate::check_out_dir(&file).expect_err("a file");
    assert!(error.to_string().contains("output directory"));
    std::fs::write(dir.path().join("result.json"), "{}").expect("written");
    assert!(Comparison::load::<RunResult>(dir.path(), dir.path()).is_err());
}

/// `ASHLAR_LAB_SAMPLE=DIR cargo test -p ashlar-lab -- --ignored sample_report`
#[test]
#[ignore = "writes a report to look at"]
fn sample_report() {
    let dir = std::env::var_os("ASHLAR_LAB_SAMPLE")
        .map(PathBuf::from)
        .expect("a folder");
    outcome().write(&dir).expect("written");
}

#[test]
fn a_database_that_was_measured_beside_is_in_the_same_report_and_result() {
    use crate::result::{DatabaseResult, DatabaseStep};
    use crate::stats::Ratio;
    let dir = tempfile::tempdir().expect("a folder");
    let mut result = outcome().result;
    assert!(!super::html(&result).contains("A database on it"));
    let (plain, remote) = ([1000.0, 1001.0, 1002.0], [810.0, 811.0, 812.0]);
    let ratio = Ratio::of(&plain, &remote).expect("pairs");
    result.database = Some(DatabaseResult {
        title: "TPROC-C".into(),
        version: "SQLite <3>".into(),
        names: ["plain".into(), "remote".into()],
        steps: vec![DatabaseStep {
            users: 1,
            nopm: [1001.0, 811.0],
            p95_us: [900.0, 1100.0],
            pairs: plain.into_iter().zip(remote).map(|(a, b)| [a, b]).collect(),
            text: ratio.words("remote", "plain"),
            ratio: Some(ratio),
        }],
        cautions: vec!["kernel differs".into()],
    });
    result.write(dir.path()).expect("written");
    result.write_report(dir.path()).expect("written");
    let page = std::fs::read_to_string(dir.path().join("report.html")).expect("a report");
    for what in [
        "A database on it: TPROC-C",
        "SQLite &lt;3&gt;",
        "1,001",
        "0.81 to 0.81",
        "kernel differs",
    ] {
        assert!(page.contains(what), "{what}");
    }
    assert!(page.contains("new orders a minute by repeat"));
    // Rendered again from result.json alone.
    RunResult::render_again(dir.path()).expect("rendered");
    let again = std::fs::read_to_string(dir.path().join("report.html")).expect("a report");
    assert_eq!(again, page);
    let kept = RunResult::load(dir.path()).expect("loads").database;
    assert_eq!(kept.map(|of| of.names), result.database.map(|of| of.names));
}

#[test]
fn a_cell_that_was_never_done_is_a_dash_and_a_caveat_is_said_once() {
    let mut result = outcome().result;
    let gone = result.configurations[1].cells.remove(0);
    result.configurations[1].cells.truncate(3);
    result.head.flags = (0..5).map(|at| format!("cell {at}: not steady")).collect();
    result.head.scenario = Some(crate::result::ScenarioNote {
        name: "x".into(),
        about: String::new(),
        scale: 1.0,
        scaled: "as written".into(),
        source: String::new(),
        changed: vec!["--set measure.seconds=5".into()],
    });
    let html = super::html(&result);
    let (_, tables) = html.split_once("<h2>Tables").expect("tables");
    assert!(!tables.contains("not measured"), "{}", gone.spec().slug());
    assert!(tables.contains("<td class=\"edge\">-</td>"), "{html}");
    assert_eq!(html.matches("not steady").count(), 1);
    assert!(html.contains("--set measure.seconds=5"));
    // Configurations alone tell their figures.
    result.configurations.truncate(1);
    let html = super::html(&result);
    let (_, short) = html.split_once("In short").expect("the first table");
    assert!(short.contains(" IOPS, mean latency "), "{short}");
}

const DOCUMENTED: &str = include_str!("../../../../docs/results.md");

#[test]
fn every_key_of_a_result_is_documented() {
    let mut result = outcome().result;
    result.database = None;
    result.head.scenario = Some(crate::result::ScenarioNote {
        name: "x".into(),
        about: String::new(),
        scale: 1.0,
        scaled: String::new(),
        source: String::new(),
        changed: vec!["--users 2".into()],
    });
    let text = serde_json::to_value(&result).expect("JSON");
    let keys = crate::keys(&text);
    assert!(keys.len() > 70, "{}", keys.len());
    for key in keys {
        assert!(
            DOCUMENTED.contains(&format!("`{key}`")),
            "{key} is not in docs/results.md"
        );
    }
    let comparison = Comparison::of(&result, &result).expect("the same");
    for key in crate::keys(&serde_json::to_value(&comparison).expect("JSON")) {
        assert!(DOCUMENTED.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn every_result_has_the_same_head_and_kinds_keep_their_names() {
    let head = serde_json::to_value(crate::Head::new(crate::Kind::Scan, "t")).expect("JSON");
    let keys: Vec<&str> = head
        .as_object()
        .expect("keys")
        .keys()
        .map(String::as_str)
        .collect();
    let stable = [
        "checks", "flags", "kind", "machine", "partial", "problems", "schema", "title",
    ];
    assert!(stable.iter().all(|key| keys.contains(key)), "{keys:?}");
    assert_eq!(head["schema"], "ashlar-result-2");
    // As docs/results.md has them: the kind, and its schema in version 1.
    for (kind, old) in [
        ("devices", "ashlar-lab-1"),
        ("oltp", "ashlar-oltp-1"),
        ("databases", "ashlar-oltp-scenario-1"),
        ("fleet", "ashlar-fleet-1"),
        ("scan", "ashlar-scan-1"),
        ("failover", "ashlar-failover-1"),
        ("faults", "ashlar-faults-1"),
        ("torn-pages", "ashlar-torn-pages-1"),
        ("ha", "ashlar-ha-1"),
        ("versus", "ashlar-versus-1"),
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        let read = |text: &str| {
            std::fs::write(dir.path().join("result.json"), text).expect("written");
            crate::kind_in(dir.path()).map(|kind| serde_json::to_value(kind).expect("JSON"))
        };
        let new = format!("{{\"schema\":\"ashlar-result-2\",\"kind\":\"{kind}\"}}");
        assert_eq!(read(&new), Ok(kind.into()));
        assert_eq!(read(&format!("{{\"schema\":\"{old}\"}}")), Ok(kind.into()));
        assert!(DOCUMENTED.contains(&format!("| `{kind}` |")), "{kind}");
        let newer =
            read("{\"schema\":\"ashlar-result-3\",\"kind\":\"scan\"}").expect_err("not known");
        assert!(newer.to_string().contains("ashlar-result-3"), "{newer}");
    }
}

/// A result of a version before repeats had numbers and verdicts were corrected.
const OLD: &str = include_str!("../../tests/data/ashlar-lab-1.json");

#[test]
fn results_of_older_versions_are_read_and_no_key_is_gone() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("result.json"), OLD).expect("written");
    let read = RunResult::load(dir.path()).expect("it is read");
    let old = crate::keys(&serde_json::from_str(OLD).expect("JSON"));
    let new = crate::keys(&serde_json::to_value(&read).expect("JSON"));
    assert_eq!(read.head.schema, "ashlar-result-2");
    let gone: Vec<&String> = old.difference(&new).collect();
    assert!(gone.is_empty(), "renamed or removed: {gone:?}");
    let ratio = read.configurations[1].cells[0].versus_first.as_ref();
    assert!(ratio.is_some_and(|of| of.questions == 0 && of.chance.is_none()));
    let same = Comparison::of(&read, &read).expect("compared with itself");
    assert_eq!(same.rows.len(), 4);
    RunResult::render_again(dir.path()).expect("rendered");
}
