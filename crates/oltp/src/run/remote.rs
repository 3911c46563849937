//! Users that are at agents, of one database or of many: this process looks at the databases meanwhile, and adds up what
//! agents saw.

mod eyes;
mod home;
mod turns;

use std::sync::Arc;

use ashlar_lab::agent::{Clients, OtherHome};
use ashlar_lab::{LabError, Progress};

pub(crate) use eyes::Beside;
use eyes::Eyes;
pub(crate) use home::Driven;
use home::{Home, Sent};
pub(crate) use turns::Away;

use super::plan::RunPlan;
use crate::database::Database;
use crate::remote::{At, HomeWords, LoadWords, ServerWords, ShareWords, read, text};
use crate::result::ClientShare;
use crate::terminal::TerminalSetting;

/// A database whose users are elsewhere, in a step.
pub(crate) struct Elsewhere<'a> {
    pub(crate) database: &'a Arc<dyn Database>,
    pub(crate) plan: &'a RunPlan,
    pub(crate) setting: TerminalSetting,
    pub(crate) server: ServerWords,
    /// Where its users are.
    pub(crate) at: At,
}

/// An agent's share of a database's users.
struct Share {
    /// Which database.
    database: usize,
    users: usize,
    words: ShareWords,
}

/// One step, unchecked, of databases that begin together; what came of each, in their order.
pub(crate) fn drive_elsewhere(
    all: &[Elsewhere<'_>],
    clients: &Clients,
    beside: &mut dyn Beside,
    progress: &Progress,
) -> Result<Vec<Driven>, LabError> {
    let ask = Ask {
        clients,
        words: &LoadWords::Users,
        beside,
    };
    ask.of(all, progress)
}

/// How agents are asked for what their users do.
struct Ask<'a> {
    clients: &'a Clients,
    words: &'a dyn Fn(Vec<ShareWords>) -> LoadWords,
    beside: &'a mut dyn Beside,
}

impl Ask<'_> {
    fn of(self, all: &[Elsewhere<'_>], progress: &Progress) -> Result<Vec<Driven>, LabError> {
        all.iter().try_for_each(|of| of.plan.check())?;
        let dealt = deal(all, self.clients.count());
        let words = asked(&dealt, self.words)?;
        let mut eyes = Eyes::open(all, self.beside, progress)?;
        let homes = self.clients.carry_out(&words, progress, &mut eyes)?;
        let seen = eyes.seen;
        let into = all.iter().map(|of| Home::new(of.plan));
        let mut into = into.collect::<Result<Vec<Home<'_>>, LabError>>()?;
        let dealt = dealt.iter().filter(|shares| !shares.is_empty());
        for (home, shares) in homes.into_iter().zip(dealt) {
            bring_home(home, shares, &mut into);
        }
        if seen.len() < into.len() {
            return Err(LabError::environment("the step was not looked at"));
        }
        let interrupted = progress.go_on().is_err();
        let both = into.into_iter().zip(seen);
        both.map(|(home, seen)| Ok(home.driven(seen?, interrupted)))
            .collect()
    }
}

/// The shares of each agent.
fn deal(all: &[Elsewhere<'_>], count: usize) -> Vec<Vec<Share>> {
    let share = |index: usize, database: usize| {
        let of = &all[database];
        let part = of.at.part(index, count)?;
        let users = part.numbers(of.setting.users).count();
        (users > 0).then(|| Share {
            database,
            users,
            words: ShareWords::of(&of.server, (of.plan, &of.setting), part),
        })
    };
    let of_agent = |index| (0..all.len()).filter_map(move |at| share(index, at));
    (0..count).map(|index| of_agent(index).collect()).collect()
}

/// What each agent is asked; nothing of one that has no share.
fn asked(
    dealt: &[Vec<Share>],
    words: &dyn Fn(Vec<ShareWords>) -> LoadWords,
) -> Result<Vec<Option<String>>, LabError> {
    let asked = |shares: &Vec<Share>| {
        let own: Vec<ShareWords> = shares.iter().map(|share| share.words.clone()).collect();
        let is_any = !own.is_empty();
        is_any.then(|| text(&words(own))).transpose()
    };
    dealt.iter().map(asked).collect()
}

/// Adds what an agent measured of each of its shares, or marks that it is missing.
fn bring_home(home: OtherHome, shares: &[Share], into: &mut [Home<'_>]) {
    let sent = home.measured.and_then(|sent| {
        let named = |error| LabError::caused(format!("client {}", home.client), error);
        let each = read_all(&sent.words, shares.len()).map_err(named)?;
        let late = sent.late;
        Ok(each.into_iter().map(move |words| Sent { words, late }))
    });
    let each: Vec<Result<Sent, LabError>> = match sent {
        Ok(each) => each.map(Ok).collect(),
        Err(error) => shares.iter().map(|_| Err(error.clone())).collect(),
    };
    for (share, sent) in shares.iter().zip(each) {
        let part = ClientShare {
            client: home.client.clone(),
            here: home.is_here,
            users: share.users,
            ..ClientShare::default()
        };
        into[share.database].add(part, sent);
    }
}

fn read_all(words: &str, asked: usize) -> Result<Vec<HomeWords>, LabError> {
    let each: Vec<HomeWords> = read(words)?;
    match each.len() {
        sent if sent == asked => Ok(each),
        sent => Err(LabError::environment(format!(
            "sent what came of {sent} shares, where there are {asked}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ashlar_lab::agent::OtherMeasured;

    use super::super::measured::Measured;
    use super::super::plan::Mode;
    use super::super::span::Span;
    use super::super::tests::plan;
    use super::super::users::{Part, Worked};
    use super::eyes::Seen;
    use super::*;
    use crate::inputs::{Kind, Mix};
    use crate::null::Null;
    use crate::random::{Constants, Rng};
    use crate::remote::Dialect;
    use crate::schema::Shape;
    use crate::terminal::Terminal;

    #[test]
    fn every_user_is_at_one_agent() {
        for (users, of) in [(7, 3), (2, 5), (1, 1)] {
            let mut all: Vec<usize> = (0..of)
                .flat_map(|index| Part { index, of }.numbers(users))
                .collect();
            all.sort_unstable();
            assert_eq!(all, (0..users).collect::<Vec<_>>());
        }
    }

    fn server() -> ServerWords {
        ServerWords {
            address: ([127, 0, 0, 1], 10_000).into(),
            drawn: "drawn".into(),
            speaks: Dialect::PostgresFunctions,
        }
    }

    fn setting(users: usize, seed: u64) -> TerminalSetting {
        TerminalSetting {
            shape: Shape::small(2),
            constants: Constants::for_load(&mut Rng::new(seed)),
            seed,
            mix: Mix::TprocC,
            all_warehouses: false,
            users,
        }
    }

    /// Streams of two databases, each at an agent of its own, and what they do there: what they do in one process.
    #[test]
    fn a_database_of_a_fleet_is_at_one_agent_and_does_there_what_it_does_here() {
        let database: Arc<dyn Database> = Arc::new(Null::new("2").expect("a database"));
        let plans = [10, 25].map(|streams| plan(&[4], Mode::Streams(streams, 0.1), 3000));
        let settings = [setting(4, 7), setting(4, 8)];
        let of = |at: usize| Elsewhere {
            database: &database,
            plan: &plans[at],
            setting: settings[at],
            server: server(),
            at: At::One(at % 3),
        };
        let all = [of(0), of(1)];
        let dealt = deal(&all, 3);
        let databases = dealt.iter().map(|shares| shares.iter());
        let databases = databases.map(|shares| shares.map(|of| of.database).collect());
        let databases: Vec<Vec<usize>> = databases.collect();
        assert_eq!(databases, [vec![0], vec![1], vec![]]);
        let words = asked(&dealt, &LoadWords::Users).expect("text");
        assert_eq!(words[2], None);
        for (at, words) in words.into_iter().flatten().enumerate() {
            let LoadWords::Users(there) = read(&words).expect("words") else {
                panic!("{words}");
            };
            let [there]: [ShareWords; 1] = there.try_into().expect("one");
            assert_eq!(there.part, Part::ALL);
            let here = RunPlan {
                seed: settings[at].seed,
                ..plans[at].clone()
            };
            assert_eq!(there.plan().expect("sound"), here);
            for stream in 0..30 {
                let [mut here, mut there] =
                    [settings[at], there.setting()].map(|of| Terminal::new(&of, stream));
                for _ in 0..20 {
                    assert_eq!(here.next_transaction(), there.next_transaction());
                }
            }
        }
    }

    fn sent(words: String) -> OtherHome {
        OtherHome {
            client: "agent".into(),
            is_here: true,
            measured: Ok(OtherMeasured {
                words,
                late: Duration::from_nanos(u64::MAX),
            }),
        }
    }

    #[test]
    fn what_an_agent_sends_spoils_nothing_of_the_others() {
        let mut measured = Measured::new().expect("new");
        let us = Duration::from_micros;
        measured.done(Kind::NewOrder, us(100), us(5), true);
        let worked = Worked {
            measured,
            elapsed: Duration::MAX,
            missed: 3,
            cpu_s: 1.0,
        };
        let words = HomeWords::of(&worked).expect("packs");
        let [two, one] = [2, 1].map(|many| text(&vec![words.clone(); many]).expect("text"));
        let most = one.replace("\"rolled_back\":1", "\"rolled_back\":18446744073709551615");
        let database: Arc<dyn Database> = Arc::new(Null::new("2").expect("a database"));
        let plan = plan(&[2], Mode::Timed, 1000);
        let all = [Elsewhere {
            database: &database,
            plan: &plan,
            setting: setting(2, 1),
            server: server(),
            at: At::All,
        }];
        let shares = deal(&all, 1).remove(0);
        let mut into = [Home::new(&plan).expect("new")];
        for words in ["nonsense".to_owned(), two, one, most.clone(), most] {
            bring_home(sent(words), &shares, &mut into);
        }
        let [home] = into;
        let seen = Seen {
            span: Span::default(),
            device_series: Vec::new(),
            unanswered: None,
        };
        let Driven { window, seconds } = home.driven(seen, false);
        let step = window.step();
        let lost: Vec<bool> = step.clients.iter().map(|part| part.lost).collect();
        assert_eq!(lost, [true, true, false, false, false]);
        let orders = &step.transactions[Kind::NewOrder.name()];
        assert_eq!((step.lost_users, orders.count, step.missed), (4, 3, 9));
        assert_eq!(
            (orders.rolled_back, step.clients[3].new_orders),
            (u64::MAX, 0)
        );
        assert!(seconds > 1e18 && step.partial && step.clients[2].here);
        for (problem, why) in step.problems.iter().zip(["not understood", "2 shares"]) {
            assert!(
                problem.contains("client agent: ")
                    && problem.contains(why)
                    && problem.contains("2 users are missing"),
                "{problem}"
            );
        }
    }
}
