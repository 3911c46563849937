//! Steps of walks: rebuilds and scrubs.

use ashlar_block::IoError;

use crate::engine::rebuild::{Around, Next, Others, Rebuild, WalkIo};
use crate::engine::upkeep::reserve::Users;
use crate::engine::{Engine, Waiter};

impl Engine {
    /// A step of walks, and what follows from it.
    pub(in crate::engine) fn walk_step(
        &mut self,
        step: impl FnOnce(&mut Rebuild, &mut Others<'_>, &mut Around<'_>),
    ) {
        let mut others = Others {
            hosts_are_here: self.hosts_are_here(),
            waiting: &mut self.waiting,
            destage: &self.destage,
        };
        let mut around = Around {
            base: &mut self.base,
            identity: &self.identity,
            space: &mut self.space,
            roots: &mut self.roots,
            volumes: &mut self.volumes,
            journal: &mut self.journal,
            logs: &mut self.logs,
            map: &mut self.map,
            access: &mut self.access,
        };
        step(&mut self.rebuild, &mut others, &mut around);
        while let Some(next) = self.rebuild.take_next() {
            self.follow_walk(next);
        }
    }

    fn follow_walk(&mut self, next: Next) {
        match next {
            Next::Load(page) => self.load(page, Waiter::Walk),
            Next::Gather(wish) => self.gather(wish),
            Next::Read { reader, at, buffer } => self.read_strip(reader, at, buffer),
            Next::Locked { key, waiter } => self.locked(key, waiter),
            Next::BeginReturn => self.begin_return(),
            Next::LetBackIn => self.let_back_in(),
            Next::LetGo => self.let_go_emptied(),
            Next::Rest => {
                self.let_go_emptied();
                if !self.map.is_renewing() {
                    self.rebuild.answer_scrubs(&mut self.base, &mut self.roots);
                }
            }
        }
    }

    pub(in crate::engine) fn advance_rebuild(&mut self) {
        self.advance_renewal();
        self.base.again |= self.space.reopen_segments();
        self.walk_step(Rebuild::advance);
    }

    pub(in crate::engine) fn walk_io_done(
        &mut self,
        io: WalkIo,
        drive: usize,
        result: Result<(), IoError>,
    ) {
        if let Err(error) = result {
            self.drive_failed(drive, &error);
        }
        self.walk_step(|rebuild, _, around| rebuild.io_done(io, around));
    }

    /// An operator has acted: repair begins at once.
    pub(in crate::engine) fn repair_now(&mut self) {
        self.heal();
        self.rebuild.want_columns_at_once(self.base.now);
    }

    /// After an import: what the members left behind need.
    pub(in crate::engine) fn begin_repairs(&mut self) {
        self.space.spread_reserve(Users {
            volumes: &self.volumes,
            rebuild: &self.rebuild,
        });
        self.rebuild.resume_scrub(self.roots.durable().scrub);
        self.heal();
        self.look_for_repairs();
    }

    /// Takes up the repairs there are room for by now. A drive that is being emptied goes on with that.
    pub(in crate::engine) fn look_for_repairs(&mut self) {
        let mut drives = self.space.drives.numbers();
        if drives.any(|d| self.space.drives.in_service(d) && !self.space.drives.stays(d)) {
            self.repair_now();
        } else if self.is_degraded() {
            self.heal();
            self.rebuild.want_columns(self.base.now);
        }
    }
}
