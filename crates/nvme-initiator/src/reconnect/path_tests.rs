//! Several paths to one namespace.

use ashlar_nvme::Status;
use ashlar_nvme::identify::cmic;
use ashlar_nvme::log::AnaState;

use super::tests::{Rig, SHORT, config};
use super::*;

const OPTIMIZED: AnaState = AnaState::Optimized;
const INACCESSIBLE: AnaState = AnaState::Inaccessible;
/// Of the target that can be asked for the end of a lost association.
const INSTANCE: Option<(u8, u64)> = Some((9, 77));

fn rig(states: [AnaState; 2]) -> Rig {
    rig_with(states, |_| {})
}

fn rig_with<const PATHS: usize>(states: [AnaState; PATHS], edit: impl FnOnce(&mut Config)) -> Rig {
    let mut config = config();
    let others = 2..=PATHS;
    config.others = others.map(|at| format!("10.0.0.{at}:4420")).collect();
    config.keep_alive = Duration::from_secs(4);
    config.loss = Duration::from_secs(20);
    edit(&mut config);
    Rig::with(config, |world| {
        let target = &mut world.target;
        target.controller.cmic = cmic::ANA_REPORTING;
        target.controller.nanagrpid.set(1);
        target.controller.mnan.set(8);
        target.paths = states.to_vec();
        target.instance = INSTANCE;
    })
}

/// Which paths commands have taken since the last call.
fn taken(rig: &mut Rig) -> Vec<usize> {
    std::mem::take(&mut rig.world.target.by)
}

fn write(rig: &mut Rig, tag: u64) {
    rig.write(tag, 1, Durability::Durable);
}

#[test]
fn the_best_path_is_taken_and_left_when_the_target_says_so() {
    for (states, best) in [
        ([OPTIMIZED, AnaState::NonOptimized], 0),
        ([AnaState::NonOptimized, OPTIMIZED], 1),
        ([INACCESSIBLE, AnaState::NonOptimized], 1),
        ([AnaState::NonOptimized, AnaState::Change], 0),
    ] {
        let mut rig = rig(states);
        write(&mut rig, 1);
        rig.read(2);
        rig.run(SHORT);
        assert_eq!(rig.results(), [(1, None), (2, None)]);
        assert_eq!(taken(&mut rig), [best; 2]);
    }
    let mut rig = rig([OPTIMIZED, INACCESSIBLE]);
    rig.world.turn(0, AnaState::Change);
    rig.run(SHORT);
    write(&mut rig, 1);
    rig.run(SHORT);
    assert!(
        rig.results().is_empty() && taken(&mut rig).is_empty(),
        "none is usable: it waits"
    );
    rig.world.turn(1, OPTIMIZED);
    rig.run(SHORT);
    assert_eq!((rig.results(), taken(&mut rig)), (vec![(1, None)], vec![1]));
    // Both say so: the one that said it last.
    rig.world.turn(0, OPTIMIZED);
    rig.run(SHORT);
    write(&mut rig, 2);
    rig.run(SHORT);
    assert_eq!(taken(&mut rig), [0]);
}

/// A host that is not to follow the owner must not have it done by the target either.
#[test]
fn where_nothing_may_be_handed_on_commands_wait_for_a_path_that_needs_none_to_do_so() {
    let stays = |config: &mut Config| config.forwards = false;
    let mut rig = rig_with([OPTIMIZED, AnaState::NonOptimized], stays);
    write(&mut rig, 1);
    rig.run(SHORT);
    assert_eq!((rig.results(), taken(&mut rig)), (vec![(1, None)], vec![0]));
    rig.world.turn(0, AnaState::NonOptimized);
    rig.run(SHORT);
    write(&mut rig, 2);
    rig.read(3);
    rig.run(SHORT);
    assert!(rig.results().is_empty() && taken(&mut rig).is_empty());
    rig.world.turn(0, OPTIMIZED);
    rig.run(SHORT);
    assert_eq!(rig.results(), [(2, None), (3, None)]);
    assert_eq!(taken(&mut rig), [0, 0]);
}

#[test]
fn a_lost_write_waits_for_the_end_of_its_association_and_a_read_does_not() {
    let mut rig = rig([OPTIMIZED, AnaState::NonOptimized]);
    rig.world.target.mute = true;
    write(&mut rig, 1);
    rig.read(2);
    rig.run(SHORT);
    assert_eq!(taken(&mut rig), [0, 0]);
    rig.world.target.mute = false;
    // The other controller has not ended it yet: it is asked again.
    let going_on = (Status::SUCCESS, 0);
    rig.world.target.reset_answers = vec![going_on; 3];
    rig.world.cut_path(&mut rig.session, 0);
    rig.run(Duration::from_millis(15));
    assert_eq!(taken(&mut rig), [1], "only the read");
    assert_eq!(rig.results(), [(2, None)]);
    rig.run(SHORT);
    assert_eq!((rig.results(), taken(&mut rig)), (vec![(1, None)], vec![1]));
    assert_eq!(rig.world.target.resets.len(), 4);
    let [cdw10, cdw12, _] = rig.world.target.resets[0];
    assert_eq!((cdw10, cdw12), (5 | 9 << 16, 77), "the lost one is named");
}

#[test]
fn without_word_of_its_end_a_lost_association_lasts_as_long_as_its_keep_alive() {
    let mut rig = rig([OPTIMIZED, OPTIMIZED]);
    rig.world.target.mute = true;
    write(&mut rig, 1);
    rig.run(SHORT);
    let first = taken(&mut rig)[0];
    rig.world.target.mute = false;
    rig.world.target.reset_answers = vec![(Status::INVALID_FIELD.with_dnr(), 0); 9];
    rig.world.cut_path(&mut rig.session, first);
    // Four seconds of keep-alive and two for a target that is late.
    rig.run(Duration::from_millis(5900));
    write(&mut rig, 2);
    assert!(rig.results().is_empty() && taken(&mut rig).is_empty());
    rig.run(SHORT);
    assert_eq!(rig.results(), [(1, None), (2, None)]);
    assert_eq!(taken(&mut rig), [1 - first; 2]);
    assert_eq!(
        rig.world.target.resets.len(),
        1,
        "one that cannot tell is asked once"
    );
}

#[test]
fn a_path_that_comes_back_speaks_for_itself() {
    let mut rig = rig([OPTIMIZED, INACCESSIBLE]);
    rig.world.target.mute = true;
    write(&mut rig, 1);
    rig.run(SHORT);
    rig.world.target.mute = false;
    rig.world.target.reset_answers = vec![(Status::INVALID_FIELD, 0)];
    rig.world.cut_path(&mut rig.session, 0);
    rig.run(SHORT);
    assert!(rig.results().is_empty());
    rig.world.target.cut.clear();
    rig.run(Duration::from_secs(3));
    assert_eq!(rig.results(), [(1, None)]);
    assert_eq!(taken(&mut rig), [0, 0]);
}

#[test]
fn a_target_that_is_back_is_taken_at_once_when_the_last_path_is_lost() {
    let a_while = Duration::from_millis(120);
    for after in (10_000..12_000).step_by(250) {
        let mut rig = rig([OPTIMIZED, OPTIMIZED]);
        rig.world.cut_path(&mut rig.session, 1);
        rig.run(Duration::from_millis(after));
        rig.world.target.cut.clear();
        rig.world.cut_path(&mut rig.session, 0);
        write(&mut rig, 1);
        rig.run(a_while);
        assert_eq!(rig.results(), [(1, None)], "after {after} ms");
        assert_eq!(taken(&mut rig), [1]);
    }
}

#[test]
fn a_stopped_target_is_given_up_once_another_has_taken_over() {
    let mut rig = rig([OPTIMIZED, INACCESSIBLE]);
    rig.world.target.stopped = vec![0];
    write(&mut rig, 1);
    rig.read(2);
    rig.run(SHORT);
    assert!(rig.results().is_empty(), "it may answer yet");
    rig.world.turn(1, OPTIMIZED);
    rig.run(Duration::from_millis(900));
    assert!(rig.results().is_empty(), "and now");
    rig.run(Duration::from_millis(200));
    assert_eq!(rig.results(), [(1, None), (2, None)]);
    assert_eq!(taken(&mut rig), [1, 1]);
    assert_eq!(
        rig.world.target.resets.len(),
        1,
        "the write had to wait for its end"
    );
}

#[test]
fn a_slow_target_is_not_given_up_while_it_answers_for_itself() {
    let mut rig = rig([OPTIMIZED, INACCESSIBLE]);
    rig.world.target.mute = true;
    write(&mut rig, 1);
    rig.run(SHORT);
    rig.world.turn(1, OPTIMIZED);
    rig.run(Duration::from_secs(10));
    assert_eq!(rig.session.losses(), 0);
    assert!(rig.results().is_empty());
    assert_eq!(taken(&mut rig), [0]);
}

#[test]
fn what_a_path_refuses_goes_over_another_at_once() {
    for refusal in [
        Status::ANA_TRANSITION,
        Status::ANA_INACCESSIBLE,
        Status::ANA_PERSISTENT_LOSS,
    ] {
        let mut rig = rig([OPTIMIZED, AnaState::NonOptimized]);
        rig.world.target.refusals = vec![refusal];
        write(&mut rig, 1);
        rig.run(Duration::from_millis(5));
        assert_eq!(
            (rig.results(), taken(&mut rig)),
            (vec![(1, None)], vec![0, 1])
        );
        assert!(rig.world.target.resets.is_empty(), "a refusal is an end");
        // The log page, read again, still calls the first the best.
        rig.run(SHORT);
        write(&mut rig, 2);
        rig.run(SHORT);
        assert_eq!(taken(&mut rig), [0]);
    }
}

#[test]
fn a_request_waits_for_a_path_no_longer_than_it_may() {
    let mut gone = rig([OPTIMIZED, INACCESSIBLE]);
    gone.world.turn(0, AnaState::Change);
    gone.run(SHORT);
    write(&mut gone, 1);
    gone.run(Duration::from_secs(18));
    assert!(gone.results().is_empty());
    gone.run(Duration::from_secs(2));
    let failed = gone
        .done
        .pop()
        .expect("failed")
        .result
        .expect_err("no path");
    let text = failed.to_string();
    assert!(
        text.contains("10.0.0.1:4420: the path is changing"),
        "{text}"
    );
    assert!(
        text.contains("10.0.0.2:4420: the path is inaccessible"),
        "{text}"
    );
    assert!(text.contains("20000 ms"), "{text}");

    // Paths that call themselves good and refuse everything.
    let mut liar = rig([OPTIMIZED, OPTIMIZED]);
    liar.world.target.refusals = vec![Status::ANA_TRANSITION; 10_000];
    write(&mut liar, 1);
    liar.run(Duration::from_secs(19));
    assert!(liar.results().is_empty());
    assert!(liar.world.target.by.len() < 1000, "it does not spin");
    liar.run(Duration::from_secs(2));
    assert_eq!(liar.results(), [(1, Some(ErrorKind::PathChanging))]);
}

#[test]
fn a_process_that_takes_over_ends_the_associations_of_all_paths() {
    let mut rig = rig([OPTIMIZED, OPTIMIZED]);
    let instances = rig.session.instances();
    assert!(instances.iter().all(|one| one.instance.is_some()));
    let now = rig.world.now;
    let (config, facts) = (rig.session.config.clone(), rig.session.expected.clone());
    rig.world.cut(&mut rig.session);
    let pool = crate::scripted::pool();
    rig.session = Session::new(now, config, facts, Arc::default(), pool);
    rig.session.take_over(now, &instances);
    rig.world.target.resets.clear();
    // Of the first only the second can speak.
    rig.world.target.cut = vec![0];
    rig.world.target.reset_answers =
        vec![(Status::INVALID_FIELD.with_dnr(), 0), (Status::SUCCESS, 1)];
    write(&mut rig, 1);
    rig.run(SHORT);
    assert!(rig.results().is_empty(), "the first may still write");
    rig.run(Duration::from_secs(6));
    assert_eq!(rig.results(), [(1, None)]);
}

#[test]
fn a_portal_that_goes_with_a_write_under_way_is_waited_for() {
    let mut rig = rig([OPTIMIZED, AnaState::NonOptimized]);
    let now = rig.world.now;
    assert!(!rig.session.drop_portal(0), "it is used");
    assert!(!rig.session.drop_portal(7), "there is none");
    rig.world.target.mute = true;
    write(&mut rig, 1);
    rig.run(SHORT);
    assert_eq!(taken(&mut rig), [0]);
    rig.world.target.mute = false;
    let going_on = (Status::SUCCESS, 0);
    rig.world.target.reset_answers = vec![going_on; 3];
    rig.world.cut_path(&mut rig.session, 0);
    rig.run(Duration::from_millis(5));
    assert!(rig.session.drop_portal(0));
    // Its place is not free before its end is known.
    assert_eq!(rig.session.add_portal(now, "10.0.0.3:4420"), Some(2));
    assert!(rig.session.drop_portal(2));
    rig.run(Duration::from_millis(10));
    assert!(taken(&mut rig).is_empty(), "a write of it may yet land");
    rig.run(SHORT);
    assert_eq!((rig.results(), taken(&mut rig)), (vec![(1, None)], vec![1]));
    let known: Vec<String> = rig
        .session
        .paths()
        .into_iter()
        .map(|path| path.address)
        .collect();
    assert_eq!(known, ["10.0.0.2:4420"]);
    assert_eq!(rig.session.add_portal(now, "10.0.0.4:4420"), Some(0));
    assert!(!rig.session.drop_portal(1), "by no other it is reached");
}

#[test]
fn the_own_node_s_portal_is_taken_until_ownership_comes_and_not_for_ever() {
    let home = |config: &mut Config| config.prefers = Some("10.0.0.2:4420".into());
    let mut rig = rig_with([OPTIMIZED, AnaState::NonOptimized], home);
    // A read each second, for so long; by the own node's path, so many.
    let reads = |rig: &mut Rig, seconds: u64| {
        for tag in 0..seconds {
            rig.read(tag % 100);
            rig.run(SHORT);
        }
        rig.results();
        taken(rig).into_iter().filter(|by| *by == 1).count()
    };
    rig.run(Duration::from_secs(600));
    assert_eq!(
        reads(&mut rig, 36),
        36,
        "longer than ownership takes to come"
    );
    assert!(reads(&mut rig, 60) < 10, "it does not come");
    rig.run(Duration::from_secs(5 * 60));
    assert!(reads(&mut rig, 90) < 50, "it is asked for again");
    assert_eq!(reads(&mut rig, 250), 0, "and the next time later");
    rig.run(Duration::from_secs(6 * 60));
    assert_eq!(reads(&mut rig, 35), 35);
    rig.world.turn(0, AnaState::NonOptimized);
    rig.world.turn(1, OPTIMIZED);
    rig.run(SHORT);
    assert_eq!(reads(&mut rig, 100), 100, "it has come");
    rig.world.turn(1, INACCESSIBLE);
    rig.run(SHORT);
    assert_eq!(reads(&mut rig, 5), 0, "no use");
}

/// A host that another takes the reservation from, while its first path is away or silent.
fn holder() -> Rig {
    rig_with([OPTIMIZED, INACCESSIBLE], |config| {
        config.holds_reservation = true;
        config.patient = true;
    })
}

const OTHER_HOST: Option<[u8; 16]> = Some([9; 16]);
const DENIED: Option<ErrorKind> = Some(ErrorKind::Denied);

#[test]
fn a_host_that_comes_back_reads_nothing_before_it_knows_that_it_holds_its_reservation() {
    let mut rig = holder();
    rig.world.cut_path(&mut rig.session, 0);
    rig.read(1);
    rig.run(SHORT);
    rig.world.target.holder = OTHER_HOST;
    rig.world.target.keeps_reports = true;
    rig.world.target.cut.clear();
    rig.run(Duration::from_secs(3));
    assert!(rig.session.is_ready() && rig.results().is_empty());
    assert!(taken(&mut rig).is_empty(), "it may be another's");
    rig.world.target.keeps_reports = false;
    rig.run(SHORT);
    assert_eq!(rig.results(), [(1, DENIED)]);
    assert!(rig.session.is_fenced());

    // Where none has taken it, it goes on.
    let mut rig = holder();
    rig.world.cut(&mut rig.session);
    rig.read(1);
    write(&mut rig, 2);
    rig.run(SHORT);
    assert_eq!(rig.results(), [(1, None), (2, None)]);
}

#[test]
fn a_report_that_is_out_by_a_stopped_path_does_not_speak_for_another() {
    let mut rig = holder();
    rig.world.cut(&mut rig.session);
    rig.world.target.keeps_reports = true;
    rig.run(SHORT);
    rig.world.target.stopped = vec![0];
    rig.world.target.keeps_reports = false;
    rig.world.target.holder = OTHER_HOST;
    rig.read(1);
    rig.world.turn(1, OPTIMIZED);
    rig.run(Duration::from_millis(500));
    assert_eq!(rig.results(), [(1, DENIED)]);
    assert!(taken(&mut rig).is_empty());
}

#[test]
fn what_was_read_before_the_loss_of_the_reservation_was_known_is_no_success() {
    let mut rig = holder();
    rig.world.target.holder = OTHER_HOST;
    rig.world.target.refusals = vec![Status::RESERVATION_CONFLICT];
    write(&mut rig, 1);
    rig.read(2);
    rig.run(SHORT);
    assert_eq!(rig.results(), [(1, DENIED), (2, DENIED)]);
}

#[test]
fn an_answer_about_an_earlier_loss_says_nothing_of_a_later_one() {
    let mut rig = rig([OPTIMIZED, AnaState::NonOptimized]);
    rig.world.target.keeps_resets = vec![1];
    for tag in [1, 2] {
        rig.world.target.mute = true;
        write(&mut rig, tag);
        rig.run(SHORT);
        assert_eq!(taken(&mut rig), [0]);
        rig.world.target.mute = false;
        rig.world.cut_path(&mut rig.session, 0);
        rig.run(Duration::from_millis(5));
        if tag == 1 {
            // It comes back, as another, while the other path has yet to answer.
            rig.world.target.instance = Some((9, 78));
            rig.world.target.cut.clear();
            rig.run(Duration::from_secs(3));
            assert_eq!((rig.results(), taken(&mut rig)), (vec![(1, None)], vec![0]));
        }
    }
    // The first answer is of the first loss; the second is not over then.
    let answers = &mut rig.world.target.reset_answers;
    answers.extend([
        (Status::SUCCESS, 0),
        (Status::SUCCESS, 0),
        (Status::SUCCESS, 1),
    ]);
    rig.world.target.resets.clear();
    rig.world.target.keeps_resets.clear();
    rig.run(Duration::from_millis(5));
    assert!(taken(&mut rig).is_empty(), "the second may write yet");
    rig.run(SHORT);
    assert_eq!((rig.results(), taken(&mut rig)), (vec![(2, None)], vec![1]));
    let numbers = rig.world.target.resets.iter().map(|words| words[1]);
    assert!(numbers.eq([78; 3]), "each names the second");
}

#[test]
fn the_end_of_what_is_lost_is_asked_of_the_path_that_is_taken_now() {
    // Two portals of a node, which is stopped, and one of another that takes over.
    let states = [OPTIMIZED, AnaState::NonOptimized, INACCESSIBLE];
    let mut rig = rig_with(states, |_| {});
    rig.world.target.stopped = vec![0, 1];
    write(&mut rig, 1);
    rig.run(SHORT);
    rig.world.turn(2, OPTIMIZED);
    rig.run(Duration::from_millis(1100));
    assert_eq!((rig.results(), taken(&mut rig)), (vec![(1, None)], vec![2]));
}

#[test]
fn a_question_without_an_answer_is_asked_of_the_next_path() {
    let states = [OPTIMIZED, AnaState::NonOptimized, INACCESSIBLE];
    for cut in [false, true] {
        let mut rig = rig_with(states, |_| {});
        rig.world.target.mute = true;
        write(&mut rig, 1);
        rig.run(SHORT);
        rig.world.target.mute = false;
        rig.world.target.stopped = vec![1];
        rig.world.cut_path(&mut rig.session, 0);
        rig.run(Duration::from_millis(20));
        rig.world.turn(2, OPTIMIZED);
        rig.run(Duration::from_millis(5));
        if cut {
            // It is lost with the question, for good.
            rig.world.cut_path(&mut rig.session, 1);
            assert!(rig.session.drop_portal(1));
            rig.run(Duration::from_millis(50));
        } else {
            rig.run(Duration::from_millis(800));
            assert!(rig.results().is_empty(), "it may answer yet");
            rig.run(Duration::from_millis(300));
        }
        assert_eq!(rig.results(), [(1, None)], "cut: {cut}");
        assert_eq!(taken(&mut rig), [0, 2]);
    }
}

/// It has taken the place of another, say, and knows none of that one's ids.
#[test]
fn a_target_that_refuses_to_end_what_was_lost_is_used_once_the_time_says_that_it_is_over() {
    let unknown = Status::new(1, 0x1f).with_dnr();
    let mut rig = rig_with([OPTIMIZED], |_| {});
    rig.world.target.mute = true;
    write(&mut rig, 1);
    rig.run(SHORT);
    rig.world.target.mute = false;
    rig.world.target.reset_answers = vec![(unknown, 0); 1000];
    rig.world.cut(&mut rig.session);
    // Four seconds of keep-alive and two for a target that is late.
    rig.run(Duration::from_millis(5900));
    assert!(!rig.session.is_ready() && rig.results().is_empty());
    assert!(!rig.world.target.resets.is_empty());
    rig.run(Duration::from_millis(2100));
    assert_eq!(rig.results(), [(1, None)]);
    assert_eq!(taken(&mut rig), [0, 0]);
}

#[test]
fn without_a_keep_alive_a_write_waits_for_the_end_of_a_lost_association_no_longer_than_for_a_path()
{
    let mut rig = rig_with([OPTIMIZED, AnaState::NonOptimized], |config| {
        config.keep_alive = Duration::ZERO;
        config.patient = true;
    });
    rig.world.target.mute = true;
    write(&mut rig, 1);
    rig.run(SHORT);
    rig.world.target.mute = false;
    rig.world.target.reset_answers = vec![(Status::INVALID_FIELD.with_dnr(), 0); 9];
    rig.world.cut_path(&mut rig.session, 0);
    rig.run(Duration::from_secs(19));
    write(&mut rig, 2);
    rig.read(3);
    rig.run(Duration::from_millis(500));
    assert_eq!(rig.results(), [(3, None)], "reads wait for nothing");
    rig.run(SHORT);
    let unsent = Some(ErrorKind::NotSent);
    let lost = Some(ErrorKind::Disconnected);
    assert_eq!(rig.results(), [(1, lost), (2, unsent)]);
    // The path is back, and with it the end.
    rig.world.target.reset_answers.clear();
    rig.world.target.cut.clear();
    rig.run(Duration::from_secs(3));
    write(&mut rig, 4);
    rig.run(SHORT);
    assert_eq!(rig.results(), [(4, None)]);
}
