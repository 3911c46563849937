//! What is told of a service as it goes from one state to the next: lines of the log, and events.

use std::time::Duration;

use super::machine::Owner;
use crate::model::{ClusterEvent, ServiceState};

/// Between two owners no node has its volumes for a moment; after so long the log says that it waits.
const WAITS_FOR: Duration = Duration::from_secs(1);

/// How a service is at a moment.
pub(super) struct Now<'a> {
    /// Since its watch began.
    pub(super) at: Duration,
    pub(super) state: ServiceState,
    pub(super) reason: Option<&'a str>,
    pub(super) owner: &'a Owner,
    /// For how long it had not served when it was started last.
    pub(super) gap: Option<Duration>,
}

/// What was told last.
pub(super) struct Teller {
    service: String,
    logged: Option<ServiceState>,
    kind: Option<&'static str>,
    /// The node that it was said to be on, if that was another one.
    elsewhere: Option<String>,
    waits_since: Option<Duration>,
}

impl Teller {
    pub(super) fn of(service: &str) -> Self {
        Self {
            service: service.to_owned(),
            logged: None,
            kind: None,
            elsewhere: None,
            waits_since: None,
        }
    }

    /// A line in the log for each change.
    pub(super) fn log(&mut self, now: &Now<'_>) {
        let state = now.state;
        if self.logged == Some(state) {
            return;
        }
        self.logged = Some(state);
        let (name, reason) = (&self.service, now.reason.unwrap_or_default());
        match state {
            ServiceState::Failed | ServiceState::Waiting => {
                tracing::warn!(service = %name, ?state, reason, "service");
            }
            _ => tracing::info!(service = %name, ?state, reason, "service"),
        }
    }

    /// What an operator may want to know of it, if it is news. `me` is this node.
    pub(super) fn event(&mut self, now: &Now<'_>, me: &str) -> Option<ClusterEvent> {
        let kind = self.kind(now)?;
        let node = match now.owner {
            Owner::Elsewhere { node, .. } if kind == ELSEWHERE => Some(node.clone()),
            _ => None,
        };
        if self.kind == Some(kind) && self.elsewhere == node {
            return None;
        }
        self.kind = Some(kind);
        self.elsewhere.clone_from(&node);
        let node = node.unwrap_or_else(|| me.to_owned());
        let mut text = match kind {
            RUNNING => format!("node {node} runs it"),
            STOPPED => format!("it is stopped on node {node}, by order"),
            FAILED => format!("node {node} has given it up"),
            ELSEWHERE => format!("node {node} has it"),
            INTERRUPTED => format!("it does not serve any more on node {node}"),
            _ => format!("node {node} waits to run it"),
        };
        if let Some(gap) = now.gap.filter(|_| kind == RUNNING) {
            text.push_str(&format!(", after {:.2} s", gap.as_secs_f64()));
        }
        if let Some(reason) = now.reason {
            text.push_str(&format!(": {reason}"));
        }
        Some(ClusterEvent {
            kind: kind.to_owned(),
            service: Some(self.service.clone()),
            node: Some(node),
            reason: now.reason.map(str::to_owned),
            text,
            ..ClusterEvent::default()
        })
    }

    /// What a state comes to, if it is one to be told.
    fn kind(&mut self, now: &Now<'_>) -> Option<&'static str> {
        if now.state != ServiceState::Waiting {
            self.waits_since = None;
        }
        match now.state {
            ServiceState::Running => Some(RUNNING),
            ServiceState::Stopped => Some(STOPPED),
            ServiceState::Failed => Some(FAILED),
            ServiceState::Elsewhere => Some(ELSEWHERE),
            ServiceState::Waiting => {
                let since = *self.waits_since.get_or_insert(now.at);
                (now.at.saturating_sub(since) >= WAITS_FOR).then_some(WAITING)
            }
            // On its way. By order is no news before it has arrived.
            ServiceState::Mounting | ServiceState::Starting | ServiceState::Stopping => {
                let is_news = self.kind == Some(RUNNING) && now.reason.is_some();
                is_news.then_some(INTERRUPTED)
            }
        }
    }
}

const RUNNING: &str = "service_running";
const STOPPED: &str = "service_stopped";
const FAILED: &str = "service_failed";
const ELSEWHERE: &str = "service_elsewhere";
const WAITING: &str = "service_waiting";
const INTERRUPTED: &str = "service_interrupted";

#[cfg(test)]
mod tests {
    use super::*;

    /// A service on node a, whose state a test says.
    struct World {
        teller: Teller,
        at: Duration,
        owner: Owner,
    }

    impl World {
        fn new() -> Self {
            Self {
                teller: Teller::of("pg"),
                at: Duration::ZERO,
                owner: Owner::Here { epoch: 1 },
            }
        }

        fn told(&mut self, state: ServiceState, reason: Option<&str>) -> Option<ClusterEvent> {
            self.at += Duration::from_millis(100);
            let now = Now {
                at: self.at,
                state,
                reason,
                owner: &self.owner,
                gap: Some(Duration::from_millis(540)),
            };
            self.teller.event(&now, "a")
        }

        fn text(&mut self, state: ServiceState, reason: Option<&str>) -> String {
            self.told(state, reason).expect("news").text
        }

        fn is_no_news(&mut self, state: ServiceState, reason: Option<&str>) {
            assert_eq!(self.told(state, reason), None);
        }
    }

    #[test]
    fn a_crash_is_told_with_its_cause_and_its_end_with_the_gap() {
        use ServiceState::{Failed, Mounting, Running, Starting, Stopping};
        let mut world = World::new();
        world.is_no_news(Mounting, None);
        world.is_no_news(Starting, None);
        let up = world.told(Running, None).expect("news");
        assert_eq!(up.text, "node a runs it, after 0.54 s");
        assert_eq!(
            (up.service.as_deref(), up.node.as_deref(), up.volume),
            (Some("pg"), Some("a"), None)
        );
        world.is_no_news(Running, None);
        let died = world
            .told(Starting, Some("its processes have ended"))
            .expect("news");
        assert_eq!(died.kind, "service_interrupted");
        assert_eq!(died.reason.as_deref(), Some("its processes have ended"));
        world.is_no_news(Stopping, Some("it has failed"));
        let given_up = world.text(Failed, Some("exit status: 7"));
        assert_eq!(given_up, "node a has given it up: exit status: 7");
    }

    #[test]
    fn a_move_by_hand_is_told_by_where_it_has_arrived() {
        use ServiceState::{Elsewhere, Running, Stopping, Waiting};
        let mut world = World::new();
        world.text(Running, None);
        world.is_no_news(Stopping, None);
        // For a moment no node has the volumes.
        world.is_no_news(Waiting, Some("it is not known which node serves"));
        let at = |node: &str| Owner::Elsewhere {
            node: node.into(),
            epoch: 2,
        };
        world.owner = at("b");
        let away = world.told(Elsewhere, None).expect("news");
        assert_eq!(
            (away.node.as_deref(), away.text.as_str()),
            (Some("b"), "node b has it")
        );
        world.is_no_news(Elsewhere, None);
        world.owner = at("c");
        assert_eq!(world.text(Elsewhere, None), "node c has it");
    }

    #[test]
    fn what_waits_for_a_second_is_told_once_and_why() {
        use ServiceState::{Mounting, Stopped, Waiting};
        let mut world = World::new();
        let mut told = Vec::new();
        for _ in 0..30 {
            told.extend(world.told(Waiting, Some("volume tank/pg takes no writes")));
        }
        assert_eq!(told.len(), 1);
        assert_eq!(
            told[0].text,
            "node a waits to run it: volume tank/pg takes no writes"
        );
        world.is_no_news(Mounting, None);
        assert_eq!(
            world.text(Stopped, None),
            "it is stopped on node a, by order"
        );
    }
}
