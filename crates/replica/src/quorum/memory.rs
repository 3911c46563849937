//! A quorum in memory, for simulation and tests: slow, cut off, without a majority, silent about outcomes.

use std::collections::BTreeMap;
use std::time::Duration;

use ashlar_block::Moment;

use super::{Answer, Held, Question, Reply};
use crate::ids::{Ask, Revision, VolumeId};

/// How a question fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// How long it takes to the store.
    pub there: Duration,
    /// How long the answer takes back.
    pub back: Duration,
    /// Whether the question gets lost on its way there.
    pub is_question_lost: bool,
    /// Whether the answer gets lost: the swap is made, and its sender does not hear of it.
    pub is_answer_lost: bool,
}

impl Weather {
    /// Nothing is lost, and each way takes this long.
    pub const fn fair(each_way: Duration) -> Self {
        Self {
            there: each_way,
            back: each_way,
            is_question_lost: false,
            is_answer_lost: false,
        }
    }
}

/// How long a client waits for an answer before it says that nothing is known.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(700);

/// The keys, and the questions on their way. Each client names its questions itself; clients are told apart by number.
#[derive(Debug)]
pub struct MemoryQuorum {
    keys: BTreeMap<VolumeId, Held>,
    revision: Revision,
    members: usize,
    members_down: usize,
    travelling: Vec<Travelling>,
    answers: Vec<Due>,
}

/// What a client asks.
#[derive(Clone, Debug)]
pub struct Asked {
    pub client: usize,
    pub ask: Ask,
    pub volume: VolumeId,
    pub question: Question,
}

#[derive(Debug)]
struct Travelling {
    arrives: Moment,
    back: Option<Duration>,
    asked: Asked,
}

#[derive(Debug)]
struct Due {
    at: Moment,
    client: usize,
    answer: Answer,
}

impl MemoryQuorum {
    /// A store of so many members, all up, without keys.
    pub fn new(members: usize) -> Self {
        Self {
            keys: BTreeMap::new(),
            revision: Revision(0),
            members,
            members_down: 0,
            travelling: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// So many members are down now.
    pub fn set_members_down(&mut self, down: usize) {
        self.members_down = down.min(self.members);
    }

    /// Whether more than half of the members are up.
    pub fn has_majority(&self) -> bool {
        (self.members - self.members_down) * 2 > self.members
    }

    /// What a key holds, as the store itself knows it.
    pub fn look(&self, volume: VolumeId) -> Option<&Held> {
        self.keys.get(&volume)
    }

    /// Makes a key before anything asks.
    pub fn put(&mut self, volume: VolumeId, value: Vec<u8>) -> Revision {
        self.revision = Revision(self.revision.0 + 1);
        let revision = self.revision;
        self.keys.insert(volume, Held { revision, value });
        revision
    }

    /// A key comes back as a backup has it.
    pub fn restore(&mut self, volume: VolumeId, held: Held) {
        self.revision = held.revision;
        self.keys.insert(volume, held);
    }

    /// A client asks.
    pub fn ask(&mut self, now: Moment, asked: Asked, weather: Weather) {
        let timeout = Answer {
            ask: asked.ask,
            reply: Reply::Unknown,
        };
        self.answers.push(Due {
            at: now + ANSWER_TIMEOUT,
            client: asked.client,
            answer: timeout,
        });
        if weather.is_question_lost {
            return;
        }
        self.travelling.push(Travelling {
            arrives: now + weather.there,
            back: (!weather.is_answer_lost).then_some(weather.back),
            asked,
        });
    }

    /// A client is cut off: what it has asked may still arrive, and it hears no answer.
    pub fn silence_client(&mut self, client: usize) {
        for travelling in &mut self.travelling {
            if travelling.asked.client == client {
                travelling.back = None;
            }
        }
    }

    /// A client's process is gone: its questions may still arrive, it hears no answer.
    pub fn forget_client(&mut self, client: usize) {
        self.answers.retain(|due| due.client != client);
        for travelling in &mut self.travelling {
            if travelling.asked.client == client {
                travelling.back = None;
            }
        }
    }

    /// When something happens next.
    pub fn next_deadline(&self) -> Option<Moment> {
        let arrivals = self.travelling.iter().map(|travelling| travelling.arrives);
        arrivals.chain(self.answers.iter().map(|due| due.at)).min()
    }

    /// What happens until now: questions arrive, in the order of their arrival. Without a majority they are lost.
    /// Answers that are due are appended with the client that they are for.
    pub fn poll(&mut self, now: Moment, answers: &mut Vec<(usize, Answer)>) {
        self.travelling.sort_by_key(|travelling| travelling.arrives);
        let arrived = self.travelling.partition_point(|t| t.arrives <= now);
        let arrived: Vec<Travelling> = self.travelling.drain(..arrived).collect();
        for travelling in arrived {
            if !self.has_majority() {
                continue;
            }
            let Asked {
                client,
                ask,
                volume,
                question,
            } = travelling.asked;
            let reply = self.carry_out(volume, question);
            if let Some(back) = travelling.back {
                let at = travelling.arrives + back;
                // One that takes longer than its client waits comes after the client has given up.
                let waiting = |due: &Due| due.client == client && due.answer.ask == ask;
                if let Some(due) = self.answers.iter_mut().find(|due| waiting(due))
                    && at < due.at
                {
                    due.at = at;
                    due.answer.reply = reply;
                }
            }
        }
        let mut due: Vec<Due> = Vec::new();
        let mut at = 0;
        while at < self.answers.len() {
            if self.answers[at].at <= now {
                due.push(self.answers.remove(at));
            } else {
                at += 1;
            }
        }
        due.sort_by_key(|due| due.at);
        answers.extend(due.into_iter().map(|due| (due.client, due.answer)));
    }

    fn carry_out(&mut self, volume: VolumeId, question: Question) -> Reply {
        let held = self.keys.get(&volume).cloned();
        match question {
            Question::Read => Reply::Holds(held),
            Question::Swap { revision, value } => {
                if held.as_ref().map_or(Revision(0), |held| held.revision) != revision {
                    return Reply::Holds(held);
                }
                Reply::Swapped(self.put(volume, value))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeId = VolumeId(1);

    fn swap(client: usize, ask: Ask, revision: Revision, value: &[u8]) -> Asked {
        let value = value.to_vec();
        Asked {
            client,
            ask,
            volume: VOLUME,
            question: Question::Swap { revision, value },
        }
    }

    fn after(quorum: &mut MemoryQuorum, at: Duration) -> Vec<(usize, Answer)> {
        let mut answers = Vec::new();
        quorum.poll(Moment::ORIGIN + at, &mut answers);
        answers
    }

    #[test]
    fn of_two_swaps_of_a_revision_one_is_made() {
        let mut quorum = MemoryQuorum::new(3);
        let fair = Weather::fair(Duration::from_millis(1));
        let slow = Weather::fair(Duration::from_millis(5));
        let late = swap(0, Ask(1), Revision(0), b"slow");
        quorum.ask(Moment::ORIGIN, late, slow);
        let first = swap(1, Ask(1), Revision(0), b"fast");
        quorum.ask(Moment::ORIGIN, first, fair);
        let answers = after(&mut quorum, Duration::from_millis(20));
        assert_eq!(answers[0].1.reply, Reply::Swapped(Revision(1)));
        let held = Held {
            revision: Revision(1),
            value: b"fast".to_vec(),
        };
        assert_eq!(answers[1].1.reply, Reply::Holds(Some(held)));
    }

    #[test]
    fn an_outcome_may_be_unknown_and_the_swap_made() {
        let mut quorum = MemoryQuorum::new(3);
        let lost = Weather {
            is_answer_lost: true,
            ..Weather::fair(Duration::from_millis(1))
        };
        let asked = swap(0, Ask(1), Revision(0), b"made");
        quorum.ask(Moment::ORIGIN, asked, lost);
        let answers = after(&mut quorum, Duration::from_secs(1));
        assert_eq!(answers[0].1.reply, Reply::Unknown);
        assert_eq!(quorum.look(VOLUME).expect("made").value, b"made");
    }

    #[test]
    fn one_of_three_may_be_down_but_not_two() {
        let mut quorum = MemoryQuorum::new(3);
        let fair = Weather::fair(Duration::from_millis(1));
        quorum.set_members_down(1);
        let one = swap(0, Ask(1), Revision(0), b"one");
        quorum.ask(Moment::ORIGIN, one, fair);
        assert_eq!(
            after(&mut quorum, Duration::from_secs(1))[0].1.reply,
            Reply::Swapped(Revision(1))
        );
        quorum.set_members_down(2);
        let two = swap(0, Ask(2), Revision(1), b"two");
        quorum.ask(Moment::ORIGIN, two, fair);
        assert_eq!(
            after(&mut quorum, Duration::from_secs(2))[0].1.reply,
            Reply::Unknown
        );
        assert_eq!(quorum.look(VOLUME).expect("kept").value, b"one");
    }
}
