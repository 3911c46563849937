//! Nodes' stores: what they do, and when.

use super::*;

impl World<'_> {
    /// Lets a store do what is due, and the process hear of it.
    pub(super) fn advance_store(&mut self, node: usize) -> Result<(), String> {
        while self.nodes[node].runs() {
            let event = self.nodes[node].store.advance(self.now);
            // What is there now may be read before the process hears of it.
            check::reader(&self.nodes[node], &mut self.model, self.now)?;
            let Some(event) = event.map_err(|why| format!("node {node}: {why}"))? else {
                break;
            };
            self.say(|| format!("node {node} store: {event:?}"));
            self.tell(node, event)?;
        }
        self.plan_store(node);
        Ok(())
    }

    pub(super) fn plan_store(&mut self, node: usize) {
        let one = &mut self.nodes[node];
        let Some(at) = one.store.next().filter(|_| one.runs()) else {
            return;
        };
        if one.store_at.is_none_or(|planned| at < planned) {
            one.store_at = Some(at);
            let (life, what) = (one.life, StoreStep::Advance);
            let after = at - self.now;
            self.at(after, Happening::Store { node, life, what });
        }
    }

    /// Gives what was submitted to a store its time.
    pub(super) fn look_at_stores(&mut self, node: usize) {
        let life = self.nodes[node].life;
        let usual = self.nodes[node].store_time * self.nodes[node].slowness;
        for token in self.nodes[node].store.take_fresh() {
            let mut takes = Duration::from_micros(10) + self.chance.time(usual);
            if self.chance.happens(10) {
                takes += self.chance.time(Duration::from_millis(200));
            }
            if let Some(each) = self.nodes[node].each {
                takes = self.nodes[node].queue(self.now, each);
            }
            if let Some(until) = self.nodes[node].hangs_until {
                takes += until - self.now;
            }
            if self.chance.happens(300) {
                let after = takes * self.chance.below(1000) as u32 / 1000;
                let what = StoreStep::Tear(token);
                self.at(after, Happening::Store { node, life, what });
            }
            let what = StoreStep::Finish(token);
            self.at(takes, Happening::Store { node, life, what });
        }
        if self.chance.happens(100) {
            self.nodes[node].store.trim();
        }
    }

    pub(super) fn store_step(
        &mut self,
        node: usize,
        life: u32,
        what: StoreStep,
    ) -> Result<(), String> {
        if self.nodes[node].life != life || self.nodes[node].replica.is_none() {
            return Ok(());
        }
        if self.nodes[node].is_stopped {
            let waiting = match what {
                StoreStep::Tear(token) => Waiting::Tear(token),
                StoreStep::Finish(token) => Waiting::Finish(token),
                StoreStep::Advance => {
                    self.nodes[node].store_at = None;
                    return Ok(());
                }
            };
            self.nodes[node].waiting.push_back(waiting);
            return Ok(());
        }
        match what {
            StoreStep::Advance => {
                self.nodes[node].store_at = None;
                self.advance_store(node)
            }
            StoreStep::Tear(token) => {
                self.nodes[node].store.tear(token, &mut self.chance);
                check::reader(&self.nodes[node], &mut self.model, self.now)
            }
            StoreStep::Finish(token) => {
                let Some(event) = self.nodes[node].store.finish(token) else {
                    return Ok(());
                };
                self.say(|| format!("node {node} store: {event:?}"));
                // The content is there before the process hears of it.
                check::reader(&self.nodes[node], &mut self.model, self.now)?;
                self.handle(node, event)
            }
        }
    }

    /// What a node's operator is told of must have its cause.
    pub(super) fn alarmed(&mut self, node: usize, alarm: &Alarm) -> Result<(), String> {
        self.say(|| format!("node {node} ALARM {alarm:?}"));
        let is_spoilt = self.summary.spoilt > 0;
        match *alarm {
            Alarm::Diverged { position, .. } => self.diverged(position),
            Alarm::Differs { .. } if self.flip().is_some() => Ok(()),
            Alarm::Differs { position, .. } if self.nodes[position.index()].is_young => Ok(()),
            Alarm::Lags(position) => self.lags(position),
            Alarm::Unreadable { .. } if is_spoilt => Ok(()),
            Alarm::Lost { .. } if is_spoilt => {
                self.summary.unread_bases += 1;
                Ok(())
            }
            Alarm::LocalFailed | Alarm::OldImage => Ok(()),
            Alarm::Unreadable { .. }
            | Alarm::Lost { .. }
            | Alarm::Differs { .. }
            | Alarm::StoreIsOld { .. }
            | Alarm::StoreWentBack { .. }
            | Alarm::StoreIsEarlier { .. }
            | Alarm::StoreShrinks { .. }
            | Alarm::StoreAdds(_)
            | Alarm::KeyUnreadable(_) => Err(format!("node {node}: {alarm:?}")),
        }
    }

    /// A block of a store cannot be read. Another copy has what is there, if it is in sync and all of it can be read.
    pub(super) fn spoil(&mut self, node: usize) {
        let key = &self.seen.key;
        let others = key.in_sync.without(position(node));
        let is_recoverable = key.in_sync.has(position(node)) && !others.is_empty();
        let mut nodes = self.nodes.iter().enumerate();
        let is_one = nodes.all(|(other, one)| other == node || !one.store.is_spoilt());
        let is_safe = is_recoverable && is_one;
        if !(self.spoils_all || is_safe) {
            return;
        }
        let granules = self.nodes[node].store.content().len() as u64;
        let granule = self.chance.below(granules);
        self.spoil_granule(node, granule);
    }

    /// A block that copies in sync do not have alike can be read at none, if there is one.
    pub(super) fn spoil_what_differs(&mut self) {
        let first = self.seen.key.in_sync.iter().next().map(Position::index);
        let Some(first) = first.map(|first| &self.nodes[first].store) else {
            return;
        };
        let differs = |granule: &usize| {
            let value = first.value(*granule);
            let mut in_sync = self.seen.key.in_sync.iter();
            in_sync.any(|other| self.nodes[other.index()].store.value(*granule) != value)
        };
        let Some(granule) = (0..first.content().len()).find(differs) else {
            return;
        };
        for node in 0..self.nodes.len() {
            self.spoil_granule(node, granule as u64);
        }
    }

    fn spoil_granule(&mut self, node: usize, granule: u64) {
        if self.nodes[node].store.spoil(granule, &mut self.chance) {
            self.summary.spoilt += 1;
        }
    }
}
