//! The network: connections between hosts and the target.

use std::collections::BTreeMap;
use std::time::Duration;

use ashlar_block::Moment;

use crate::chance::Chance;
use crate::pipe::{End, Pipe, Shape};

/// A connection's number.
pub(crate) type LinkId = u32;

pub(crate) struct Link {
    /// The session that made it.
    owner: usize,
    pub(crate) to_target: Pipe,
    pub(crate) to_host: Pipe,
    /// When the attempt to connect succeeds or fails.
    pub(crate) dialed: Moment,
    pub(crate) accepted: bool,
    /// Digests protect it.
    pub(crate) digests: bool,
    host_gone: bool,
    target_gone: bool,
}

/// All connections.
#[derive(Default)]
pub(crate) struct Net {
    pub(crate) links: BTreeMap<LinkId, Link>,
    next: LinkId,
    /// Bytes that links which are gone have carried.
    carried: u64,
}

/// What a fault does to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Both ends are told, each in its time.
    Both,
    /// Only the target is told.
    HostUnaware,
    /// Only the host is told.
    TargetUnaware,
    /// No end is told, and all connections of the session are hit: its network is gone for a while.
    Silent,
}

/// Who connects.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    /// Its session.
    pub(crate) owner: usize,
    pub(crate) digests: bool,
}

impl Net {
    /// Starts a connection.
    pub(crate) fn dial(
        &mut self,
        now: Moment,
        chance: &mut Chance,
        delay: Duration,
        caller: Caller,
    ) -> LinkId {
        let Caller { owner, digests } = caller;
        let mut shape = || Shape {
            window: 1024 << chance.below(9),
            piece: chance.pick(&[64, 1460, 8 << 10, 64 << 10]),
            delay: delay.max(Duration::from_micros(1)),
            spike: delay * 50,
        };
        let (to_target, to_host) = (Pipe::new(shape()), Pipe::new(shape()));
        let id = self.next;
        self.next += 1;
        let link = Link {
            owner,
            to_target,
            to_host,
            dialed: now + chance.time(delay),
            accepted: false,
            digests,
            host_gone: false,
            target_gone: false,
        };
        self.links.insert(id, link);
        id
    }

    pub(crate) fn link(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(&id)
    }

    /// The host has closed its end.
    pub(crate) fn close_host(&mut self, now: Moment, chance: &mut Chance, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.host_gone = true;
            close(now, chance, &mut link.to_target, &mut link.to_host);
            self.forget(id);
        }
    }

    /// The target has closed its end.
    pub(crate) fn close_target(&mut self, now: Moment, chance: &mut Chance, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            link.target_gone = true;
            close(now, chance, &mut link.to_host, &mut link.to_target);
            self.forget(id);
        }
    }

    /// How many connections were ever made.
    pub(crate) fn dialed(&self) -> u64 {
        u64::from(self.next)
    }

    /// Bytes carried so far.
    pub(crate) fn bytes(&self) -> u64 {
        let link = |link: &Link| link.to_host.carried + link.to_target.carried;
        self.carried + self.links.values().map(link).sum::<u64>()
    }

    /// An end that was never there, for a connection that was refused.
    pub(crate) fn refuse(&mut self, id: LinkId) {
        self.links.remove(&id);
    }

    fn forget(&mut self, id: LinkId) {
        let over = |link: &Link| link.host_gone && (link.target_gone || !link.accepted);
        if self.links.get(&id).is_some_and(over)
            && let Some(link) = self.links.remove(&id)
        {
            self.carried += link.to_host.carried + link.to_target.carried;
        }
    }

    /// Breaks a connection, at any byte.
    pub(crate) fn cut(&mut self, now: Moment, chance: &mut Chance, id: LinkId, cut: Cut) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        if cut == Cut::Silent {
            let owner = link.owner;
            for link in self.links.values_mut().filter(|link| link.owner == owner) {
                link.to_host.cut(now, chance, None);
                link.to_target.cut(now, chance, None);
            }
            return;
        }
        let host = matches!(cut, Cut::Both | Cut::TargetUnaware).then_some(End::Reset);
        let target = matches!(cut, Cut::Both | Cut::HostUnaware).then_some(End::Reset);
        link.to_host.cut(now, chance, host);
        link.to_target.cut(now, chance, target);
    }

    /// Delivers what is due. True if something arrived.
    pub(crate) fn deliver(&mut self, now: Moment) -> bool {
        let mut news = false;
        for link in self.links.values_mut() {
            news |= link.to_target.deliver(now) | link.to_host.deliver(now);
        }
        news
    }

    /// When something happens next.
    pub(crate) fn next(&self, now: Moment) -> Option<Moment> {
        let times = self.links.values().flat_map(|link| {
            let dialed = Some(link.dialed).filter(|at| *at > now);
            [link.to_target.next(), link.to_host.next(), dialed]
        });
        times.flatten().min()
    }
}

/// One end is closed: what it sends ends, in order or at once, and what it is sent is not read.
fn close(now: Moment, chance: &mut Chance, sends: &mut Pipe, receives: &mut Pipe) {
    let end = if chance.happens(500) {
        End::Fin
    } else {
        End::Reset
    };
    sends.finish(now, chance, end);
    receives.sink = true;
}
