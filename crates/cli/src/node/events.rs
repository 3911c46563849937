//! `ashlar events`.

use std::time::Duration;

use ashlar_node::client::Client;
use ashlar_node::model::ClusterEvent;

use super::Api;
use crate::args::EventsArguments;
use crate::exit::Failure;
use crate::output::print;

/// How often events are asked for while they are followed.
const EVERY: Duration = Duration::from_millis(250);
/// How seldom at most while the daemon does not answer.
const SELDOM: Duration = Duration::from_secs(4);

pub(crate) fn run(arguments: &EventsArguments) -> Result<(), Failure> {
    let Api { client, json, .. } = Api::new(&arguments.api)?;
    let mut daemon = client.node()?.pid;
    let mut after = 0;
    show(&client.events(after)?, &mut after, json)?;
    if !arguments.follow {
        return Ok(());
    }
    loop {
        std::thread::sleep(EVERY);
        let now = client.node().map_or_else(
            |why| {
                eprintln!("ashlar: {why}; asked again until it answers");
                await_daemon(&client)
            },
            |node| node.pid,
        );
        if now != daemon {
            // Another process counts its events from 1.
            (daemon, after) = (now, 0);
        }
        // One that has died since is asked again.
        if let Ok(events) = client.events(after) {
            show(&events, &mut after, json)?;
        }
    }
}

fn show(events: &[ClusterEvent], after: &mut u64, json: bool) -> Result<(), Failure> {
    for event in events {
        *after = event.number;
        print(&line(event, json)?)?;
    }
    Ok(())
}

/// One that is upgraded, or has died, is back soon: its process.
fn await_daemon(client: &Client) -> u32 {
    let mut pause = EVERY;
    loop {
        std::thread::sleep(pause);
        pause = (pause * 2).min(SELDOM);
        if let Ok(node) = client.node() {
            return node.pid;
        }
    }
}

/// With JSON an object a line.
fn line(event: &ClusterEvent, json: bool) -> Result<String, Failure> {
    if json {
        let text = serde_json::to_string(event).map_err(Failure::environment)?;
        return Ok(format!("{text}\n"));
    }
    let about = event.volume.as_deref().unwrap_or("node");
    Ok(format!("{:.3} {about}: {}\n", event.seconds, event.text))
}
