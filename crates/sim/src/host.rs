//! A session of a host: found out by an association, then used by a load.

use std::sync::Arc;
use std::time::Duration;

use ashlar_block::{BlockRange, BufferPool, Completion, Geometry, Moment, REGION_BYTES};
use ashlar_nvme::pdu::Digests;
use ashlar_nvme_initiator::controller::{Association, NamespaceFacts, Purpose};
use ashlar_nvme_initiator::reconnect::{Session, Unflushed};
use ashlar_nvme_initiator::{Config, Host, Replay};

use crate::cores::NQN;
use crate::env::Env;
use crate::hosts::Sockets;
use crate::load::Load;
use crate::model::Model;
use crate::profile::Canary;

/// What a session has become.
enum Life {
    Probing(Box<Association>),
    Running(Box<Session>),
}

/// A session and everything that belongs to it.
pub(crate) struct HostSession {
    config: Arc<Config>,
    pool: BufferPool,
    sockets: Sockets,
    life: Life,
    pub(crate) load: Load,
    unflushed: Arc<Unflushed>,
    done: Vec<Completion>,
}

/// A session's number, and its host's.
#[derive(Clone, Copy)]
pub(crate) struct Who {
    pub(crate) index: usize,
    pub(crate) host: usize,
}

impl HostSession {
    /// A session for the blocks `own`.
    pub(crate) fn new(
        env: &mut Env<'_>,
        who: Who,
        geometry: Geometry,
        own: BlockRange,
        unflushed: Arc<Unflushed>,
    ) -> Self {
        let Who { index, host } = who;
        let mut config = Config::new(
            "sim:4420",
            NQN,
            Host::named(&format!("nqn.2026-11.sim:{host}")),
        );
        config.digests = digests(env);
        config.queues = env.chance.between(1, 4) as u16;
        config.depth = env.chance.pick(&[2, 8, 32, 128]);
        config.timeout = Duration::from_secs(2);
        config.keep_alive = Duration::from_secs(3);
        config.loss = Duration::from_secs(120);
        config.replay = env
            .chance
            .pick(&[Replay::All, Replay::All, Replay::Reads, Replay::None]);
        env.trace.say(env.now, || {
            let Config {
                digests,
                queues,
                depth,
                replay,
                ..
            } = &config;
            format!("session {index}: host {host} {own} {digests:?} {queues} x {depth} {replay}")
        });
        let config = Arc::new(config);
        let pool = BufferPool::new(16 * REGION_BYTES);
        let streams = 1 + usize::from(config.queues);
        let probe = Association::new(env.now, config.clone(), Purpose::Namespace, pool.clone());
        Self {
            sockets: Sockets::new(index, streams, config.digests == Digests::BOTH),
            life: Life::Probing(Box::new(probe)),
            load: Load::new(env, index, geometry, own, config.replay),
            config,
            pool,
            unflushed,
            done: Vec::new(),
        }
    }

    /// Whether the namespace was found.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.life, Life::Running(_))
    }

    /// Whether the session has ended in order.
    pub(crate) fn is_over(&self) -> bool {
        matches!(&self.life, Life::Running(session) if session.is_over())
    }

    /// Ends the session.
    pub(crate) fn shutdown(&mut self, now: Moment) {
        if let Life::Running(session) = &mut self.life {
            session.shutdown(now);
        }
    }

    /// Bytes of buffers that have not come back.
    pub(crate) fn outstanding_bytes(&self) -> usize {
        self.pool.outstanding_bytes()
    }

    /// How often an association was lost.
    pub(crate) fn losses(&self) -> u64 {
        match &self.life {
            Life::Probing(_) => 0,
            Life::Running(session) => session.losses(),
        }
    }

    /// Makes progress; true if anything happened.
    pub(crate) fn turn(&mut self, env: &mut Env<'_>, model: &mut Model) -> Result<bool, String> {
        let mut news = match &mut self.life {
            Life::Probing(probe) => {
                let mut news = self.sockets.take_events(env, &mut **probe);
                probe.poll(env.now);
                while self.sockets.serve(env, &mut **probe) {
                    news = true;
                    probe.poll(env.now);
                }
                news
            }
            Life::Running(session) => {
                let mut news = self.sockets.take_events(env, &mut **session);
                session.poll(env.now, &mut self.done);
                while self.sockets.serve(env, &mut **session) {
                    news = true;
                    session.poll(env.now, &mut self.done);
                }
                news
            }
        };
        for completion in std::mem::take(&mut self.done) {
            news = true;
            self.load.completed(env, model, completion)?;
        }
        self.settle_in(env)?;
        Ok(news)
    }

    /// Goes on from finding out to working.
    fn settle_in(&mut self, env: &mut Env<'_>) -> Result<(), String> {
        let Life::Probing(probe) = &mut self.life else {
            return Ok(());
        };
        if probe.is_ready() {
            probe.shutdown(env.now);
        }
        if !probe.is_over() {
            return Ok(());
        }
        let facts: Option<NamespaceFacts> = probe.namespace().cloned();
        let facts = facts.ok_or_else(|| format!("no namespace: {:?}", probe.failure()))?;
        let session = Session::new(
            env.now,
            self.config.clone(),
            facts,
            self.unflushed.clone(),
            self.pool.clone(),
        );
        self.life = Life::Running(Box::new(session));
        Ok(())
    }

    /// Submits one request if one is due; gives what it writes.
    pub(crate) fn work(
        &mut self,
        env: &mut Env<'_>,
        model: &mut Model,
    ) -> Option<(BlockRange, Option<u64>)> {
        let Life::Running(session) = &mut self.life else {
            return None;
        };
        if let Some(request) = self.load.late_replay(env, &self.pool) {
            session.submit(request);
        }
        let (request, range) = self.load.ask(env, model, &self.pool)?;
        let value = self.load.value_of(request.tag);
        session.submit(request);
        Some((range, value))
    }

    /// When the session must have a turn.
    pub(crate) fn next(&self) -> Option<Moment> {
        match &self.life {
            Life::Probing(probe) => probe.next_deadline(),
            Life::Running(session) => [session.next_deadline(), self.load.next()]
                .into_iter()
                .flatten()
                .min(),
        }
    }
}

fn digests(env: &mut Env<'_>) -> Digests {
    let bare = [Canary::UndetectedFlip, Canary::LivingPredecessor];
    if env
        .profile
        .canary
        .is_some_and(|canary| bare.contains(&canary))
    {
        return Digests::NONE;
    }
    if env.profile.flips > 0 && env.profile.cuts == 0 {
        return Digests::BOTH;
    }
    Digests {
        header: env.chance.happens(500),
        data: env.chance.happens(500),
    }
}
