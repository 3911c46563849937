//! `ashlar events`.

use std::time::Duration;

use ashlar_lab::units::moment;
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
    let about = match (&event.volume, &event.service) {
        (Some(volume), _) => volume.clone(),
        (None, Some(service)) => format!("service {service}"),
        (None, None) => "node".into(),
    };
    Ok(format!("{} {about}: {}\n", time(event.seconds), event.text))
}

/// Seconds since 1970 as the log has them.
fn time(seconds: f64) -> String {
    let millis = (seconds * 1000.0).round() as u64;
    let moment = moment(millis / 1000).replace(' ', "T");
    format!("{moment}.{:03}Z", millis % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_a_date_and_programs_seconds() {
        let event = ClusterEvent {
            number: 7,
            seconds: 951_782_400.25,
            kind: "serves".into(),
            volume: Some("tank/db".into()),
            text: "node a serves it".into(),
            ..ClusterEvent::default()
        };
        let told = line(&event, false).ok().expect("a line");
        assert_eq!(told, "2000-02-29T00:00:00.250Z tank/db: node a serves it\n");
        let json = line(&event, true).ok().expect("a line");
        assert!(json.contains("\"seconds\":951782400.25"), "{json}");
        let of_service = ClusterEvent {
            volume: None,
            service: Some("pg".into()),
            text: "node a runs it".into(),
            ..event
        };
        let told = line(&of_service, false).ok().expect("a line");
        assert!(told.ends_with("Z service pg: node a runs it\n"), "{told}");
    }
}
