//! Signals go to the whole process, so this test has one for itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ashlar_node::testing::FakeControl;
use ashlar_node::{Config, Daemon};
use rustix::process::{Signal, getpid, kill_process};

fn later(wait: Duration, signal: Signal) {
    std::thread::spawn(move || {
        std::thread::sleep(wait);
        kill_process(getpid(), signal).expect("ourselves");
    });
}

/// One test, since a signal reaches every daemon of the process.
#[test]
fn signals_end_it() {
    a_signal_ends_it_in_order_even_one_that_came_early();
    a_second_signal_does_not_wait();
}

fn a_second_signal_does_not_wait() {
    let dir = tempfile::tempdir().expect("directory");
    let daemon = Daemon::open(dir.path(), Config::default()).expect("it opens");
    let control = Arc::new(FakeControl::new());
    control.slow_stop(Duration::from_secs(60));
    let start = Instant::now();
    let result = daemon.run(control, |_| {
        later(Duration::from_millis(50), Signal::TERM);
        later(Duration::from_millis(1500), Signal::TERM);
        Ok(())
    });
    let error = result.expect_err("not in order");
    assert!(error.message.contains("second signal"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(30));
}

fn a_signal_ends_it_in_order_even_one_that_came_early() {
    for (signal, early) in [
        (Signal::TERM, false),
        (Signal::INT, false),
        (Signal::TERM, true),
    ] {
        let dir = tempfile::tempdir().expect("directory");
        let daemon = Daemon::open(dir.path(), Config::default()).expect("it opens");
        let control = Arc::new(FakeControl::new());
        control.slow_stop(Duration::from_millis(300));
        if early {
            kill_process(getpid(), signal).expect("ourselves");
        }
        let result = daemon.run(control.clone(), |_| {
            if !early {
                // Twice, as when a parent passes on what its child has got, too.
                later(Duration::from_millis(50), signal);
                later(Duration::from_millis(60), signal);
            }
            Ok(())
        });
        result.expect("an orderly end");
        assert_eq!(control.stops(), 1);
        assert!(!dir.path().join("api.sock").exists());
    }
}
