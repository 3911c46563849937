//! The machine's ways, one fault at a time.

use std::time::Duration;

use super::machine::{Action, Left, MOST_FAILURES, Machine, Owner, Seen, Wanted};
use crate::model::ServiceState;

/// A machine whose actions a test ends.
struct World {
    machine: Machine,
    seen: Seen,
}

impl World {
    fn new() -> Self {
        Self {
            machine: Machine::new(Left::Nothing),
            seen: Seen {
                now: Duration::from_secs(1),
                owner: Owner::Here { epoch: 1 },
                wanted: Wanted::Run,
                can_move: false,
                may_give: false,
                silence: None,
                bad: None,
                dark: None,
                alive: false,
                ready: None,
                done: None,
            },
        }
    }

    fn after(&mut self, ms: u64) -> Option<Action> {
        self.seen.now += Duration::from_millis(ms);
        let action = self.machine.step(&self.seen);
        self.seen.done = None;
        action
    }

    /// The action under way ends so; what comes next.
    fn done(&mut self, done: Result<(), &str>) -> Option<Action> {
        self.seen.done = Some(done.map_err(str::to_owned));
        self.after(10)
    }

    fn state(&self) -> ServiceState {
        self.machine.state(&self.seen.owner, self.seen.wanted).0
    }

    fn reason(&self) -> String {
        self.machine
            .state(&self.seen.owner, self.seen.wanted)
            .1
            .unwrap_or_default()
    }

    /// Up and running.
    fn running() -> Self {
        let mut world = Self::new();
        assert_eq!(world.after(0), Some(Action::Mount));
        assert_eq!(world.done(Ok(())), Some(Action::Start));
        world.seen.alive = true;
        assert_eq!(world.done(Ok(())), None);
        assert_eq!(world.state(), ServiceState::Running);
        world
    }
}

#[test]
fn it_is_mounted_then_started_and_stopped_in_the_other_order() {
    let mut world = World::running();
    world.seen.wanted = Wanted::Stopped;
    assert_eq!(world.after(10), Some(Action::Drain));
    assert_eq!(world.done(Ok(())), Some(Action::Stop));
    assert_eq!(world.after(10), None, "one action at a time");
    assert_eq!(world.done(Ok(())), Some(Action::Kill));
    world.seen.alive = false;
    assert_eq!(world.done(Ok(())), Some(Action::Unmount));
    assert_eq!(world.state(), ServiceState::Stopping);
    assert_eq!(world.done(Ok(())), None);
    assert_eq!(
        (world.state(), world.after(100_000)),
        (ServiceState::Stopped, None)
    );
    world.seen.wanted = Wanted::Run;
    assert_eq!(world.after(10), Some(Action::Mount));
}

#[test]
fn a_database_that_dies_is_started_again_where_it_is_and_its_gap_is_kept() {
    let mut world = World::running();
    world.seen.alive = false;
    assert_eq!(world.after(10), Some(Action::Start), "nothing is unmounted");
    world.seen.alive = true;
    world.seen.now += Duration::from_secs(2);
    assert_eq!(world.done(Ok(())), None);
    assert_eq!(world.state(), ServiceState::Running);
    assert_eq!(world.machine.totals.failures, 1);
    assert_eq!(
        world.machine.totals.last_gap,
        Some(Duration::from_millis(2010))
    );
}

#[test]
fn what_fails_again_and_again_is_given_up_and_says_why() {
    let mut world = World::new();
    assert_eq!(world.after(0), Some(Action::Mount));
    for failure in 1..=MOST_FAILURES {
        assert_eq!(world.done(Ok(())), Some(Action::Start));
        assert_eq!(world.done(Err("exit status: 7")), None, "it waits first");
        assert_eq!(world.after(5_000), Some(Action::Kill));
        assert_eq!(world.done(Ok(())), Some(Action::Unmount));
        let again = (failure < MOST_FAILURES).then_some(Action::Mount);
        assert_eq!(world.done(Ok(())), again, "failure {failure}");
    }
    assert_eq!(
        (world.state(), world.reason()),
        (ServiceState::Failed, "exit status: 7".into())
    );
    assert_eq!(world.after(1_000_000), None, "it stays so");
    let mut moved = World {
        machine: world.machine.clone(),
        seen: world.seen.clone(),
    };
    moved.seen.wanted = Wanted::Moved;
    assert_eq!(moved.after(10), Some(Action::GiveAway), "or goes, by order");
    world.machine.forgive();
    assert_eq!(
        world.after(10),
        Some(Action::Mount),
        "until it is told to start"
    );
}

#[test]
fn where_another_node_can_have_it_what_fails_too_often_is_given_to_that() {
    let mut world = World::running();
    world.seen.can_move = true;
    for _ in 1..MOST_FAILURES {
        world.seen.alive = false;
        assert_eq!(world.after(10), Some(Action::Start));
        world.seen.alive = true;
        world.done(Ok(()));
    }
    world.seen.alive = false;
    world.after(10);
    assert_eq!(world.after(5_000), Some(Action::Kill));
    assert_eq!(world.done(Ok(())), Some(Action::Unmount));
    assert_eq!(world.done(Ok(())), Some(Action::GiveAway));
    world.seen.owner = Owner::Elsewhere {
        node: "b".into(),
        epoch: 2,
    };
    world.done(Ok(()));
    assert_eq!(
        (world.state(), world.after(10_000)),
        (ServiceState::Elsewhere, None)
    );
}

#[test]
fn of_two_nodes_that_have_the_volumes_the_one_counts_that_has_them_later() {
    let here = Owner::Here { epoch: 3 };
    let told = |epoch| Owner::Elsewhere {
        node: "b".into(),
        epoch,
    };
    for (known, told, counts) in [
        (here.clone(), None, here.clone()),
        // A while ago, before they came back.
        (here.clone(), Some(told(2)), here.clone()),
        (here.clone(), Some(told(3)), here.clone()),
        (here.clone(), Some(told(4)), told(4)),
        (told(5), Some(told(4)), told(4)),
    ] {
        assert_eq!(
            known.clone().or_later(told.clone()),
            counts,
            "{known:?}, {told:?}"
        );
    }
}

#[test]
fn where_ownership_leaves_it_is_killed_without_asking_it() {
    let mut world = World::running();
    world.seen.owner = Owner::Elsewhere {
        node: "b".into(),
        epoch: 2,
    };
    assert_eq!(world.after(10), Some(Action::Fence));
    world.done(Ok(()));
    assert_eq!(
        (world.state(), world.after(10_000)),
        (ServiceState::Elsewhere, None)
    );
}

#[test]
fn what_was_mounted_before_another_node_had_the_volumes_is_not_used_again() {
    let mut world = World::running();
    world.seen.owner = Owner::Here { epoch: 3 };
    world.seen.silence = Some(Duration::from_millis(700));
    assert_eq!(world.after(10), Some(Action::Fence));
    assert_eq!(world.done(Ok(())), Some(Action::Mount));
    assert_eq!(world.done(Ok(())), Some(Action::Start));
    world.seen.now += Duration::from_millis(200);
    world.done(Ok(()));
    let gap = world.machine.totals.last_gap.expect("a gap");
    let silence_and_start = Duration::from_millis(700 + 200 + 2 * 10);
    assert_eq!(
        gap, silence_and_start,
        "from the silence of the owner before"
    );
}

#[test]
fn one_that_is_being_stopped_or_mounted_is_not_waited_for_where_ownership_leaves() {
    let elsewhere = Owner::Elsewhere {
        node: "b".into(),
        epoch: 2,
    };
    let mut stopping = World::running();
    stopping.seen.wanted = Wanted::Stopped;
    assert_eq!(stopping.after(10), Some(Action::Drain));
    assert_eq!(stopping.done(Ok(())), Some(Action::Stop));
    let mut draining = World::running();
    draining.seen.wanted = Wanted::Moved;
    assert_eq!(draining.after(10), Some(Action::Drain));
    let mut mounting = World::new();
    assert_eq!(mounting.after(0), Some(Action::Mount));
    for world in [&mut stopping, &mut draining, &mut mounting] {
        world.seen.owner = elsewhere.clone();
        assert_eq!(world.after(10), Some(Action::Fence));
        assert_eq!(world.after(10), None, "one action at a time");
        assert_eq!(world.done(Err("it is still there")), None);
        assert_eq!(world.after(1_000), Some(Action::Fence), "until it is gone");
        world.done(Ok(()));
        assert!(world.machine.is_down());
    }
}

#[test]
fn a_start_that_hangs_on_a_bad_volume_is_not_waited_for() {
    let mut world = World::new();
    world.after(0);
    assert_eq!(world.done(Ok(())), Some(Action::Start));
    world.seen.bad = Some("stuck".into());
    assert_eq!(world.after(10), Some(Action::Fence), "at once");
    world.seen.owner = Owner::Unusable { why: "lost".into() };
    world.done(Ok(()));
    assert_eq!(
        (world.state(), world.reason()),
        (ServiceState::Waiting, "lost".into())
    );
    // Once the volume is good again, it comes up by itself.
    world.seen.bad = None;
    world.seen.owner = Owner::Here { epoch: 1 };
    assert_eq!(world.after(10_000), Some(Action::Mount));
}

#[test]
fn a_volume_that_goes_bad_whenever_it_is_used_is_not_tried_for_ever() {
    let mut world = World::running();
    for failure in 1..=MOST_FAILURES {
        world.seen.bad = Some("stuck".into());
        assert_eq!(world.after(10), Some(Action::Fence));
        world.seen.bad = None;
        assert_eq!(world.done(Ok(())), None, "it waits first");
        let again = (failure < MOST_FAILURES).then_some(Action::Mount);
        assert_eq!(world.after(1_000), again, "failure {failure}");
        world.done(Ok(()));
        world.done(Ok(()));
    }
    assert_eq!(
        (world.state(), world.reason()),
        (ServiceState::Failed, "stuck".into())
    );
    // What ran for a while between has none in a row.
    let mut world = World::running();
    for _ in 0..2 * MOST_FAILURES {
        world.after(60_000);
        world.seen.bad = Some("stuck".into());
        assert_eq!(world.after(10), Some(Action::Fence));
        world.seen.bad = None;
        world.done(Ok(()));
        assert_eq!(world.after(1_000), Some(Action::Mount));
        world.done(Ok(()));
        world.done(Ok(()));
    }
}

/// Running, stopped by an operator, and so far on its way down that this is being done.
fn on_the_way_down(until: Action) -> World {
    let mut world = World::running();
    world.seen.wanted = Wanted::Stopped;
    let mut action = world.after(10);
    while action != Some(until) {
        assert!(action.is_some(), "{until:?}");
        action = world.done(Ok(()));
    }
    world
}

#[test]
fn on_the_way_down_a_bad_volume_ends_all_order_and_hides_no_loss_of_ownership() {
    for until in [Action::Drain, Action::Stop, Action::Kill, Action::Unmount] {
        let mut world = on_the_way_down(until);
        world.seen.bad = Some("stuck".into());
        assert_eq!(
            world.after(10),
            Some(Action::Fence),
            "{until:?} is not waited for"
        );
        assert_eq!(world.after(10), None, "one action at a time");
        assert_eq!(
            (world.done(Ok(())), world.state()),
            (None, ServiceState::Stopped)
        );

        // Both at once, or one after the other.
        let mut world = on_the_way_down(until);
        world.seen.bad = Some("stuck".into());
        world.seen.owner = Owner::Elsewhere {
            node: "b".into(),
            epoch: 2,
        };
        assert_eq!(world.after(10), Some(Action::Fence), "{until:?}");
        world.seen.bad = None;
        assert_eq!(world.done(Err("busy")), None);
        assert_eq!(world.after(1_000), Some(Action::Fence));
        world.done(Ok(()));
        assert!(world.machine.is_down());
    }
}

#[test]
fn what_is_taken_from_a_bad_volume_is_given_away_only_while_it_is_had() {
    let bad = || {
        let mut world = World::running();
        world.seen.can_move = true;
        world.seen.bad = Some("stuck".into());
        assert_eq!(world.after(10), Some(Action::Fence));
        world.seen.bad = None;
        world
    };
    assert_eq!(bad().done(Ok(())), Some(Action::GiveAway));
    let mut lost = bad();
    lost.seen.owner = Owner::Elsewhere {
        node: "b".into(),
        epoch: 2,
    };
    assert_eq!(lost.after(10), None, "it is being taken down");
    lost.done(Ok(()));
    assert_eq!(lost.after(1_000), None);
    assert_eq!(lost.state(), ServiceState::Elsewhere);
}

#[test]
fn an_old_failure_delays_no_taking_down() {
    let mut world = World::new();
    world.after(0);
    assert_eq!(world.done(Err("no mount")), None, "it waits first");
    world.seen.owner = Owner::Elsewhere {
        node: "b".into(),
        epoch: 2,
    };
    assert_eq!(world.after(10), Some(Action::Fence));
}

#[test]
fn one_that_hangs_is_started_again_and_one_that_is_slow_once_is_not() {
    let mut world = World::running();
    world.seen.ready = Some(false);
    assert_eq!(world.after(100), None);
    world.seen.ready = Some(true);
    assert_eq!(world.after(9_000), None);
    world.seen.ready = Some(false);
    assert_eq!(world.after(9_000), None, "the time counts from here");
    assert_eq!(world.after(9_000), None);
    assert_eq!(world.after(2_000), Some(Action::Start));
}

#[test]
fn a_move_by_hand_is_in_order() {
    let mut world = World::running();
    world.seen.can_move = true;
    world.seen.wanted = Wanted::Moved;
    assert_eq!(world.after(10), Some(Action::Drain));
    assert_eq!(
        world.state(),
        ServiceState::Running,
        "clients are served until it is stopped"
    );
    assert_eq!(world.done(Err("no checkpoint")), Some(Action::Stop));
    assert_eq!(world.state(), ServiceState::Stopping);
    assert_eq!(world.done(Ok(())), Some(Action::Kill));
    assert_eq!(world.done(Ok(())), Some(Action::Unmount));
    assert_eq!(world.done(Ok(())), Some(Action::GiveAway));
}

#[test]
fn one_that_clients_do_not_reach_goes_in_order_where_another_node_can_have_it() {
    let mut world = World::running();
    world.seen.dark = Some("no carrier".into());
    assert_eq!(world.after(10_000), None, "who is here may use it");
    world.seen.can_move = true;
    assert_eq!(world.after(10_000), None, "its volumes are kept here");
    world.seen.may_give = true;
    assert_eq!(world.after(10), Some(Action::Stop));
    assert_eq!(world.done(Ok(())), Some(Action::Kill), "in order");
    assert_eq!(world.done(Ok(())), Some(Action::Unmount));
    assert_eq!(world.reason(), "no carrier");
    assert_eq!(world.done(Ok(())), Some(Action::GiveAway));
}

#[test]
fn what_cannot_be_unmounted_is_tried_again_and_never_forgotten() {
    let mut world = World::running();
    world.seen.wanted = Wanted::Stopped;
    assert_eq!(world.after(10), Some(Action::Drain));
    world.done(Ok(()));
    world.done(Ok(()));
    assert_eq!(world.done(Ok(())), Some(Action::Unmount));
    assert_eq!(world.done(Err("busy")), None);
    assert_eq!(
        (world.state(), world.reason()),
        (ServiceState::Stopping, "busy".into())
    );
    assert_eq!(world.after(1_000), Some(Action::Unmount));
}

#[test]
fn a_daemon_that_was_restarted_finds_it_running() {
    let mut world = World::new();
    world.machine = Machine::new(Left::Whole);
    world.seen.alive = true;
    assert_eq!(
        (world.after(0), world.state()),
        (None, ServiceState::Running)
    );
}

/// It is not stopped before nothing of it is left, and does not come up over what is.
#[test]
fn what_a_daemon_has_left_half_way_is_taken_down_first() {
    for (wanted, state, next) in [
        (Wanted::Stopped, ServiceState::Stopped, None),
        (Wanted::Run, ServiceState::Mounting, Some(Action::Mount)),
    ] {
        let mut world = World::new();
        world.machine = Machine::new(Left::Parts);
        world.seen.wanted = wanted;
        assert!(!world.machine.is_down());
        assert_eq!(world.state(), ServiceState::Stopping);
        assert_eq!(world.after(0), Some(Action::Kill));
        assert_eq!(world.done(Ok(())), Some(Action::Unmount));
        assert_eq!(world.done(Err("busy")), None);
        assert_eq!(
            (world.state(), world.reason()),
            (ServiceState::Stopping, "busy".into())
        );
        assert_eq!(world.after(1_000), Some(Action::Unmount));
        assert_eq!(world.done(Ok(())), next);
        assert_eq!(world.state(), state);
        assert_eq!(world.machine.totals.failures, 0);
    }
}
