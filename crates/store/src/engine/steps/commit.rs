//! Steps of group commit, and what follows from what is published.

use ashlar_block::{IoBuffer, IoError};
use tracing::trace;

use crate::Canary;
use crate::engine::Engine;
use crate::engine::destage::Destage;
use crate::engine::journal::append::{Around, Sealing};
use crate::engine::journal::publish::Publishing;
use crate::engine::journal::{Content, Journal, Sealed, Then};
use crate::format::LogId;

impl Engine {
    fn commit(&mut self) -> (&mut Journal, Around<'_>) {
        let around = Around {
            base: &mut self.base,
            identity: &self.identity,
            space: &self.space,
            logs: &mut self.logs,
            map: &self.map,
            tiers: &mut self.tiers,
            waiting: &self.waiting,
        };
        (&mut self.journal, around)
    }

    /// Begins an append in each log that can take one.
    pub(in crate::engine) fn seal_batches(&mut self) {
        self.check_segments();
        if self.base.failed.is_some() {
            return;
        }
        let sealing = Sealing {
            copies: self.log_copies(),
            members_are_durable: self.roots.members_are_durable(),
            may_relog: !self.rebuild.renewal().is_under_way() && !self.checkpoint.is_under_way(),
        };
        let (journal, mut around) = self.commit();
        journal.seal(sealing, &mut around);
    }

    pub(in crate::engine) fn append_done(
        &mut self,
        log: LogId,
        drive: usize,
        buffer: Option<IoBuffer>,
        result: Result<(), IoError>,
    ) {
        if let Err(error) = result {
            self.drive_failed(drive, &error);
        }
        let (journal, mut around) = self.commit();
        if journal.appended(log, buffer, &mut around) {
            self.publish_durable();
        }
    }

    /// Publishes what is durable, in order; but nothing while a drive has left without the others
    /// knowing it durably.
    pub(in crate::engine) fn publish_durable(&mut self) {
        while (self.roots.members_are_durable()
            || self.identity.sings(Canary::AcknowledgeBeforeExclusion))
            && self.base.failed.is_none()
            && let Some(sealed) = self.journal.take_durable()
        {
            self.publish(sealed);
        }
    }

    fn publishing(&mut self) -> Publishing<'_> {
        Publishing {
            base: &mut self.base,
            space: &mut self.space,
            volumes: &self.volumes,
            journal: &self.journal,
            logs: &mut self.logs,
            map: &mut self.map,
            access: &mut self.access,
            replicas: &mut self.replicas,
            waiting: &self.waiting,
            destage: &self.destage,
        }
    }

    fn publish(&mut self, sealed: Sealed) {
        let until = self.journal.published();
        trace!(log = ?sealed.log, at = sealed.at, until, "batch published");
        match sealed.content {
            Content::Ring(batch) => {
                for record in batch.records(sealed.first_sequence) {
                    self.publishing().piece(&record);
                    let op = record.piece.op;
                    self.write_step(|writes, _, around| writes.part_done(op, around));
                }
            }
            Content::Map { changes, relogged } => {
                for (staged, sequence) in changes.iter().zip(sealed.first_sequence..) {
                    if self.publishing().change(staged, sequence) {
                        self.follow(staged.then);
                    }
                }
                for one in relogged {
                    self.map.relogged(&one);
                }
            }
        }
    }

    /// A change is published.
    fn follow(&mut self, then: Then) {
        match then {
            Then::Bypass(op) => {
                self.write_step(|writes, _, around| writes.bypass_published(op, around));
            }
            Then::Destage => self.destage_step(Destage::published),
            Then::Clear(op, slot) => {
                self.clear_step(|clears, around| clears.published(op, slot, around));
            }
            Then::Columns(id) => {
                self.walk_step(|rebuild, _, around| rebuild.columns_published(id, around));
            }
            Then::Segment(id, class) => self.segment_published(id, class),
            Then::Released(id) => self.segment_released(id),
            Then::RawSegment => self.raw.recorded(),
            Then::RawFreed(id) => {
                let (raw, mut around) = self.raw();
                raw.freed(id, &mut around);
            }
            Then::Volume(number, id) => self.volume_published(number, id),
            Then::Plane => {}
            Then::Replica(volume, id) => self.replicas.entry_published(volume, id, &mut self.base),
        }
    }
}
