//! A private MariaDB from end to end: built, driven, killed, checked; the same work done as SQLite does it.

mod fingerprint;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ashlar_lab::{Progress, ResultFile};
use ashlar_oltp::check::check;
use ashlar_oltp::database::Database;
use ashlar_oltp::inputs::Mix;
use ashlar_oltp::schema::{Shape, State};
use ashlar_oltp::server::{Settings, can_limit_memory};
use ashlar_oltp::{
    BuildPlan, Ledger, MariaDb, MariaServer, Mode, OltpResult, RunPlan, Sqlite, begin, build,
    run_with_ledger,
};

use fingerprint::{Words, fingerprint};

const BUILD: BuildPlan = BuildPlan {
    shape: Shape {
        warehouses: 2,
        items: 500,
        customers: 100,
    },
    seed: 1,
    users: 2,
    destroy_data: false,
};

/// A folder that the server's user may enter; none, loudly, where there is no MariaDB. Under CI that is a failure.
fn room() -> Option<tempfile::TempDir> {
    if !Path::new("/usr/sbin/mariadbd").exists() {
        let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
        assert!(!is_ci, "CI is set, and there is no MariaDB");
        eprintln!("SKIPPED: there is no /usr/sbin/mariadbd");
        return None;
    }
    let room = tempfile::tempdir().expect("a folder");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(room.path(), open).expect("opened");
    Some(room)
}

/// Ends it whatever becomes of the test.
struct Ended(MariaServer);

impl Drop for Ended {
    fn drop(&mut self) {
        // One that has ended is what is wanted.
        let _ = self.0.kill();
    }
}

fn plan(users: usize, mode: Mode) -> RunPlan {
    RunPlan {
        users: vec![users],
        ramp: Duration::from_millis(200),
        measure: Duration::from_millis(1500),
        mode,
        mix: Mix::TpcC,
        all_warehouses: false,
        pauses: None,
        slow_down: 0.0,
        repeats: 1,
        seed: 9,
    }
}

/// Runs, and finds everything that was acknowledged.
fn ran(database: &Arc<dyn Database>, plan: &RunPlan) -> OltpResult {
    let mut result = begin(database.as_ref(), plan).expect("begins");
    let (ledger, silent) = (Arc::new(Ledger::default()), Progress::silent());
    run_with_ledger(database, plan, &mut result, &silent, &ledger).expect("ran");
    let step = &result.steps[0];
    assert_eq!(
        (result.complaint(), result.head.partial),
        (None, false),
        "{:?}",
        step.problems
    );
    for (kind, of) in &step.transactions {
        assert!(
            of.errors == 0 && of.count > 0,
            "{kind}: {:?}",
            step.problems
        );
    }
    let mut watcher = database.watcher().expect("watches");
    let found = ledger.audit(watcher.as_mut()).expect("asked");
    assert_eq!(found.total().missing, 0, "{:?}", found.examples);
    assert!(found.kinds["delivery"].acknowledged > 0);
    result
}

#[test]
fn a_private_server_is_built_driven_killed_and_consistent() {
    let Some(room) = room() else {
        return;
    };
    let dir = room.path().join("db");
    let server = Ended(MariaServer::at(&dir).expect("a server"));
    let little = Settings {
        memory_bytes: Some(64 << 20),
        set: Vec::new(),
    };
    let error = server.0.start(Some(little)).expect_err("too little");
    assert!(
        error.exit_code() == 2 && error.to_string().contains("192 MiB"),
        "{error}"
    );
    let set = [
        "innodb-flush-log-at-trx-commit=1",
        "innodb-log-file-size=8M",
    ];
    let settings = Settings {
        memory_bytes: can_limit_memory().is_ok().then_some(256 << 20),
        set: set.map(str::to_owned).into(),
    };
    let status = server.0.start(Some(settings)).expect("started");
    assert!(status.pid.is_some(), "{status:?}");
    let error = server.0.start(None).expect_err("it runs");
    assert!(error.exit_code() == 2 && error.to_string().contains("runs already"));
    let database: Arc<dyn Database> = Arc::new(MariaDb::new(&status.url).expect("a URL"));
    assert_eq!(database.state(), Ok(State::Empty));
    let built = build(database.as_ref(), &BUILD, &Progress::silent()).expect("built");
    assert!(built.server_cpu_s.is_some(), "{built:?}");

    let sqlite: Arc<dyn Database> = Arc::new(Sqlite::new(room.path().join("a.db")));
    build(sqlite.as_ref(), &BUILD, &Progress::silent()).expect("built");
    let both = || {
        let theirs = fingerprint(sqlite.as_ref(), &Words::SQLITE);
        assert_eq!(fingerprint(database.as_ref(), &Words::MARIADB), theirs);
    };
    both();
    let one = plan(1, Mode::Fixed(600));
    let counts = |result: &OltpResult| -> Vec<(u64, u64)> {
        let kinds = result.steps[0].transactions.values();
        kinds.map(|kind| (kind.count, kind.rolled_back)).collect()
    };
    let told = ran(&database, &one);
    assert_eq!(counts(&told), counts(&ran(&sqlite, &one)));
    assert!(told.steps[0].transactions["new_order"].rolled_back > 0);
    both();

    // Users that meet.
    let result = ran(&database, &plan(5, Mode::Timed));
    let step = &result.steps[0];
    assert_eq!(
        (&*step.nopm_source, &*step.tpm_source),
        ("d_next_o_id", "database")
    );
    assert!(step.nopm > 0.0 && step.tpm > step.nopm, "{step:?}");
    assert!(
        step.server_cpu_s > Some(0.0),
        "{:?}",
        step.server_cpu_reason
    );
    assert_eq!(result.database.kind, "mariadb");

    // What it has acknowledged is there after a crash.
    let before = fingerprint(database.as_ref(), &Words::MARIADB);
    assert_eq!(server.0.kill(), Ok(true));
    assert_eq!(server.0.kill(), Ok(false));
    assert!(database.state().is_err());
    let again = server.0.start(None).expect("started");
    assert_eq!(again.settings.set, set);
    assert_eq!(fingerprint(database.as_ref(), &Words::MARIADB), before);
    let checked = || {
        let mut watcher = database.watcher().expect("watches");
        check(watcher.as_mut(), &BUILD.shape, &Progress::silent()).expect("checked")
    };
    assert!(checked().failed().is_empty());
    // A check that looks at nothing would pass as well.
    database
        .execute("UPDATE warehouse SET w_ytd = w_ytd + 0.01 WHERE w_id = 2")
        .expect("changed");
    assert_eq!(checked().failed(), [1, 8]);
    // What was saved is put back.
    server.0.save().expect("saved");
    let saved = fingerprint(database.as_ref(), &Words::MARIADB);
    database.execute("DELETE FROM history").expect("changed");
    assert_ne!(fingerprint(database.as_ref(), &Words::MARIADB), saved);
    server.0.restore().expect("put back");
    assert_eq!(fingerprint(database.as_ref(), &Words::MARIADB), saved);
    assert_eq!(server.0.stop(), Ok(true));

    // What cannot be is named.
    let error = server
        .0
        .start(Some(Settings {
            memory_bytes: None,
            set: vec!["nonsense=1".into()],
        }))
        .expect_err("no such setting");
    assert!(error.to_string().contains("nonsense"), "{error}");
    let other = room.path().join("other");
    std::fs::create_dir(&other).expect("made");
    std::fs::write(other.join("x"), "x").expect("written");
    let error = MariaServer::at(&other).and_then(|server| server.start(None));
    assert!(error.is_err_and(|error| error.to_string().contains("holds other things")));
}
