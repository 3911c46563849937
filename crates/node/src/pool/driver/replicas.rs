//! Copies of replicated volumes in a pool's turn: commands of hosts go to them, and not to the engine.

use ashlar_block::{ErrorKind, IoError, Label, Provenance, Request};
use ashlar_copy::Copy;
use ashlar_replica::Origin;

use super::EngineDriver;
use crate::pool::ReplicaMail;
use crate::replica::{Ground, Replicated};

impl EngineDriver {
    /// A host's command. A copy that is not in service serves no host: what it holds may be old.
    pub(super) fn replica_command(
        &mut self,
        volume: u32,
        request: Request,
        provenance: Option<Provenance>,
    ) {
        let refused = |request: Request| {
            let why = "the copy of the volume is not in service here";
            request.complete(Err(IoError::new(ErrorKind::PathInaccessible, why)))
        };
        let mut request = Some(request);
        self.with_replica(volume, |replica, ground| {
            if let Some(request) = request.take_if(|_| !replica.is_over()) {
                replica.command(request, provenance, ground);
            }
        });
        if let Some(request) = request {
            self.out.done.push(refused(request));
        }
        self.posted = true;
    }

    /// Whether a volume is a copy, whose writes come with labels.
    pub(in crate::pool) fn is_copy(&self, volume: u32) -> bool {
        self.copies.contains(&volume)
    }

    /// The label of what an association may send to a copy now.
    pub(in crate::pool) fn label(&self, volume: u32, origin: Origin) -> Option<Label> {
        self.replicas.get(&volume)?.label(origin)
    }

    pub(in crate::pool) fn association_ended(&mut self, volume: u32, origin: Origin) {
        if let Some(replica) = self.replicas.get_mut(&volume) {
            replica.association_ended(origin);
        }
    }

    /// Hands a copy what it needs of the pool.
    fn with_replica<T>(
        &mut self,
        volume: u32,
        act: impl FnOnce(&mut Replicated, &mut Ground<'_>) -> T,
    ) -> Option<T> {
        let Self {
            replicas,
            engine,
            out,
            now,
            reactor,
            ..
        } = self;
        let replica = replicas.get_mut(&volume)?;
        let mut ground = Ground {
            engine,
            out,
            reactor,
            now: *now,
        };
        Some(act(replica, &mut ground))
    }

    fn with_ground(&mut self, act: impl FnOnce(&mut Ground<'_>)) {
        let Self {
            engine,
            out,
            now,
            reactor,
            ..
        } = self;
        act(&mut Ground {
            engine,
            out,
            reactor,
            now: *now,
        });
    }

    /// A turn of each copy. What they post, the engine follows.
    pub(super) fn turn_replicas(&mut self) {
        let Self {
            replicas,
            engine,
            out,
            now,
            reactor,
            posted,
            ..
        } = self;
        for replica in replicas.values_mut() {
            let mut ground = Ground {
                engine,
                out,
                reactor,
                now: *now,
            };
            *posted |= replica.turn(&mut ground);
        }
    }

    /// What hosts have asked of a copy is answered before it goes.
    pub(super) fn end_replica(&mut self, volume: u32) {
        if let Some(mut stopped) = self.replicas.remove(&volume) {
            self.with_ground(|ground| stopped.leave(ground));
        }
    }

    pub(super) fn replica_mail(&mut self, volume: u32, mail: ReplicaMail) {
        match mail {
            ReplicaMail::Start {
                plan,
                outside,
                reply,
            } => {
                // Of an export that has failed it runs on.
                self.end_replica(volume);
                let buffers = self.reactor.buffers();
                let copy = Copy::new(&self.engine, volume, buffers, &self.names);
                let made = copy
                    .ok_or_else(|| format!("volume {} is no copy", plan.name))
                    .and_then(|copy| Replicated::new(plan, copy, &self.reactor, outside));
                let made = made.map(|replica| drop(self.replicas.insert(volume, replica)));
                // Who asked may have gone.
                let _ = reply.send(made);
            }
            ReplicaMail::Stop { reply } => {
                self.end_replica(volume);
                let _ = reply.send(());
            }
            ReplicaMail::Answered { ask, reply } => {
                self.with_replica(volume, |one, ground| one.answered(ask, reply, ground));
            }
            ReplicaMail::Dialled { peer, to, stream } => {
                self.with_replica(volume, |one, ground| {
                    one.dialled(peer, to, stream, ground);
                });
            }
            ReplicaMail::Accepted { from, stream } => {
                self.with_replica(volume, |one, ground| {
                    one.accepted(from, stream, ground);
                });
            }
            ReplicaMail::Dead { node, incarnation } => {
                self.with_replica(volume, |one, ground| one.dead(node, incarnation, ground));
            }
            ReplicaMail::Leaves { node, incarnation } => {
                self.with_replica(volume, |one, ground| {
                    one.peer_leaves(node, incarnation, ground)
                });
            }
            ReplicaMail::Verify => {
                self.with_replica(volume, |one, ground| one.verify(ground));
            }
            ReplicaMail::Petition { petition, answer } => {
                self.with_replica(volume, |one, ground| one.petition(petition, answer, ground));
            }
            ReplicaMail::Move { to } => {
                self.with_replica(volume, |one, ground| one.give(to, ground));
            }
            ReplicaMail::Reseat(wish) => {
                self.with_replica(volume, |one, ground| one.reseat(wish, ground));
            }
            ReplicaMail::Seats {
                revision,
                members,
                size,
            } => {
                self.with_replica(volume, |one, ground| {
                    one.measure(revision, size, ground.now);
                    one.seat(revision, members, ground);
                });
            }
            ReplicaMail::Grown { reply } => {
                self.with_replica(volume, |one, ground| one.grown(ground));
                let _ = reply.send(());
            }
            ReplicaMail::Resize(growth) => {
                self.with_replica(volume, |one, ground| one.resize(growth, ground));
            }
            ReplicaMail::Look { reply } => {
                let view = self
                    .replicas
                    .get(&volume)
                    .map(|one| one.view(&self.engine, self.now));
                let _ = reply.send(view);
            }
        }
        self.posted = true;
    }
}
