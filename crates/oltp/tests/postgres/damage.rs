//! The conditions on PostgreSQL, whose types and nulls are its own: a database damaged on purpose, one
//! condition at a time, as `tests/damage.rs` does on SQLite.

use ashlar_lab::{Progress, ResultFile};
use ashlar_oltp::check::check;
use ashlar_oltp::database::Database;
use ashlar_oltp::{Logic, Mode, begin, build, run};

use crate::cluster::Cluster;
use crate::damages::Words;
use crate::work::{BUILD, plan, postgres};

fn failed(database: &dyn Database) -> Vec<u8> {
    let mut watcher = database.watcher().expect("watches");
    let found = check(watcher.as_mut(), &BUILD.shape, &Progress::silent()).expect("checked");
    assert_eq!(found.0.len(), 12);
    found.failed()
}

#[test]
fn each_condition_fails_when_it_should_and_no_other_does() {
    let Some(cluster) = Cluster::start(&[]) else {
        return;
    };
    cluster.sql("postgres", "CREATE DATABASE whole");
    let whole = postgres(&cluster, "whole", Logic::Functions);
    build(whole.as_ref(), &BUILD, &Progress::silent()).expect("built");
    let plan = plan(&[2], Mode::Fixed(200));
    let mut result = begin(whole.as_ref(), &plan).expect("begins");
    run(&whole, &plan, &mut result, &Progress::silent()).expect("ran");
    assert_eq!((result.complaint(), result.head.partial), (None, false));
    let words = Words {
        cent: "0.01",
        now: "now()",
        row: "ctid",
    };
    for (number, damage) in words.damages() {
        let name = format!("damage{number}");
        cluster.sql(
            "postgres",
            &format!("CREATE DATABASE {name} TEMPLATE whole"),
        );
        cluster.sql(&name, &damage);
        let damaged = postgres(&cluster, &name, Logic::Functions);
        assert_eq!(failed(damaged.as_ref()), [number], "damage {number}");
        drop(damaged);
        cluster.sql("postgres", &format!("DROP DATABASE {name}"));
    }
}
