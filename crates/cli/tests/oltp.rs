//! `ashlar lab oltp` as a script sees it: files, exit codes, what is said.

mod common;

use common::lab;

#[test]
fn a_warehouse_is_built_driven_compared_and_found_out_when_damaged() {
    let dir = tempfile::tempdir().expect("folder");
    let lab = |arguments: &[&str]| lab(dir.path(), arguments);
    let run = [
        "oltp",
        "--db",
        "sqlite:a.db",
        "--warehouses",
        "1",
        "--users",
        "1,2",
        "--ramp",
        "100ms",
        "--seconds",
        "0.5",
        "--out",
    ];
    let (code, text) = lab(&[&run[..], &["first"]].concat());
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("NOPM") && text.contains("pass"), "{text}");
    let json = std::fs::read_to_string(dir.path().join("first/result.json")).expect("a result");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let step = &json["steps"][1];
    for key in ["users", "nopm", "tpm", "client_cpu_s"] {
        assert!(
            step[key].as_f64().is_some_and(|figure| figure > 0.0),
            "{key}: {step}"
        );
    }
    assert!(step["server_cpu_s"].is_null() && step["server_cpu_reason"].is_string());
    assert!(step["transactions"]["new_order"]["latency_us"]["p99"].is_f64());
    assert_eq!(step["consistency"]["12"], "pass");
    assert!(step["device"].get("write_bytes").is_some());

    let (code, text) = lab(&[&run[..], &["second"]].concat());
    assert_eq!(code, 0, "{text}");
    let (code, text) = lab(&["compare", "first", "second"]);
    assert!(code == 0 && text.contains("the second is"), "{text}");
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect(name);
    assert!(read("first/report.html").contains("New orders a minute"));
    std::fs::remove_file(dir.path().join("first/report.html")).expect("removed");
    assert_eq!(lab(&["report", "first"]).0, 0);
    assert!(read("first/report.html").contains("all hold"));
    assert_eq!(lab(&["report", "first", "second"]).0, 0);
    assert!(read("second/comparison.html").contains("second is"));
    // Beside a run of devices, in its own report and result.
    let sweep = "sweep --on memory:16MiB --seconds 0.1 --repeat 1 --out devices";
    let (code, text) = lab(&sweep.split(' ').collect::<Vec<_>>());
    assert_eq!(code, 0, "{text}");
    let (code, text) = lab(&["report", "first", "second", "--into", "devices"]);
    assert_eq!(code, 0, "{text}");
    assert!(read("devices/report.html").contains("A database on it: TPROC-C"));
    let devices: serde_json::Value =
        serde_json::from_str(&read("devices/result.json")).expect("JSON");
    let beside = &devices["database"];
    assert_eq!(beside["names"], serde_json::json!(["first", "second"]));
    assert!(
        beside["steps"][1]["nopm"][1].as_f64() > Some(0.0),
        "{beside}"
    );
    assert!(beside["steps"][0]["ratio"]["pairs"] == 1, "{beside}");
    let (code, text) = lab(&["report", "first", "--into", "devices"]);
    assert!(
        code == 2 && text.contains("--into devices: takes"),
        "{text}"
    );
    let given = "given: first (`lab oltp`), into devices (devices)";
    assert!(text.contains(given), "{text}");
    let (code, text) = lab(&["report", "first", "--out", "x"]);
    assert!(code == 2 && text.contains("--out"), "{text}");
    let (code, text) = lab(&["oltp", "build", "--db", "sqlite:a.db"]);
    assert!(code == 2 && text.contains("--destroy-data"), "{text}");

    let damaged = rusqlite::Connection::open(dir.path().join("a.db")).expect("opens");
    damaged
        .execute("UPDATE customer SET c_ytd_payment = 0 WHERE c_id = 7", [])
        .expect("damaged");
    let (code, text) = lab(&["oltp", "check", "--db", "sqlite:a.db"]);
    assert!(
        code == 1 && text.contains("consistency condition 12"),
        "{text}"
    );
}

#[test]
fn a_file_is_put_back_before_every_step() {
    let dir = tempfile::tempdir().expect("folder");
    let words = "oltp --db sqlite:a.db --warehouses 1 --users 1,2 --repeat 2 --mode fixed:60 \
                 --restore kept.db --out";
    let run = |out| lab(dir.path(), words.split_whitespace().chain([out]));
    let (code, text) = run("o");
    assert_eq!(code, 0, "{text}");
    let open = |name: &str| rusqlite::Connection::open(dir.path().join(name)).expect("opens");
    let orders = |name: &str| -> i64 {
        let sql = "SELECT sum(d_next_o_id) - 30010 FROM district";
        open(name)
            .query_row(sql, [], |row| row.get(0))
            .expect("a sum")
    };
    assert_eq!(orders("kept.db"), 0, "the copy stays as it was");
    let json = std::fs::read_to_string(dir.path().join("o/result.json")).expect("a result");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let last = &json["steps"][3];
    let count = |key: &str| {
        last["transactions"]["new_order"][key]
            .as_i64()
            .expect("a count")
    };
    // Of four steps only the last one's orders are there.
    assert_eq!(orders("a.db"), count("count") - count("rolled_back"));
    assert_eq!(json["method"]["restored"], true);
    // A second run begins with the copy, whatever became of the database.
    open("a.db")
        .execute("DELETE FROM stock", [])
        .expect("damaged");
    let (code, text) = run("o");
    assert!(code == 2 && text.contains("--append"), "{text}");
    let (code, text) = run("second");
    assert_eq!(code, 0, "{text}");
}

#[test]
fn what_is_no_copy_of_ours_is_not_put_in_the_place_of_a_database() {
    let dir = tempfile::tempdir().expect("folder");
    let path = |name: &str| dir.path().join(name);
    let lab = |words: &str| lab(dir.path(), words.split_whitespace());
    let read = |name: &str| std::fs::read(path(name)).expect("read");
    for (name, warehouses) in [("a.db", 1), ("two.db", 2)] {
        let words = format!("oltp build --db sqlite:{name} --warehouses {warehouses}");
        assert_eq!(lab(&words).0, 0);
    }
    let mine = "what a user has written, and would like to keep. ".repeat(100);
    std::fs::write(path("mine.txt"), &mine).expect("written");
    let run = "oltp run --db sqlite:a.db --mode fixed:20";
    let before = read("a.db");
    let (code, text) = lab(&format!("{run} --restore mine.txt --out o"));
    assert!(code == 2 && text.contains("mine.txt: is no copy"), "{text}");
    let other = rusqlite::Connection::open(path("other.db")).expect("opens");
    other.execute_batch("CREATE TABLE mine (x)").expect("made");
    drop(other);
    let (code, text) = lab(&format!("{run} --restore other.db --out o"));
    assert!(
        code == 2 && text.contains("it has other tables (mine)"),
        "{text}"
    );
    assert!(read("a.db") == before && read("mine.txt") == mine.as_bytes());
    // Nor is a copy put in the place of what is not ours.
    std::fs::copy(path("two.db"), path("kept.db")).expect("copied");
    let (code, text) = lab("oltp run --db sqlite:other.db --restore kept.db --out o");
    assert!(code == 3 && text.contains("none of them ours"), "{text}");
    let (code, text) = lab("oltp --db sqlite:a.db --destroy-data --restore kept.db --out o");
    assert!(code == 2 && text.contains("--destroy-data"), "{text}");
    assert!(read("a.db") == before);
    // A copy of another number of warehouses: what is driven, and told, is what was put back.
    let (code, text) = lab(&format!("{run} --warehouses 1 --restore kept.db --out o"));
    assert!(code == 2 && text.contains("is built with 2"), "{text}");
    assert!(read("a.db") == before, "it was refused afterwards");
    let (code, text) = lab(&format!("{run} --restore kept.db --out o"));
    assert_eq!(code, 0, "{text}");
    let result = json(dir.path(), "o");
    assert_eq!(result["method"]["warehouses"], 2);
    assert_eq!(result["steps"][0]["consistency"]["11"], "pass");
}

fn json(dir: &std::path::Path, name: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(dir.join(name).join("result.json")).expect("a result");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn repeats_that_are_not_alike_are_refused_before_they_are_measured() {
    let dir = tempfile::tempdir().expect("folder");
    let lab = |words: &str| lab(dir.path(), words.split_whitespace());
    let run = "oltp --db sqlite:a.db --warehouses 1 --ramp 0s --append --out o";
    for repeats in 1..=2 {
        let (code, text) = lab(&format!("{run} --seconds 0.3"));
        assert_eq!(code, 0, "{text}");
        assert_eq!(
            json(dir.path(), "o")["steps"].as_array().map(Vec::len),
            Some(repeats)
        );
    }
    let before = json(dir.path(), "o");
    let begun = std::time::Instant::now();
    let (code, text) = lab(&format!("{run} --seconds 100"));
    assert!(
        code == 2 && text.contains("repeats must be alike: other options"),
        "{text}"
    );
    let (code, text) = lab(&format!("{run} --seconds 0.3 --users 1,2"));
    let why = "repeats must be alike: --users differs: 1 against 1,2";
    assert!(code == 2 && text.contains(why), "{text}");
    assert!(
        begun.elapsed() < std::time::Duration::from_secs(60),
        "it was measured"
    );
    assert_eq!(json(dir.path(), "o"), before);
    // Neither is a database built over for one that is refused, ...
    let (code, text) = lab("oltp build --db sqlite:other.db --warehouses 1");
    assert_eq!(code, 0, "{text}");
    let read = |name: &str| std::fs::read(dir.path().join(name)).expect("read");
    let files = (read("other.db"), read("a.db"));
    let over = "oltp --warehouses 1 --ramp 0s --append --destroy-data --out o";
    for (more, why) in [
        ("--db sqlite:other.db --seconds 0.3", "database differs"),
        ("--db sqlite:a.db --seconds 9", "other options"),
    ] {
        let (code, text) = lab(&format!("{over} {more}"));
        assert!(code == 2 && text.contains(why), "{text}");
        assert!(
            files == (read("other.db"), read("a.db")),
            "{more}: it is gone"
        );
    }
    // ... nor is what was measured spoilt by one that cannot begin.
    std::fs::write(dir.path().join("o/result.json"), "{ \"schema\": ").expect("damaged");
    let (code, text) = lab(&format!("{over} --db sqlite:a.db --seconds 0.3"));
    assert!(code == 3 && text.contains("o/result.json: "), "{text}");
    assert!(files.1 == read("a.db"), "it is gone");
    let (code, text) = lab("compare o o");
    assert!(code == 3 && text.contains("o/result.json: EOF"), "{text}");
}

#[test]
fn a_run_that_has_no_step_takes_nothing_from_those_before() {
    let dir = tempfile::tempdir().expect("folder");
    let lab = |words: &str| lab(dir.path(), words.split_whitespace());
    let run = "oltp --db sqlite:a.db --warehouses 1 --ramp 0s --seconds 0.3 --append --restore kept/a.db --out o";
    std::fs::create_dir(dir.path().join("kept")).expect("made");
    let (code, text) = lab(run);
    assert_eq!(code, 0, "{text}");
    let before = std::fs::read(dir.path().join("o/result.json")).expect("read");
    // The copy has no place: it is to be made, and cannot.
    std::fs::remove_dir_all(dir.path().join("kept")).expect("removed");
    let (code, text) = lab(run);
    assert_eq!(code, 3, "{text}");
    let after = std::fs::read(dir.path().join("o/result.json")).expect("read");
    assert!(before == after, "{}", String::from_utf8_lossy(&after));
    std::fs::create_dir(dir.path().join("kept")).expect("made");
    let (code, text) = lab(run);
    assert_eq!(code, 0, "{text}");
    let result = json(dir.path(), "o");
    assert_eq!(
        (&result["partial"], result["steps"].as_array().map(Vec::len)),
        (&false.into(), Some(2))
    );
}

#[test]
fn scans_are_compared_and_what_cannot_be_is_named() {
    let dir = tempfile::tempdir().expect("folder");
    let lab = |words: &str| lab(dir.path(), words.split_whitespace());
    for name in ["a", "b"] {
        let words =
            format!("scan --db sqlite:s.db --rows 2000 --readers 1,2 --repeat 2 --out {name}");
        let (code, text) = lab(&words);
        assert_eq!(code, 0, "{text}");
    }
    let (code, text) = lab("compare a b");
    assert!(
        code == 0 && text.contains("time s 1") && text.contains("2 readers"),
        "{text}"
    );
    assert!(text.contains("over 2 pairs of repeats"), "{text}");
    for (schema, why) in [
        (
            "ashlar-failover-1",
            "runs of `lab failover` are not compared",
        ),
        (
            "ashlar-torn-pages-1",
            "runs of `lab torn-pages` are not compared",
        ),
        ("ashlar-oltp-1", "nothing in common"),
    ] {
        let other = dir.path().join("other");
        std::fs::create_dir_all(&other).expect("made");
        std::fs::write(
            other.join("result.json"),
            format!("{{\"schema\":\"{schema}\"}}"),
        )
        .expect("written");
        let (code, text) = lab("compare a other");
        assert!(code == 2 && text.contains(why), "{schema}: {text}");
    }
}

#[test]
fn bad_requests_are_told_by_name() {
    let dir = tempfile::tempdir().expect("folder");
    for (expected, name, arguments) in [
        (2, "--db", "--db oracle:x --out o"),
        (2, "--out", "--db sqlite:a.db"),
        (2, "--users 0", "--db sqlite:a.db --users 0 --out o"),
        (2, "--mode", "--db sqlite:a.db --mode never --out o"),
        (2, "--mix", "--db sqlite:a.db --mix none --out o"),
        (2, "--wait", "--db sqlite:a.db --wait long --out o"),
        (2, "--slow-down", "--db sqlite:a.db --slow-down 95% --out o"),
        (
            2,
            "--slow-down",
            "--db sqlite:a.db --slow-down much --out o",
        ),
        (2, "--restore", "--db sqlite:a.db --restore a.db --out o"),
        (2, "--ramp", "--db sqlite:a.db --ramp long --out o"),
        (
            2,
            "--warehouses 0",
            "--db sqlite:a.db --warehouses 0 --out o",
        ),
        (3, "build it first", "run --db sqlite:a.db --out o"),
        (
            3,
            "there is no directory no/such: make it",
            "--db sqlite:no/such/a.db --out o",
        ),
        (3, "sqlite:.: is a directory", "--db sqlite:. --out o"),
        (
            2,
            "must be postgres://USER:PASSWORD",
            "--db postgres://u:secret@h:x/ --out o",
        ),
        (
            3,
            "is the server running",
            "check --db postgres://me@127.0.0.1:1/x",
        ),
        (
            3,
            "/nonexistent/.s.PGSQL.5432: ",
            "check --db postgres:///x?host=/nonexistent&user=me",
        ),
        (
            3,
            "postgres://me@/nonexistent/x",
            "check --db postgres:///x?host=/nonexistent&user=me",
        ),
    ] {
        let words: Vec<&str> = ["oltp"].into_iter().chain(arguments.split(' ')).collect();
        let (code, text) = lab(dir.path(), &words);
        assert_eq!(code, expected, "{arguments}: {text}");
        assert!(text.contains(name), "{arguments}: {text}");
        assert!(!text.contains("secret"), "{arguments}: {text}");
        assert!(
            !dir.path().join("a.db").exists(),
            "{arguments} made a database"
        );
    }
}

#[test]
fn a_marker_that_cannot_be_read_is_told_and_can_be_built_over() {
    let dir = tempfile::tempdir().expect("folder");
    let lab = |words: &str| lab(dir.path(), words.split_whitespace());
    let (code, text) = lab("oltp build --db sqlite:a.db --warehouses 1");
    assert_eq!(code, 0, "{text}");
    let damaged = rusqlite::Connection::open(dir.path().join("a.db")).expect("opens");
    damaged
        .execute("UPDATE ashlar_oltp SET marker = 'garbage'", [])
        .expect("damaged");
    drop(damaged);
    for words in [
        "oltp --db sqlite:a.db --out o",
        "oltp check --db sqlite:a.db",
    ] {
        let (code, text) = lab(words);
        assert_eq!(code, 3, "{text}");
        assert!(
            text.contains("sqlite:a.db holds a schema that cannot be used"),
            "{text}"
        );
        assert!(text.contains("--destroy-data"), "{text}");
    }
    let (code, text) = lab("oltp build --db sqlite:a.db --warehouses 1");
    assert!(code == 2 && text.contains("--destroy-data"), "{text}");
    let (code, text) = lab("oltp build --db sqlite:a.db --warehouses 1 --destroy-data");
    assert_eq!(code, 0, "{text}");
}

#[test]
fn what_is_no_run_and_no_scenario_is_named() {
    let dir = tempfile::tempdir().expect("folder");
    let lab = |words: &str| lab(dir.path(), words.split_whitespace());
    for words in ["report .", "compare . missing", "report . missing"] {
        let (code, text) = lab(words);
        assert!(
            code == 3 && text.contains(".: is no directory of a run"),
            "{words}: {text}"
        );
    }
    for (scenario, why) in [
        ("name = 'x'\n[oltp\n", "s.toml: scenario: line 2"),
        (
            "name = 'x'\n[oltpx]\n",
            "[scan] or [fleet]; s.toml has none",
        ),
        ("name = 'x'\n[scan]\nrow = 1\n", "s.toml: scenario: line 3"),
        (
            "name = 'x'\n[scan]\nrows = 1\nreaders = []\n",
            "s.toml: --readers",
        ),
    ] {
        std::fs::write(dir.path().join("s.toml"), scenario).expect("written");
        let (code, text) = lab("run s.toml --place a=. --out o");
        assert!(code == 2 && text.contains(why), "{scenario}: {text}");
        assert!(!dir.path().join("o").exists(), "{scenario}");
    }
}
