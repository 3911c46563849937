use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use super::words::{Answer, Ask, Home, hear, say};
use super::*;
use crate::measure::{Measured, SeriesShape};
use crate::result::RepeatResult;
use crate::simulated::{Model, Simulated};
use crate::{
    Configuration, Journal, Matrix, Means, NoServices, Pattern, Progress, RunOutcome, SweepPlan,
    run_plan,
};

const MIB: u64 = 1 << 20;

/// One end of a link within this process.
struct End {
    out: Sender<String>,
    from: Receiver<String>,
    /// Messages of loads that may still be sent before this side is killed.
    lives: Option<Arc<AtomicU32>>,
}

fn link() -> (End, End) {
    let ((out, there), (back, from)) = (channel(), channel());
    let end = |out, from| End {
        out,
        from,
        lives: None,
    };
    (end(out, from), end(back, there))
}

impl Link for End {
    fn send(&mut self, message: &str) -> Result<(), LabError> {
        let gone = || LabError::environment("gone");
        if let Some(lives) = &self.lives
            && (message.starts_with("{\"measured\"") || message.starts_with("{\"other\""))
            && lives.fetch_sub(1, Ordering::SeqCst) <= 1
        {
            self.out = channel().0;
            self.from = channel().1;
            return Err(gone());
        }
        self.out.send(message.to_owned()).map_err(|_| gone())
    }

    fn receive(&mut self, patience: Duration) -> Result<Option<String>, LabError> {
        match self.from.recv_timeout(patience) {
            Ok(message) => Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(LabError::environment("connection closed")),
        }
    }
}

fn stacks() -> Simulated {
    let device = Model::new(16 * MIB, Duration::from_micros(100), 4);
    Simulated::new().with("nvme-tcp://there", device)
}

fn plan() -> SweepPlan {
    let matrix = Matrix {
        role: String::new(),
        pattern: Pattern::RandRw,
        read_pct: 60,
        blocks: vec![8192],
        threads: vec![1, 3],
        depths: vec![4],
        procedure: crate::Procedure::default(),
    };
    let mut plan = SweepPlan::new(vec![Configuration::on("nvme-tcp://there")], vec![matrix]);
    plan.set_measure(Duration::from_millis(200));
    plan.repeats = 2;
    plan
}

/// Does what it is told in one word, and says so.
struct Echo;

impl OtherLoad for Echo {
    fn look(&self, words: &str) -> Result<(), LabError> {
        match words {
            "far" => Err(LabError::environment("there is no way to it")),
            _ => Ok(()),
        }
    }

    fn carry_out(&self, words: &str, start: &mut Start<'_>) -> Result<String, LabError> {
        self.look(words)?;
        start.counting()(1, 1);
        match start.wait() {
            true => Ok(format!("did {words}")),
            false => Ok("did nothing".to_owned()),
        }
    }
}

impl Seats for Echo {
    fn order(&self, words: &str) -> Result<String, LabError> {
        self.look(words).map(|()| format!("did {words}"))
    }
}

fn makes(stacks: &Simulated) -> Makes<'_> {
    Makes {
        stacks,
        other: &Echo,
        seats: &Echo,
    }
}

/// Runs a plan with so many agents in this process, the last of which may be killed.
fn run(plan: &SweepPlan, agents: usize, lives: Option<u32>) -> Result<RunOutcome, LabError> {
    with_agents(agents, lives, |clients| {
        let means = Means {
            stacks: &stacks(),
            services: &NoServices,
            clients: Some(clients),
            progress: &Progress::silent(),
            journal: &mut Journal::none(),
        };
        run_plan(plan, means)
    })
}

/// Does something with so many agents in this process, the last of which may be killed.
fn with_agents<T>(
    agents: usize,
    lives: Option<u32>,
    what: impl FnOnce(&Clients) -> Result<T, LabError>,
) -> Result<T, LabError> {
    let there = stacks();
    let stop = Arc::new(AtomicBool::new(false));
    let ending = || Progress::silent().until(Arc::clone(&stop));
    std::thread::scope(|scope| {
        let mut links = Vec::new();
        for number in 1..=agents {
            let (ours, mut theirs) = link();
            let dies = lives.filter(|_| number == agents);
            theirs.lives = dies.map(|lives| Arc::new(AtomicU32::new(lives)));
            links.push(ClientLink {
                name: format!("agent-{number}"),
                peer: None,
                link: Box::new(ours),
            });
            let (there, quiet) = (&there, ending());
            scope.spawn(move || serve(&mut theirs, makes(there), &quiet));
        }
        let clients = Clients::greet(links)?;
        let ran = what(&clients);
        stop.store(true, Ordering::SeqCst);
        ran
    })
}

#[test]
fn two_agents_measure_what_one_measures_and_what_none_measures() {
    let plan = plan();
    let alone = crate::run_sweep(&plan, &stacks(), &Progress::silent()).expect("runs");
    let one = run(&plan, 1, None).expect("runs");
    let two = run(&plan, 2, None).expect("runs");
    // Virtual time and the same seeds: not a single latency may be another, which only whole histograms can tell.
    for agents in [&one, &two] {
        assert_eq!(agents.details.len(), alone.details.len());
        for (theirs, ours) in agents.details.iter().zip(&alone.details) {
            assert_eq!((theirs.cell, theirs.repeat), (ours.cell, ours.repeat));
            assert_eq!(theirs.reads.unpack().ok(), ours.reads.unpack().ok());
            assert_eq!(theirs.writes.unpack().ok(), ours.writes.unpack().ok());
            assert_eq!(theirs.series, ours.series);
        }
        assert_eq!(agents.exit_code(), 0, "{:?}", agents.result.head.checks);
    }
    let threads = |of: &RunOutcome, cell: usize| -> Vec<(String, u32)> {
        let repeat = &of.result.configurations[0].cells[cell].repeats[0];
        let parts = repeat.clients.iter();
        parts
            .map(|part| (part.client.clone(), part.threads))
            .collect()
    };
    let part = |name: &str, threads| (name.to_owned(), threads);
    assert_eq!(threads(&two, 0), [part("agent-1", 1)]);
    assert_eq!(threads(&two, 1), [part("agent-1", 2), part("agent-2", 1)]);
    let notes = &two.result.clients;
    assert_eq!(notes.len(), 2);
    for note in notes {
        // It is the same machine.
        assert!(
            note.clock_ahead_us.abs() <= note.clock_error_us + 1000.0,
            "{note:?}"
        );
    }
    let parts = two.result.configurations[0].cells[1].repeats[0]
        .clients
        .iter();
    assert!(parts.clone().all(|part| !part.lost && part.iops > 0.0));
}

#[test]
fn an_agent_that_dies_is_named_its_part_is_marked_and_the_run_ends() {
    let mut plan = plan();
    plan.matrices[0].threads = vec![3];
    // It settles first, then is killed when it has measured a whole repeat, in the next.
    plan.precondition.settle_limit = Duration::ZERO;
    let outcome = run(&plan, 2, Some(2)).expect("runs");
    let result = &outcome.result;
    assert_eq!(outcome.exit_code(), 1);
    assert!(!outcome.is_complete && result.head.partial);
    let check = result
        .head
        .checks
        .iter()
        .find(|check| check.name == "clients");
    let check = check.expect("it is checked");
    assert!(
        !check.passed && check.text.contains("agent-2 died"),
        "{check:?}"
    );
    assert!(result.clients[1].died.is_some() && result.clients[0].died.is_none());
    let cell = &result.configurations[0].cells[0];
    assert!(cell.partial);
    let lost = |index: usize| -> Vec<bool> {
        cell.repeats[index]
            .clients
            .iter()
            .map(|part| part.lost)
            .collect()
    };
    assert_eq!((lost(0), lost(1)), (vec![false, false], vec![false, true]));
    assert_eq!(cell.repeats[1].lost_workers, 1);
    assert!(cell.repeats[1].iops > 0.0, "the other one's part is kept");
    assert!(
        result
            .head
            .problems
            .iter()
            .any(|text| text.contains("agent-2")),
        "{:?}",
        result.head.problems
    );
}

#[test]
fn what_clients_cannot_do_is_refused() {
    let mut verifying = plan();
    verifying.verify = true;
    let error = run(&verifying, 1, None).expect_err("refused");
    assert!(
        error.exit_code() == 2 && error.to_string().contains("--verify"),
        "{error}"
    );
    // An agent's own refusal has its name.
    let mut elsewhere = plan();
    elsewhere.configurations = vec![Configuration::on("nowhere")];
    let error = run(&elsewhere, 2, None).expect_err("refused");
    assert!(error.to_string().contains("client agent-1: "), "{error}");
    let mut large = plan();
    large.size = Some(1 << 40);
    assert_eq!(
        run(&large, 1, None).map_err(|e| e.exit_code()).err(),
        Some(2)
    );
}

#[test]
fn another_language_is_refused_by_name() {
    let (ours, mut theirs) = link();
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let quiet = Progress::silent().until(Arc::clone(&stop));
        let here = stacks();
        let agent = scope.spawn(move || serve(&mut theirs, makes(&here), &quiet));
        let mut ours = ours;
        ours.send("{\"hello\":{\"protocol\":\"ashlar-agent-9\"}}")
            .expect("sent");
        let answer = ours
            .receive(Duration::from_secs(10))
            .expect("alive")
            .expect("in time");
        assert!(
            answer.contains("refused") && answer.contains("ashlar-agent-9"),
            "{answer}"
        );
        ours.send("nonsense").expect("sent");
        assert_eq!(agent.join().expect("ends"), Ended::Gone);
    });
}

#[test]
fn a_moment_far_away_is_not_awaited() {
    let (mut ours, mut theirs) = link();
    std::thread::spawn(move || serve(&mut theirs, makes(&stacks()), &Progress::silent()));
    say(&mut ours, &Ask::Other("a".to_owned())).expect("sent");
    say(&mut ours, &Ask::Go { at_ns: u64::MAX }).expect("sent");
    let did = loop {
        let heard = hear(&mut ours, Duration::from_secs(10)).expect("alive");
        if let Answer::Other { words, .. } = heard.expect("in time") {
            break words;
        }
    };
    assert_eq!(did, "did nothing");
}

#[test]
fn what_an_agent_s_load_uses_counts_where_it_runs() {
    let shape = SeriesShape::of(Duration::from_secs(1));
    let mut measured = Measured::new(shape).expect("fits");
    measured.load_cpu_s = 1.5;
    measured.machine_cpu_s = Some(6.0);
    let home = Home::of(measured, Vec::new(), Duration::ZERO).expect("packs");
    let of = |is_here| home.measured(is_here).expect("whole").load_cpu_s;
    assert_eq!((of(true), of(false)), (1.5, 0.0));
    let repeat = RepeatResult {
        cpu_pct: Some(60.0),
        load_cpu_pct: Some(25.0),
        others_cpu_pct: Some(5.0),
        clients: vec![crate::result::ClientPart::default()],
        ..RepeatResult::default()
    };
    assert_eq!(repeat.storage_cpu_pct(), Some(30.0));
}

fn shares(words: &[&str]) -> Vec<Option<String>> {
    let share = |words: &&str| (!words.is_empty()).then(|| (*words).to_owned());
    words.iter().map(share).collect()
}

/// What each client measured, or why it did not.
fn told(homes: &[OtherHome]) -> Vec<(&str, String)> {
    let told = |home: &OtherHome| match &home.measured {
        Ok(measured) => measured.words.clone(),
        Err(error) => error.to_string(),
    };
    homes.iter().map(|of| (&*of.client, told(of))).collect()
}

/// Looks on to the end; with its eyes shut, nothing is to begin.
#[derive(Default)]
struct Eyes {
    are_shut: bool,
    seen: Option<std::time::Instant>,
}

impl Eyes {
    fn shut() -> Self {
        Self {
            are_shut: true,
            seen: None,
        }
    }
}

impl Onlooker for Eyes {
    fn before(&mut self) -> Result<(), LabError> {
        assert_eq!(self.seen, None);
        match self.are_shut {
            true => Err(LabError::environment("no eyes")),
            false => Ok(()),
        }
    }

    fn meanwhile(&mut self, begun: &Begun<'_>) {
        self.seen = Some(begun.at);
        while !begun.has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn load_of_another_kind_is_dealt_out_and_begins_at_one_moment() {
    let silent = Progress::silent();
    with_agents(3, None, |clients| {
        clients.look(&shares(&["near", "near"]))?;
        clients.look(&shares(&["", "near"]))?;
        let far = clients.look(&shares(&["", "far"]));
        let far = far.expect_err("too far").to_string();
        assert!(
            far.contains("client agent-2: ") && far.contains("no way"),
            "{far}"
        );
        let mut look = Eyes::default();
        let homes = clients.carry_out(&shares(&["a", "", "c"]), &silent, &mut look)?;
        assert_eq!(
            told(&homes),
            [("agent-1", "did a".into()), ("agent-3", "did c".into())]
        );
        assert!(look.seen.is_some_and(|at| at <= std::time::Instant::now()));
        // One that cannot begin keeps all from it, and they are there for what comes next.
        let refused = clients.carry_out(&shares(&["a", "far", "c"]), &silent, &mut Eyes::default());
        let refused = refused.expect_err("all wait").to_string();
        assert!(
            refused.contains("client agent-2: there is no way"),
            "{refused}"
        );
        let homes = clients.carry_out(&shares(&["a", "b", "c"]), &silent, &mut Eyes::default())?;
        assert_eq!(homes.len(), 3);
        assert!(homes.iter().all(|home| home.measured.is_ok()));
        Ok(())
    })
    .expect("ran");
}

#[test]
fn those_that_stand_ready_are_called_off_whatever_keeps_them_from_beginning() {
    let silent = Progress::silent();
    with_agents(2, None, |clients| {
        let words = shares(&["a", "b"]);
        let refused = clients.carry_out(&words, &silent, &mut Eyes::shut());
        assert!(
            refused
                .expect_err("all wait")
                .to_string()
                .contains("no eyes")
        );
        // The next answer is one to the next question.
        clients.look(&shares(&["near", "near"]))?;
        let homes = clients.carry_out(&words, &silent, &mut Eyes::default())?;
        assert_eq!(
            told(&homes),
            [("agent-1", "did a".into()), ("agent-2", "did b".into())]
        );
        Ok(())
    })
    .expect("ran");
}

#[test]
fn a_share_of_another_kind_that_is_lost_is_named() {
    let homes = with_agents(2, Some(1), |clients| {
        let homes = clients.carry_out(
            &shares(&["a", "b"]),
            &Progress::silent(),
            &mut Eyes::default(),
        )?;
        assert_eq!(clients.died().len(), 1);
        Ok(homes)
    });
    let homes = homes.expect("ran");
    let told = told(&homes);
    assert_eq!(told[0], ("agent-1", "did a".into()));
    assert!(told[1].1.contains("client agent-2 died"), "{told:?}");
}

#[test]
fn an_order_is_for_one_agent_and_its_refusal_has_its_name() {
    with_agents(2, None, |clients| {
        assert_eq!(clients.order(1, "near")?, "did near");
        let refused = clients.order(1, "far").expect_err("refused").to_string();
        assert!(
            refused.contains("client agent-2: there is no way"),
            "{refused}"
        );
        assert_eq!(
            clients.order(2, "near").map_err(|error| error.exit_code()),
            Err(2)
        );
        Ok(())
    })
    .expect("ran");
}
