use ashlar_lab::{Command, Origin, ResultFile};

use super::*;

fn plan(rounds: u32) -> FaultsPlan {
    FaultsPlan {
        faults: vec![Fault::KillDatabase],
        rounds,
        shape: Shape::small(1),
        users: 1,
        rate: 1.0,
        before: Duration::ZERO,
        hold: Duration::ZERO,
        after: Duration::ZERO,
        limits: Vec::new(),
        logic: Logic::Functions,
        seed: 1,
    }
}

#[test]
fn times_are_a_day_at_most() {
    let told = |plan: FaultsPlan| plan.check(&[]).map_err(|error| error.to_string()).err();
    assert_eq!(told(plan(1)), None);
    for option in ["--before", "--hold", "--after"] {
        let mut plan = plan(1);
        match option {
            "--before" => plan.before = Duration::MAX,
            "--hold" => plan.hold = Duration::MAX,
            _ => plan.after = Duration::MAX,
        }
        let told = told(plan).expect("refused");
        assert!(
            told.starts_with(option) && told.ends_with("at most a day"),
            "{told}"
        );
    }
}

#[test]
fn rounds_that_a_journal_has_are_not_played_again() {
    let dir = ashlar_lab::OwnFolder::make(&std::env::temp_dir()).expect("a folder");
    let origin = Origin::asked(Command::Failover, &plan(2)).expect("kept");
    assert_eq!(origin.what::<FaultsPlan>().map(|of| of.rounds), Ok(2));
    let mut journal = Journal::begin(dir.path(), &origin).expect("begun");
    for number in [1, 2] {
        let kept = Kept {
            system: Described {
                topology: Topology::Standalone,
                told: "one".into(),
                database: crate::database::Description::default(),
            },
            round: Round {
                round: number,
                served_again: true,
                gap_s: f64::from(number),
                ..Round::default()
            },
        };
        let due = Due {
            at: 0,
            topology: Topology::Standalone,
            fault: Fault::KillDatabase,
            number,
        };
        journal.keep(&due.turn(), &kept).expect("kept");
    }
    journal.keep(&verified(0, 1), &7u64).expect("kept");
    drop(journal);
    let (mut journal, _) = Journal::resume(dir.path(), &origin.machine).expect("goes on");
    let mut played = |rounds| {
        let means = Means {
            progress: &Progress::silent(),
            journal: &mut journal,
            keep: &|_| Ok(()),
        };
        let none = || Err(LabError::environment("it was to be made"));
        let systems = [Wanted {
            topology: Topology::Standalone,
            make: Box::new(none),
        }];
        faults(&plan(rounds), &systems, means).expect("a result")
    };
    let whole = played(2);
    let rounds: Vec<u32> = whole.cells[0].rounds.iter().map(|of| of.round).collect();
    assert_eq!((rounds, whole.head.partial), (vec![1, 2], false));
    assert_eq!((whole.gap_ms, whole.verified_blocks), (2000, 7));
    assert_eq!(whole.systems.len(), 1);
    let more = played(3);
    assert_eq!((more.cells[0].rounds.len(), more.head.partial), (2, true));
    assert!(
        more.head.problems[0].contains("to be made"),
        "{:?}",
        more.head
    );
}

/// Of which only the blocks are looked at.
struct Blocks(Result<Option<u64>, LabError>);

impl System for Blocks {
    fn topology(&self) -> Topology {
        Topology::Fci
    }
    fn told(&self) -> String {
        "one".into()
    }
    fn url(&self, _: &str) -> String {
        String::new()
    }
    fn servers(&self, _: &str) -> Vec<(String, String)> {
        Vec::new()
    }
    fn primary(&self) -> Option<String> {
        None
    }
    fn inject(&self, _: Fault, _: &str) -> Result<(), LabError> {
        Ok(())
    }
    fn mend(&self, _: Fault, _: &str) -> Result<(), LabError> {
        Ok(())
    }
    fn await_ready(&self, _: &Progress) -> Result<(), LabError> {
        Ok(())
    }
    fn verify(&self) -> Result<Option<u64>, LabError> {
        self.0.clone()
    }
    fn end(self: Box<Self>) -> Result<(), LabError> {
        Ok(())
    }
}

#[test]
fn blocks_that_do_not_match_are_a_failed_check_also_of_a_run_that_goes_on() {
    let due = Due {
        at: 0,
        topology: Topology::Fci,
        fault: Fault::KillDatabase,
        number: 1,
    };
    let round = || Kept {
        system: Described {
            topology: Topology::Fci,
            told: "one".into(),
            database: crate::database::Description::default(),
        },
        round: Round {
            round: 1,
            served_again: true,
            ..Round::default()
        },
    };
    let bad = || Err(LabError::check("block 3 does not match"));
    type Read = Result<Option<u64>, LabError>;
    let played = |reads: Vec<Read>| {
        let dir = ashlar_lab::OwnFolder::make(&std::env::temp_dir()).expect("a folder");
        let plan = plan(1);
        let origin = Origin::asked(Command::Failover, &plan).expect("kept");
        let mut journal = Journal::begin(dir.path(), &origin).expect("begun");
        journal.keep(&due.turn(), &round()).expect("kept");
        let mut run = Run {
            plan: &plan,
            result: FaultsResult::begun(&plan),
            means: Means {
                progress: &Progress::silent(),
                journal: &mut journal,
                keep: &|_| Ok(()),
            },
            reads: 0,
        };
        for read in reads {
            run.verify(&Blocks(read), &due).expect("kept");
        }
        let first = run.result.complaint();
        drop(journal);
        let (mut journal, _) = Journal::resume(dir.path(), &origin.machine).expect("goes on");
        let means = Means {
            progress: &Progress::silent(),
            journal: &mut journal,
            keep: &|_| Ok(()),
        };
        let systems = [Wanted {
            topology: Topology::Fci,
            make: Box::new(|| Err(LabError::environment("nothing is left to be played"))),
        }];
        let again = faults(&plan, &systems, means).expect("a result");
        assert!(!again.head.partial, "{:?}", again.head.problems);
        (first, again.complaint(), again.head.flags.len())
    };
    let wrong = Some("blocks: fci: block 3 does not match".to_owned());
    assert_eq!(played(vec![bad()]), (wrong.clone(), wrong.clone(), 0));
    // A later one that is good hides nothing.
    let both = played(vec![bad(), Ok(Some(9))]);
    assert_eq!(both, (wrong.clone(), wrong, 0));
    assert_eq!(played(vec![Ok(Some(9))]), (None, None, 0));
    assert_eq!(
        played(Vec::new()),
        (None, None, 1),
        "it was not read: a flag"
    );
}

#[test]
fn a_round_whose_database_leads_nowhere_is_kept_with_what_it_acknowledged() {
    use super::clients::Clients;
    use super::round::Asked;
    use super::watch::Watch;
    use crate::database::Outcome;
    use crate::inputs::Transaction;
    let plan = plan(1);
    let url = "postgres:///tpcc?host=/nowhere/at/all&user=x&connect_timeout=1";
    let setting = crate::terminal::TerminalSetting {
        shape: plan.shape,
        constants: crate::random::Constants {
            last: 0,
            customer: 0,
            item: 0,
        },
        seed: 1,
        mix: crate::inputs::Mix::TprocC,
        all_warehouses: false,
        users: 1,
    };
    let clients = Clients::new(url, &plan, setting);
    let progress = Progress::silent();
    let delivery = Transaction::Delivery {
        warehouse: 1,
        carrier: 1,
    };
    let done = Outcome::Delivered([Some(1); 10]);
    clients.ledger.add(0, &delivery, done);
    let watch = Watch::new(Vec::new(), 1);
    let asked = Asked {
        plan: &plan,
        url,
        clients: &clients,
        watch: &watch,
    };
    let looked = asked.audited(&progress).expect("not interrupted");
    assert_eq!(looked.audit.total().acknowledged, 1);
    assert!(looked.unaudited.is_some_and(|why| why.contains("/nowhere")));
}
