//! What befalls a cluster: when it begins, and when it is over.

use super::*;

impl World<'_> {
    pub(super) fn befall(&mut self, fault: Fault) -> Result<(), String> {
        self.fails_until = self.fails_until.max(self.now + fault.lasts());
        let ends = |lasts: Duration| lasts;
        match fault {
            Fault::Crash {
                node,
                lasts,
                is_certified,
            } => {
                let life = self.nodes[node].config.incarnation;
                if self.crash(node) && is_certified {
                    for other in (0..self.nodes.len()).filter(|&other| other != node) {
                        let after = Duration::from_millis(5);
                        self.at(
                            after,
                            Happening::Dead {
                                node: other,
                                of: node,
                                incarnation: life,
                            },
                        );
                    }
                }
                self.at(ends(lasts), Happening::Over(fault));
            }
            Fault::Power { lasts } => {
                for node in 0..self.nodes.len() {
                    self.crash(node);
                    let after = self.chance.time(Duration::from_millis(1500));
                    let over = Fault::Crash {
                        node,
                        lasts,
                        is_certified: false,
                    };
                    self.at(lasts + after, Happening::Over(over));
                }
            }
            Fault::Stop { node, lasts } => {
                self.nodes[node].is_stopped = true;
                self.at(lasts, Happening::Over(fault));
            }
            Fault::Cut {
                way,
                is_both,
                lasts,
            } => {
                self.wires.cut(way);
                if is_both {
                    self.wires.cut(back(way));
                }
                self.at(lasts, Happening::Over(fault));
            }
            Fault::Isolate { node, lasts } => {
                self.nodes[node].is_isolated = true;
                self.quorum.silence_client(node);
                for way in self.ways(node) {
                    self.wires.cut(way);
                }
                self.at(lasts, Happening::Over(fault));
            }
            Fault::Break { way } => {
                for way in [way, back(way)] {
                    if self.chance.happens(700) {
                        let after = self.chance.time(Duration::from_millis(20));
                        let (node, peer) = (way.from, way.to);
                        self.at(after, Happening::Gone { node, peer });
                    }
                }
            }
            Fault::Lossy { lasts } => {
                self.wires.lost = 30;
                self.at(lasts, Happening::Over(fault));
            }
            Fault::Quorum { members, lasts } => {
                self.quorum.set_members_down(members);
                self.at(lasts, Happening::Over(fault));
            }
            Fault::Silent { lasts } => {
                self.is_silent = true;
                self.at(lasts, Happening::Over(fault));
            }
            Fault::Spill { node } => {
                self.nodes[node].store.spill();
                return self.advance_store(node);
            }
            Fault::Full { node, lasts } => {
                self.nodes[node].store.set_full(true);
                self.at(lasts, Happening::Over(fault));
            }
            Fault::Broken { node, lasts } => {
                let lost = self.nodes[node].store.set_broken(true);
                self.summary.lost_drives += lost;
                self.at(lasts, Happening::Over(fault));
            }
            Fault::Slow { node, times, lasts } => {
                self.nodes[node].slowness = times;
                self.at(lasts, Happening::Over(fault));
            }
            Fault::Hang { node, lasts } => self.nodes[node].hangs_until = Some(self.now + lasts),
            Fault::Move { to } => {
                let to = position(to);
                for node in 0..self.nodes.len() {
                    self.handle(node, Event::Move { to })?;
                }
            }
            Fault::OldImage { node, lasts } => {
                self.put_aside(node);
                self.at(lasts, Happening::Over(fault));
            }
            Fault::YoungImage { node, lasts } => self.put_aside_a_little(node, lasts),
            Fault::Spoil { node } => self.spoil(node),
            Fault::Jump { node, by } => self.nodes[node].clock.jump(self.now, by),
            Fault::Drift { node, per_million } => {
                self.nodes[node].clock.drift(self.now, per_million);
            }
            Fault::Stand { node, lasts } => {
                self.nodes[node].clock.stand(self.now, true);
                self.at(lasts, Happening::Over(fault));
            }
        }
        Ok(())
    }

    pub(super) fn over(&mut self, fault: Fault) -> Result<(), String> {
        match fault {
            Fault::Crash { node, .. } => self.start(node),
            Fault::Stop { node, .. } => return self.go_on(node),
            Fault::Cut { way, is_both, .. } => {
                self.wires.mend(way);
                if is_both {
                    self.wires.mend(back(way));
                }
            }
            Fault::Isolate { node, .. } => {
                self.nodes[node].is_isolated = false;
                for way in self.ways(node) {
                    self.wires.mend(way);
                }
            }
            Fault::Lossy { .. } => self.wires.lost = 0,
            Fault::Quorum { .. } => self.quorum.set_members_down(0),
            Fault::Silent { .. } => self.is_silent = false,
            Fault::Full { node, .. } => self.nodes[node].store.set_full(false),
            Fault::Broken { node, .. } => _ = self.nodes[node].store.set_broken(false),
            Fault::Slow { node, .. } => self.nodes[node].slowness = 1,
            Fault::Stand { node, .. } => self.nodes[node].clock.stand(self.now, false),
            Fault::OldImage { node, .. } => self.turn_back(node),
            Fault::YoungImage { node, lasts } => return self.turn_back_a_little(node, lasts),
            Fault::Power { .. }
            | Fault::Break { .. }
            | Fault::Spill { .. }
            | Fault::Spoil { .. }
            | Fault::Hang { .. }
            | Fault::Move { .. }
            | Fault::Drift { .. }
            | Fault::Jump { .. } => {}
        }
        Ok(())
    }

    /// All wires of a node.
    pub(super) fn ways(&self, node: usize) -> Vec<Way> {
        let others = (0..self.nodes.len()).filter(|&other| other != node);
        let way = |other| Way {
            from: node,
            to: other,
        };
        others
            .flat_map(|other| [way(other), back(way(other))])
            .collect()
    }

    /// What befalls a node just when something is sent.
    pub(super) fn lie_in_wait(&mut self, occasion: Occasion, sender: usize, receiver: usize) {
        let is_it = |ambush: &Ambush| ambush.lure.occasion == occasion;
        let Some(at) = self
            .ambushes
            .iter()
            .position(is_it)
            .filter(|_| !self.has_healed)
        else {
            return;
        };
        if self.ambushes[at].passes > 0 {
            self.ambushes[at].passes -= 1;
            return;
        }
        let ambush = self.ambushes.remove(at);
        let node = if ambush.lure.is_sender {
            sender
        } else {
            receiver
        };
        let other = if ambush.lure.is_sender {
            receiver
        } else {
            sender
        };
        let lasts = ambush.lasts;
        let fault = match ambush.lure.blow {
            Blow::Crash => Fault::Crash {
                node,
                lasts: lasts / 4,
                is_certified: lasts.as_nanos().is_multiple_of(2),
            },
            Blow::Isolate => Fault::Isolate { node, lasts },
            Blow::Stop => Fault::Stop { node, lasts },
            Blow::Full => Fault::Full {
                node,
                lasts: lasts / 4,
            },
            Blow::Slow => Fault::Slow {
                node,
                times: 64,
                lasts,
            },
            Blow::Break => Fault::Break {
                way: Way {
                    from: node,
                    to: other,
                },
            },
        };
        let after = self.chance.time(Duration::from_millis(8));
        self.at(after, Happening::Fault(fault));
    }

    pub(super) fn look_at_question(&mut self, node: usize, question: &Question) {
        let Question::Swap { value, .. } = question else {
            return;
        };
        let Ok(key) = Key::decode(value) else { return };
        let before = self.seen.key.in_sync.count();
        let occasion = if key.epoch > self.seen.key.epoch {
            Occasion::Elects
        } else if key.in_sync.count() > before {
            Occasion::Adds
        } else {
            Occasion::Removes
        };
        let other = (node + 1) % self.nodes.len();
        self.lie_in_wait(occasion, node, other);
    }

    /// Kills a process. False if there is none.
    pub(super) fn crash(&mut self, n: usize) -> bool {
        let node = &mut self.nodes[n];
        if node.replica.take().is_none() {
            return false;
        }
        node.is_stopped = false;
        node.waiting.clear();
        if let Some(rights) = &mut self.rights {
            rights.crash(n);
        }
        if let Err(why) = node.store.crash(&mut self.chance) {
            node.trouble = Some(format!("node {n}: {why}"));
        }
        if self.spoils_all && self.chance.happens(500) {
            self.spoil_what_differs();
        }
        self.quorum.forget_client(n);
        for peer in (0..self.nodes.len()).filter(|&peer| peer != n) {
            if self.chance.happens(500) {
                let after = self.chance.time(Duration::from_millis(30));
                self.at(
                    after,
                    Happening::Gone {
                        node: peer,
                        peer: n,
                    },
                );
            }
        }
        true
    }

    pub(super) fn start(&mut self, node: usize) {
        if self.now < self.dark_until {
            return self.start_after_dark(node);
        }
        if self.nodes[node].replica.is_none() {
            self.restore(node);
            self.catch_up_size(node);
            self.nodes[node].start(self.now);
            let life = self.nodes[node].life;
            self.say(|| format!("node {node} starts"));
            self.at(Duration::ZERO, Happening::Tick { node, life });
        }
    }

    pub(super) fn go_on(&mut self, node: usize) -> Result<(), String> {
        if !std::mem::replace(&mut self.nodes[node].is_stopped, false) {
            return Ok(());
        }
        self.say(|| format!("node {node} goes on"));
        while let Some(waiting) = self.nodes[node].waiting.pop_front() {
            let life = self.nodes[node].life;
            match waiting {
                Waiting::Event(event) => self.handle(node, event)?,
                Waiting::Petition(petition) => self.petition(node, petition)?,
                Waiting::Finish(token) => self.store_step(node, life, StoreStep::Finish(token))?,
                Waiting::Tear(token) => self.store_step(node, life, StoreStep::Tear(token))?,
            }
            self.check()?;
        }
        self.advance_store(node)
    }

    pub(super) fn heal(&mut self) -> Result<(), String> {
        if self.has_healed {
            return Ok(());
        }
        self.mend()?;
        (0..self.nodes.len()).for_each(|node| self.start(node));
        Ok(())
    }

    /// Nothing fails from now on.
    pub(super) fn mend(&mut self) -> Result<(), String> {
        self.say(|| "faults end".into());
        self.has_healed = true;
        self.wires.mend_all();
        self.quorum.set_members_down(0);
        self.is_silent = false;
        for node in 0..self.nodes.len() {
            self.nodes[node].store.set_full(false);
            self.nodes[node].store.set_broken(false);
            self.nodes[node].store.unspoil();
            self.nodes[node].slowness = 1;
            self.nodes[node].each = None;
            self.nodes[node].is_isolated = false;
            self.nodes[node].clock.stand(self.now, false);
            self.go_on(node)?;
        }
        Ok(())
    }
}
