//! `ashlar serve` of a device that several targets share: paths and portals, from the start and at run time.

use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use ashlar_nvme::log::AnaState;
use ashlar_nvme_target::Shared;
use ashlar_nvme_target::server::Control;

use crate::args::SharedArguments;
use crate::exit::Failure;

/// The states of a path, as arguments and lines name them.
const STATES: [(&str, AnaState); 5] = [
    ("optimized", AnaState::Optimized),
    ("non-optimized", AnaState::NonOptimized),
    ("inaccessible", AnaState::Inaccessible),
    ("persistent-loss", AnaState::PersistentLoss),
    ("change", AnaState::Change),
];

fn state(text: &str) -> Result<AnaState, String> {
    let known = STATES.iter().find(|(name, _)| *name == text);
    known.map(|(_, state)| *state).ok_or_else(|| {
        let names = STATES.map(|(name, _)| name).join(", ");
        format!("{text:?} is no state of a path; those are {names}")
    })
}

fn ids(text: &str) -> Result<RangeInclusive<u16>, String> {
    let number = |text: &str| text.trim().parse::<u16>().ok();
    let bounds = text.split_once('-').map(|(a, b)| (number(a), number(b)));
    match bounds {
        Some((Some(first), Some(last))) => Ok(first..=last),
        _ => Err(format!(
            "{text:?} is no range of controller ids, as in 1-999"
        )),
    }
}

/// How the subsystem is shared, if it is.
pub(crate) fn shared(arguments: &SharedArguments) -> Result<Option<Shared>, Failure> {
    let Some(text) = &arguments.controller_ids else {
        return Ok(None);
    };
    let usage = |option: &str, why: String| Failure::usage(format!("{option}: {why}"));
    Ok(Some(Shared {
        controller_ids: ids(text).map_err(|why| usage("--controller-ids", why))?,
        state: state(&arguments.path).map_err(|why| usage("--path", why))?,
        portals: arguments.portals.clone(),
        core: None,
        quiesce: Duration::ZERO,
    }))
}

/// A line of standard input.
#[derive(Debug, PartialEq)]
enum Order {
    Path(Option<u32>, AnaState),
    Portals(Vec<SocketAddr>),
}

fn order(line: &str) -> Result<Order, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["path", name] => Ok(Order::Path(None, state(name)?)),
        ["path", name, nsid] => {
            let nsid = nsid.parse().map_err(|_| format!("{nsid:?} is no nsid"))?;
            Ok(Order::Path(Some(nsid), state(name)?))
        }
        ["portals", ..] => {
            let portal = |word: &&str| {
                let parsed = word.parse();
                parsed.map_err(|_| format!("{word:?} is no ADDR:PORT"))
            };
            let portals: Result<_, String> = words[1..].iter().map(portal).collect();
            Ok(Order::Portals(portals?))
        }
        _ => Err(format!(
            "{line:?}: the orders are \"path STATE [NSID]\" and \"portals [ADDR:PORT …]\""
        )),
    }
}

/// Does what lines of standard input say, each answered by a line on standard output: `done …`, or
/// `refused …` with the reason. Its end changes nothing.
pub(crate) fn take_orders(control: Control, nqn: String) -> Result<(), Failure> {
    let follow = move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if line.trim().is_empty() {
                continue;
            }
            let done = order(&line).and_then(|order| {
                let done = match order {
                    Order::Path(nsid, state) => control.set_path(&nqn, nsid, state),
                    Order::Portals(portals) => control.set_portals(&nqn, portals),
                };
                done.map_err(|error| error.to_string())
            });
            let answer = match done {
                Ok(()) => format!("done {}", line.trim()),
                Err(why) => format!("refused {}: {why}", line.trim()),
            };
            let mut out = std::io::stdout().lock();
            if writeln!(out, "{answer}")
                .and_then(|()| out.flush())
                .is_err()
            {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name("orders".into())
        .spawn(follow);
    let failed = |error| Failure::environment(format!("cannot start a thread: {error}"));
    thread.map(|_| ()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_and_odd_ones_are_named() {
        assert_eq!(
            order("path optimized"),
            Ok(Order::Path(None, AnaState::Optimized))
        );
        assert_eq!(
            order(" path  change 2 "),
            Ok(Order::Path(Some(2), AnaState::Change))
        );
        let portals = vec!["192.0.2.1:4420".parse().unwrap()];
        assert_eq!(order("portals 192.0.2.1:4420"), Ok(Order::Portals(portals)));
        assert_eq!(order("portals"), Ok(Order::Portals(Vec::new())));
        for (line, word) in [
            ("path best", "best"),
            ("path change x", "x"),
            ("portals here", "here"),
            ("go away", "go away"),
        ] {
            assert!(order(line).unwrap_err().contains(word), "{line}");
        }
        assert_eq!(ids("1-99"), Ok(1..=99));
        assert!(ids("7").is_err() && ids("a-b").is_err() && ids("1-70000").is_err());
    }
}
