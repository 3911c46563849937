//! Threads: where queues run, and that an idle target sleeps.

use std::io::Write;
use std::time::Duration;

use ashlar_nvme::Command;
use ashlar_reactor::available_cores;

use crate::client::{Client, capsule, connect, dial, greeting, is_served};
use crate::process::Target;

fn two_cores() -> Option<Target> {
    let cores = available_cores();
    let [first, second, ..] = cores[..] else {
        assert!(std::env::var_os("CI").is_none(), "two cores are needed");
        return None;
    };
    Some(Target::with(&[
        "--listen",
        "127.0.0.1:0",
        "--cores",
        &format!("{first},{second}"),
    ]))
}

/// The thread that does the work of this queue.
fn worker(target: &Target, io: &mut Client) -> String {
    let before = target.core_threads();
    for _ in 0..2000 {
        assert!(io.call(Command::flush(1), &[]).0.status().is_success());
    }
    let after = target.core_threads();
    let used = before
        .iter()
        .zip(&after)
        .map(|((name, from), (_, to))| (to - from, name.clone()));
    used.max().expect("two threads").1
}

#[test]
fn io_queues_spread_over_the_cores() {
    let Some(target) = two_cores() else { return };
    assert_eq!(target.core_threads().len(), 2);
    let (_admin, cntlid) = Client::admin(target.address);
    let mut one = Client::io(target.address, cntlid, 1);
    let mut two = Client::io(target.address, cntlid, 2);
    assert_ne!(worker(&target, &mut one), worker(&target, &mut two));
    drop((one, two));
    // Places are given back: the next two are apart again.
    for turn in 0..10 {
        let mut pair = [3 + 2 * turn, 4 + 2 * turn].map(|q| Client::io(target.address, cntlid, q));
        if turn == 9 {
            let workers = pair.each_mut().map(|io| worker(&target, io));
            assert_ne!(workers[0], workers[1]);
        }
    }
}

#[test]
fn what_comes_with_and_behind_a_connect_survives_the_move_to_another_core() {
    let Some(target) = two_cores() else { return };
    let (_admin, cntlid) = Client::admin(target.address);
    for qid in 1..=20 {
        let mut bytes = greeting();
        let (command, data) = connect(qid, cntlid);
        bytes.extend(capsule(&command.with_cid(1), data.as_wire()));
        for cid in 2..=9 {
            bytes.extend(capsule(&Command::flush(1).with_cid(cid), &[]));
        }
        let mut stream = dial(target.address);
        stream.write_all(&bytes).expect("the target listens");
        let mut client = Client::over(stream);
        let mut ended: Vec<u16> = (1..=9)
            .map(|_| client.reply().0)
            .inspect(|completion| assert!(completion.status().is_success()))
            .map(|completion| completion.cid.get())
            .collect();
        ended.sort_unstable();
        assert_eq!(ended, (1..=9).collect::<Vec<u16>>());
    }
}

#[test]
fn an_idle_target_sleeps() {
    let target = Target::start();
    is_served(target.address, 4);
    let (_admin, cntlid) = Client::admin(target.address);
    let _queues: Vec<Client> = (1..=4)
        .map(|qid| Client::io(target.address, cntlid, qid))
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let before = target.cpu_ticks();
    std::thread::sleep(Duration::from_secs(4));
    let ticks = target.cpu_ticks() - before;
    assert!(ticks <= 4, "{ticks} of 400 ticks: more than 1 % of a core");
}
