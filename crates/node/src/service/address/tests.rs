//! An address on an interface of a network namespace of its own.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::AtomicU32;

use rustix::thread::{
    CapabilitySet, LinkNameSpaceType, capabilities, move_into_link_name_space, set_capabilities,
};

use super::*;

/// Runs `ip` where this thread is.
fn ip(words: &str) -> String {
    let output = Command::new("ip").args(words.split(' ')).output();
    let output = output.expect("ip");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {words}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

/// Where there are `v0` and `v1`, the ends of one cable. Without the right to make that, nothing is tested, and said so.
fn in_a_network(test: impl FnOnce() + Send + 'static) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::SeqCst);
    let name = format!("ashlar-t{}-{number}", std::process::id());
    let is_root = rustix::process::geteuid().is_root();
    let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(is_root || !is_ci, "it is not root");
    if !is_root {
        eprintln!("SKIPPED: this test makes a network namespace");
        return;
    }
    ip(&format!("netns add {name}"));
    let path = format!("/run/netns/{name}");
    let inside = std::thread::spawn(move || {
        let namespace = File::open(path).expect("it was made");
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(namespace.as_fd(), kind).expect("entered");
        ip("link add v0 type veth peer name v1");
        ip("link set v0 up");
        ip("link set v1 up");
        test();
    });
    let ended = inside.join();
    ip(&format!("netns delete {name}"));
    if let Err(panicked) = ended {
        std::panic::resume_unwind(panicked);
    }
}

/// An address, held.
fn held(address: &str) -> Holder {
    let holder = Holder::new("s", address.parse().expect("an address"));
    holder.want();
    holder.hold().expect("held");
    assert!(holder.is_held());
    holder
}

fn has(address: &str) -> bool {
    ip("-brief address show").contains(&format!(" {address}/"))
}

/// Neighbours are to be told again.
fn make_due(holder: &Holder) {
    holder.lock().told = None;
}

#[test]
fn an_announcement_that_fails_ends_nothing_and_an_interface_that_is_down_does() {
    in_a_network(|| {
        let holder = held("10.99.0.50/24%v0");
        holder.keep(|| true).expect("kept");
        make_due(&holder);
        holder.keep(|| true).expect("announced again");
        assert!(holder.lock().told.is_some() && holder.lock().warned.is_none());

        // This thread may open no raw socket any more.
        let mut may = capabilities(None).expect("capabilities");
        may.effective.remove(CapabilitySet::NET_RAW);
        set_capabilities(None, may).expect("let go of");
        make_due(&holder);
        holder.keep(|| true).expect("a warning only");
        let warned = holder.lock().warned.expect("warned");
        make_due(&holder);
        holder.keep(|| true).expect("a warning only");
        assert_eq!(holder.lock().warned, Some(warned), "once in a while");
        assert!(holder.is_held());
        may.effective.insert(CapabilitySet::NET_RAW);
        set_capabilities(None, may).expect("had again");
        make_due(&holder);
        holder.keep(|| true).expect("announced again");
        assert_eq!(holder.lock().warned, None);

        ip("link set v0 down");
        let why = holder.keep(|| true).expect_err("it is down");
        assert!(why.contains("interface v0 is down"), "{why}");
        holder.keep(|| false).expect("what has ended needs none");
    });
}

#[test]
fn one_that_is_not_wanted_any_more_is_not_added() {
    in_a_network(|| {
        let holder = held("10.99.0.50/24%v0");
        ip("address delete 10.99.0.50/24 dev v0");
        holder.keep(|| true).expect("added again");
        assert!(has("10.99.0.50"));
        holder.unwant();
        ip("address delete 10.99.0.50/24 dev v0");
        holder.keep(|| true).expect("left alone");
        assert!(holder.hold().is_err() && !has("10.99.0.50"));
        holder.let_go().expect("there is none");
        assert!(!holder.is_held());
    });
}

#[test]
fn addresses_that_came_after_it_stay_when_it_goes() {
    in_a_network(|| {
        let setting = "/proc/sys/net/ipv4/conf/v0/promote_secondaries";
        std::fs::write(setting, "0").expect("set");
        let all = "/proc/sys/net/ipv4/conf/all/promote_secondaries";
        std::fs::write(all, "0").expect("set");
        // Of no network that the interface has had, it is the first; then one of another network, and two of its own.
        let holder = held("10.99.0.50/24%v0");
        for other in ["10.98.0.1/24", "10.99.0.60/24", "10.99.0.61/24"] {
            ip(&format!("address add {other} dev v0"));
        }
        let others = ["10.98.0.1", "10.99.0.60", "10.99.0.61"];
        holder.let_go().expect("gone");
        assert!(!has("10.99.0.50"));
        assert!(others.iter().all(|other| has(other)), "{others:?}");

        // As a second one it takes none with it, and changes nothing.
        std::fs::write(setting, "0").expect("set");
        let holder = held("10.99.0.50/24%v0");
        holder.let_go().expect("gone");
        assert!(!has("10.99.0.50"));
        assert!(others.iter().all(|other| has(other)), "{others:?}");
        let set = std::fs::read_to_string(setting).expect("a setting");
        assert_eq!(set.trim(), "0");
    });
}

#[test]
fn an_interface_that_stays_without_a_carrier_is_noticed_and_one_that_has_it_again_is_fine() {
    in_a_network(|| {
        let holder = held("10.99.0.50/24%v0");
        holder.keep(|| true).expect("kept");
        assert_eq!(holder.dark(), None);
        ip("link set v1 down");
        let begun = Instant::now();
        while holder.dark().is_none() {
            holder.keep(|| true).expect("it is here");
            let waited = begun.elapsed();
            assert!(waited < Duration::from_secs(30), "it is dark");
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(begun.elapsed() >= DARK_AFTER, "a switch that starts anew");
        let why = holder.dark().expect("it is dark");
        assert!(why.contains("10.99.0.50/24%v0: its interface has had no carrier for 3 s"));
        let told = holder.lock().told;
        ip("link set v1 up");
        while holder.dark().is_some() {
            holder.keep(|| true).expect("it is here");
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "it is there again"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(holder.lock().told > told, "neighbours are told at once");
        ip("link set v1 down");
        holder.let_go().expect("gone");
        assert_eq!(holder.dark(), None);
    });
}
