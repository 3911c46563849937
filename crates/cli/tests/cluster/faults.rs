//! Faults under load: nothing is lost, nothing reverts, and the copies are in sync at the end.

use serde_json::Value;

use crate::common::{lab, open_folder};
use crate::rig::has_cluster;

/// What members may do that a seed draws anyway.
const DRAWN: &str = "kill-member,stop-member,cut-member,cut-member-out,cut-member-in";

/// What hosts write between two looks at what a copy misses, at the most.
const BETWEEN_LOOKS: u64 = 2 << 20;

fn soaks() -> bool {
    std::env::var_os("ASHLAR_SOAK").is_some_and(|soak| !soak.is_empty())
}

/// How often each fault.
fn rounds() -> String {
    if soaks() { "200" } else { "1" }.to_owned()
}

/// A copy whose process was away: hosts write some of it again before it is copied, and some more between two looks.
fn is_given_what_it_missed(round: &Value) {
    let of = |key: &str| round[key].as_u64().expect("a number");
    let (missed, copied) = (of("missed_bytes"), of("resynced_bytes"));
    let fault = round["fault"].as_str();
    if matches!(
        fault,
        Some("kill" | "kill-node" | "kill-member" | "restart-member")
    ) {
        assert!(copied >= missed / 4, "{round}");
        assert!(copied <= missed + BETWEEN_LOOKS, "{round}");
    }
}

fn endures(faults: &str, words: &[&str]) {
    if !has_cluster() {
        return;
    }
    let room = open_folder();
    let rounds = rounds();
    let own = [
        "ha", "--size", "16MiB", "--rounds", &rounds, "--fault", faults, "--out", "o",
    ];
    let (code, said) = lab(room.path(), own.iter().chain(words));
    println!("{said}");
    assert_eq!(code, 0, "{said}");
    let text = std::fs::read_to_string(room.path().join("o/result.json")).expect("a result");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    for (key, least) in [("gap_ms", 0), ("lost", 0), ("verified_blocks", 4096)] {
        assert!(result[key].as_u64() >= Some(least), "{key}: {text}");
    }
    let of = |key: &str| result[key].as_u64();
    assert_eq!(
        (of("lost"), of("reverted"), of("errors")),
        (Some(0), Some(0), Some(0)),
        "{text}"
    );
    let each: usize = rounds.parse().expect("a number");
    let all = result["rounds"].as_array();
    for round in all.into_iter().flatten() {
        is_given_what_it_missed(round);
    }
    let many = all.map(Vec::len);
    assert_eq!(many, Some(each * faults.split(',').count()), "{text}");
}

#[test]
fn an_owner_that_is_killed_stopped_or_moved_from_costs_nothing_but_time() {
    // `kill` has its round with three copies.
    endures("kill-node,stop,move,restart", &[]);
}

#[test]
fn an_owner_that_is_cut_off_in_any_direction_costs_nothing_but_time() {
    endures("cut,cut-out,cut-in,cut-peers", &[]);
}

#[test]
fn members_may_fail_beside_an_owner() {
    const OTHERS: &str = "restart-member,copies";
    match soaks() {
        true => endures(&[DRAWN, OTHERS].join(","), &[]),
        false => endures(OTHERS, &[]),
    }
}

#[test]
fn the_quorum_may_lose_a_member_a_majority_and_everything() {
    endures(
        "etcd-member,etcd-majority,etcd-pauses,etcd",
        &["--etcd", "3"],
    );
}

#[test]
fn an_upgrade_of_all_and_the_loss_of_everything_at_once_cost_nothing_but_time() {
    let folder = open_folder();
    let next = folder.path().join("next").join("ashlar");
    let next = next.to_str().expect("UTF-8");
    std::fs::create_dir(folder.path().join("next")).expect("a folder");
    std::fs::copy(env!("CARGO_BIN_EXE_ashlar"), next).expect("another program");
    endures("upgrade,power,kill-all,old-image", &["--upgrade-to", next]);
}

#[test]
fn pools_may_die_and_hang_under_living_nodes() {
    endures(
        "drives-die,drives-hang,drives-die-member,drives-hang-member",
        &[],
    );
}

#[test]
fn what_a_seed_draws_costs_nothing_but_time() {
    if !has_cluster() {
        return;
    }
    let room = open_folder();
    let (code, said) = lab(
        room.path(),
        "ha --soak --seed 5 --faults 20 --size 8MiB --out o".split_whitespace(),
    );
    println!("{said}");
    assert_eq!(code, 0, "{said}");
    let text = std::fs::read_to_string(room.path().join("o/result.json")).expect("a result");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    let rounds = result["rounds"].as_array().expect("rounds");
    assert_eq!(rounds.len(), 20, "{text}");
    let is_drawn = |kind: &str| rounds.iter().any(|round| round["fault"] == kind);
    for kind in DRAWN.split(',') {
        assert!(is_drawn(kind), "{kind} is no fault of this seed: {text}");
    }
}

#[test]
fn three_copies_survive_the_owner_s_death_and_then_the_next_one_s() {
    endures("kill,kill-node", &["--nodes", "3", "--replicas", "3"]);
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    let room = open_folder();
    for (name, text) in [
        ("--replicas 3", "ha --replicas 3 --out o"),
        ("--nodes 1", "ha --nodes 1 --out o"),
        ("--rounds 0", "ha --rounds 0 --out o"),
        ("--faults 0", "ha --soak --faults 0 --out o"),
        ("--etcd 2", "ha --etcd 2 --out o"),
        ("needs --etcd 3", "ha --fault etcd-majority --out o"),
        (
            "--fault cut: needs network namespaces",
            "ha --fault cut --loopback --out o",
        ),
        ("--fault upgrade", "ha --upgrade-to /bin/true --out o"),
        (
            "--version",
            "ha --fault upgrade --upgrade-to /bin/true --out o",
        ),
        (
            "No such file",
            "ha --fault upgrade --upgrade-to /no/ashlar --out o",
        ),
        ("explode", "ha --fault explode --out o"),
        ("--nodes 8", "cluster up --nodes 8 --dir d"),
        (
            "--drive-size 0: a pool takes",
            "cluster up --drive-size 0 --dir d",
        ),
        (
            "--drive-size 63MiB",
            "cluster fci --drive-size 63MiB --dir d",
        ),
        (
            "--drive-size: size `x`",
            "cluster up --drive-size x --dir d",
        ),
        ("are for up", "cluster status --nodes 2 --dir d"),
        ("no cluster of ours", "cluster down --dir d"),
    ] {
        let (code, said) = lab(room.path(), text.split_whitespace());
        assert!(code == 2 && said.contains(name), "{text}: {code} {said}");
    }
}
