//! An engine in service, with its drives.

use std::collections::VecDeque;
use std::time::Duration;

use ashlar_block::{BlockDevice, Completion, IoError, Moment, Request};
use ashlar_store::{DriveTable, Membership};

use super::seam::{Event, Manage, Managed, Outbox, Running, Subject};
use crate::chance::Chance;

/// What an engine told.
pub(crate) enum News {
    /// A command was answered.
    Answered(Completion),
    /// Something that was asked of the pool was done.
    Managed(u64, Result<Managed, IoError>),
    /// The node has stored which drives serve.
    Stored(Membership),
}

/// An engine in service.
pub(crate) struct Node<S> {
    engine: S,
    drives: DriveTable,
    out: Outbox,
    waiting: Vec<Event>,
    /// The drives that orders on their way add, in their order.
    adding: VecDeque<Box<dyn BlockDevice>>,
    /// What the node is to store, and what it is storing until then; nothing if it remembers nothing.
    storing: Option<Storing>,
}

/// A node's own disk, on which it stores one thing after another.
#[derive(Default)]
struct Storing {
    next: Option<Membership>,
    now: Option<(Moment, Membership)>,
}

impl Storing {
    /// Most of the time that it takes.
    const TIME: Duration = Duration::from_millis(50);

    /// What is stored by now.
    fn done(&mut self, now: Moment) -> Option<Membership> {
        let (_, stored) = self.now.take_if(|(until, _)| *until <= now)?;
        Some(stored)
    }

    fn begin(&mut self, now: Moment, chance: &mut Chance) {
        if self.now.is_none()
            && let Some(next) = self.next.take()
        {
            self.now = Some((now + chance.time(Self::TIME), next));
        }
    }
}

impl<S: Subject> Node<S> {
    pub(crate) fn new(running: Running<S>) -> Self {
        Self {
            engine: running.engine,
            drives: DriveTable::new(running.devices),
            out: Outbox::default(),
            waiting: Vec::new(),
            adding: VecDeque::new(),
            storing: None,
        }
    }

    /// A node that remembers which drives serve.
    pub(crate) fn that_remembers(self) -> Self {
        Self {
            storing: Some(Storing::default()),
            ..self
        }
    }

    /// Whether it is to store something that it has not.
    pub(crate) fn is_storing(&self) -> bool {
        let storing = self.storing.as_ref();
        storing.is_some_and(|storing| storing.next.is_some() || storing.now.is_some())
    }

    pub(crate) fn engine(&self) -> &S {
        &self.engine
    }

    /// When the engine wants a tick.
    pub(crate) fn next(&self) -> Option<Moment> {
        let storing = self
            .storing
            .as_ref()
            .and_then(|storing| storing.now.as_ref());
        let stored = storing.map(|(until, _)| *until);
        [self.engine.next_deadline(), stored]
            .into_iter()
            .flatten()
            .min()
    }

    /// A command for the engine, in the next turn.
    pub(crate) fn command(&mut self, volume: u32, request: Request) {
        self.waiting.push(Event::Command { volume, request });
    }

    /// Something else, in the next turn.
    pub(crate) fn manage(&mut self, id: u64, what: Manage) {
        self.waiting.push(Event::Manage { id, what });
    }

    /// The drive that the next order to add or readmit one speaks of.
    pub(crate) fn bring(&mut self, device: Box<dyn BlockDevice>) {
        self.adding.push_back(device);
    }

    /// Nothing is to be asked of a member any more.
    pub(crate) fn forget(&mut self, member: usize) {
        self.drives.close(member);
    }

    /// Collects what the drives have answered.
    pub(crate) fn poll(&mut self, now: Moment) {
        self.drives.poll(now, |drive, completion| {
            self.waiting.push(Event::Done { drive, completion });
        });
        if self.engine.next_deadline().is_some_and(|at| at <= now) {
            self.waiting.push(Event::Tick);
        }
    }

    /// Takes an event out; of what operators ask for, the oldest.
    fn take(&mut self, at: usize) -> Event {
        let id = |event: &Event| match event {
            Event::Manage { id, .. } => Some(*id),
            _ => None,
        };
        let asked = self.waiting.iter().enumerate();
        let asked = asked.filter_map(|(at, event)| Some((id(event)?, at)));
        let oldest = asked.min().map(|(_, at)| at);
        let oldest = oldest.filter(|_| id(&self.waiting[at]).is_some());
        self.waiting.swap_remove(oldest.unwrap_or(at))
    }

    /// Hands the engine what has happened, in any order; true if anything had.
    ///
    /// # Errors
    /// The engine asked for what is not there.
    pub(crate) fn turn(
        &mut self,
        now: Moment,
        chance: &mut Chance,
        news: &mut Vec<News>,
    ) -> Result<bool, String> {
        if let Some(stored) = self.storing.as_mut().and_then(|storing| storing.done(now)) {
            news.push(News::Stored(stored.clone()));
            self.waiting.push(Event::Remembered(stored));
        }
        let busy = !self.waiting.is_empty();
        let together = chance.happens(700);
        while !self.waiting.is_empty() {
            let at = chance.below(self.waiting.len() as u64) as usize;
            let event = self.take(at);
            let adds = match &event {
                Event::Manage {
                    what: Manage::AddDrive { member, .. },
                    ..
                } => Some(usize::from(*member)),
                Event::Manage {
                    what: Manage::ReadmitDrive(back),
                    ..
                } => Some(usize::from(back.label.index)),
                _ => None,
            };
            if let Some(member) = adds {
                match self.adding.pop_front() {
                    Some(device) => self.drives.join(member, device),
                    None => self.drives.close(member),
                }
            }
            // What arrives together may be taken together, or one by one.
            if together && !self.waiting.is_empty() {
                self.engine.post(now, event, &mut self.out);
            } else {
                self.engine.handle(now, event, &mut self.out);
            }
            if adds.is_some()
                && let Some(seats) = self.engine.seats()
            {
                // One that was refused has no place among the members: the next one that is added has.
                self.drives.truncate(seats.len());
            }
            for (drive, request) in self.out.io.drain(..) {
                let sent = self.drives.submit(drive, request);
                sent.map_err(|missing| missing.to_string())?;
            }
            news.extend(self.out.done.drain(..).map(News::Answered));
            let membership = self.out.membership.take();
            if let (Some(storing), Some(membership)) = (&mut self.storing, membership) {
                storing.next = Some(membership);
            }
            let managed = self.out.managed.drain(..);
            news.extend(managed.map(|(id, result)| News::Managed(id, result)));
        }
        if let Some(storing) = &mut self.storing {
            storing.begin(now, chance);
        }
        Ok(busy)
    }
}
