//! Signals go to the whole process, so this test has one for itself.

use std::sync::Arc;
use std::time::Duration;

use ashlar_node::testing::FakeControl;
use ashlar_node::{Config, Daemon};
use rustix::process::{Signal, getpid, kill_process};

#[test]
fn a_signal_ends_it_in_order_even_one_that_came_early() {
    for (signal, early) in [
        (Signal::TERM, false),
        (Signal::INT, false),
        (Signal::TERM, true),
    ] {
        let dir = tempfile::tempdir().expect("directory");
        let daemon = Daemon::open(dir.path(), Config::default()).expect("it opens");
        let control = Arc::new(FakeControl::new());
        let send = move || kill_process(getpid(), signal).expect("ourselves");
        if early {
            send();
        }
        let result = daemon.run(control.clone(), |_| {
            if !early {
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(50));
                    send();
                });
            }
            Ok(())
        });
        result.expect("an orderly end");
        assert_eq!(control.stops(), 1);
        assert!(!dir.path().join("api.sock").exists());
    }
}
