//! Names of what is asked of the local store and of the quorum, and what is known while it is asked.

use std::collections::BTreeMap;
use std::time::Duration;

use ashlar_block::Moment;

use crate::event::Alarm;
use crate::ids::{Ask, Revision, Token};
use crate::key::{Key, Size};
use crate::pace::{Heard, STUCK_AFTER};
use crate::quorum::Reply;

/// Names of operations and questions, never used twice in a process's life.
#[derive(Debug, Default)]
pub(crate) struct Names {
    token: u64,
    ask: u64,
    /// The newest revision of the key that is known here.
    revision: Revision,
    /// The size that it has said.
    size: Option<Size>,
    /// Questions without an answer, with what was known when they were asked: answers may overtake each other.
    asked: BTreeMap<Ask, (Revision, Option<Size>)>,
    /// Why what the quorum says is not relied on, as it was told last.
    doubt: Option<Alarm>,
    /// What the local store has been asked for and has not answered, and since when.
    open: BTreeMap<Token, Moment>,
    /// When it has made something durable last.
    done: Option<Heard>,
}

impl Names {
    /// A process begins; its store remembers this size.
    pub(crate) fn knowing(size: Option<Size>) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    /// The local store has answered.
    pub(crate) fn answered(&mut self, token: Token) {
        self.open.remove(&token);
    }

    /// The quorum has answered. What it says and what was known, if it has forgotten that.
    pub(crate) fn heard_of_key(&mut self, ask: Ask, reply: &Reply) -> Option<Alarm> {
        let (known, size) = self.asked.remove(&ask)?;
        let stored = match reply {
            Reply::Holds(Some(held)) => held.revision,
            Reply::Swapped(revision) => *revision,
            Reply::Holds(None) | Reply::Unknown => return None,
        };
        self.revision = self.revision.max(stored);
        if stored < known {
            return Some(Alarm::StoreWentBack { stored, known });
        }
        let Reply::Holds(Some(held)) = reply else {
            return None;
        };
        // One that cannot be read is for who reads it.
        let stored = Key::decode(&held.value).ok()?.size;
        let granules = |size: Option<Size>| size.map_or(0, |size| size.granules);
        if let Some(known) = size.filter(|known| known.granules > granules(stored)) {
            return Some(Alarm::StoreShrinks { stored, known });
        }
        if granules(stored) > granules(self.size) {
            self.size = stored;
        }
        None
    }

    /// Names something that the local store does not owe.
    pub(crate) const fn token(&mut self) -> Token {
        self.token += 1;
        Token(self.token)
    }

    /// It has made something durable: it goes on.
    pub(crate) fn goes_on(&mut self, now: Moment) {
        self.done = Some(Heard::new(now));
    }

    /// This process was held up, and has not heard of what the store has done.
    pub(crate) fn held_up(&mut self, now: Moment) {
        let done = self.done.get_or_insert(Heard::new(Moment::ORIGIN));
        done.excuse(now, STUCK_AFTER);
    }

    /// How long ago it has made something durable.
    pub(crate) fn idle_for(&self, now: Moment) -> Duration {
        self.done.map_or(Duration::MAX, |done| done.ago(now))
    }

    /// Names a question, and remembers what is known when it is asked.
    pub(crate) fn asks(&mut self) -> Ask {
        self.ask += 1;
        let ask = Ask(self.ask);
        self.asked.insert(ask, (self.revision, self.size));
        ask
    }

    /// What the quorum says is not relied on. Whether that is to be told: it was not told last.
    pub(crate) fn doubts(&mut self, why: &Alarm) -> bool {
        let is_news = self.doubt.as_ref() != Some(why);
        self.doubt = Some(why.clone());
        is_news
    }

    /// Hosts wait for that of the local store since then.
    pub(crate) fn owe(&mut self, token: Token, since: Moment) {
        self.open.entry(token).or_insert(since);
    }

    /// Since when the oldest answer is owed.
    pub(crate) fn owed_since(&self) -> Option<Moment> {
        self.open.values().min().copied()
    }
}
