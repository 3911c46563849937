//! Volumes and segments: entries of system tables, changed through the map log.

use ashlar_block::{ErrorKind, IoError};

use super::Engine;
use super::class::Class;
use super::clear::Clear;
use super::invariant::invariant;
use super::journal::{StagedChange, Then};
use super::map::{Change, FIRST_VOLUME, MAX_VOLUMES, SEGMENTS, VOLUMES};
use super::members::NewDrive;
use super::replica::{Copy, Growing, pages_of};
use super::root_budget::Wanted;
use super::segment_table::Columns;
use super::stop::check_stops;
use super::tier::check_hot;
use crate::engine::upkeep::reserve::Users;
use crate::format::{
    DriveClass, Feature, Features, PlaneShape, ReplicaEntry, SegmentEntry, VolumeEntry, VolumeState,
};
use crate::manage::{Manage, Managed, VolumePlan};
use crate::replica::{Committed, POSITIONS, ReplicaIdentity, ReplicaMark, ReplicaPromise, Till};
use crate::sizes::Grain;
use crate::{Canary, Layout};

/// Most granules of a volume: 32 TiB.
const MAX_GRANULES: u64 = 1 << 33;

/// What a volume becomes.
struct NewReplica {
    identity: ReplicaIdentity,
    /// Its size from then on, if that is another.
    granules: Option<u64>,
}

impl Engine {
    pub(super) fn manage(&mut self, id: u64, what: Manage) {
        if self.base.failed.is_none() && self.space.upkeep.discards_mut().holds(id, &what) {
            return;
        }
        let outcome = match (self.base.failed.why(), what) {
            (Some(why), _) => Err(IoError::new(ErrorKind::Latched, why.to_owned())),
            (None, Manage::Drain) => {
                self.waiting.push_drain(id);
                Ok(())
            }
            (None, Manage::Scrub) => {
                self.rebuild.want_scrub(id);
                Ok(())
            }
            (None, Manage::Repair) => {
                self.repair_now();
                self.base.answer(id, Ok(Managed::Done));
                Ok(())
            }
            (None, Manage::SetReserve { reserve }) => {
                let of = Users {
                    volumes: &self.volumes,
                    rebuild: &self.rebuild,
                };
                let set = self.space.set_reserve(reserve, of);
                set.map(|()| self.roots.change_members_for(id))
            }
            (
                None,
                Manage::AddDrive {
                    drive,
                    member,
                    geometry,
                    class,
                },
            ) => self.add_drive(
                id,
                member,
                NewDrive {
                    drive,
                    geometry,
                    class,
                },
            ),
            (None, Manage::ReadmitDrive(back)) => self.readmit_drive(id, &back),
            (None, Manage::RemoveDrive { member }) => self.remove_drive(id, member),
            (
                None,
                Manage::MakeReplica {
                    volume,
                    identity,
                    granules,
                },
            ) => self.make_replica(id, volume, NewReplica { identity, granules }),
            (None, Manage::ChangeReplica { volume, change }) => {
                let (replicas, mut around) = self.saving();
                replicas.change(id, volume, change, &mut around)
            }
            (None, Manage::NoteSize { volume, size }) => {
                self.volumes.live(volume).and_then(|live| {
                    let (replicas, mut around) = self.saving();
                    replicas.note_size(id, volume, size, live.granules, &mut around)
                })
            }
            (None, Manage::SetStops { volume, stops }) => self.set_stops(id, volume, stops),
            (None, Manage::CreateVolume(plan)) => self.create_volume(id, plan),
            (None, Manage::DeleteVolume { volume }) => self.delete_volume(id, volume),
            (None, Manage::ResizeVolume { volume, granules }) => {
                self.resize_volume(id, volume, granules)
            }
        };
        if let Err(error) = outcome {
            self.base.answer(id, Err(error));
        }
    }

    /// Obeys what has waited for roots.
    pub(super) fn advance_features(&mut self) {
        for (id, what) in self.roots.features.take_ready() {
            self.manage(id, what);
        }
    }

    pub(super) fn create_volume(&mut self, id: u64, plan: VolumePlan) -> Result<(), IoError> {
        check_name(&plan.name)?;
        check_granules(plan.granules)?;
        self.space.drives.check_layout(plan.layout, plan.class)?;
        let class = plan
            .class
            .or_else(|| self.space.drives.default_media(plan.layout.drives()));
        let media = class.or_else(|| self.space.drives.only_media());
        let seeks = media.is_some_and(DriveClass::seeks);
        let usual = plan.layout.default_grain_on(seeks);
        let grain = check_grain(plan.layout, plan.grain, usual)?;
        check_stops(plan.layout, plan.stops)?;
        let same =
            |entry: &VolumeEntry| entry.name == plan.name && entry.state != VolumeState::Gone;
        let deleted = self.volumes.number_being_deleted(&plan.name);
        let deleted = deleted.filter(|_| self.identity.sings(Canary::NumberInUse));
        if deleted.is_none() && self.volumes.values().any(same) {
            return Err(refuse(format!("there is a volume {} already", plan.name)));
        }
        self.check_root_budget(Wanted {
            layout: plan.layout,
            granules: plan.granules,
            volume: None,
        })?;
        if self.roots.needs_log_copies(&plan, &self.space) {
            self.check_move_budget(usize::from(plan.layout.survives()) + 1)?;
            self.roots.add_log_copies.push(id, plan);
            self.roots.add_log_copies.want_those_of(&self.volumes);
            self.heal();
            return Ok(());
        }
        let number = self
            .volumes
            .keys()
            .next_back()
            .map_or(FIRST_VOLUME, |last| last + 1);
        let number = deleted.unwrap_or(number);
        if number >= MAX_VOLUMES {
            return Err(refuse(format!(
                "the pool has had {MAX_VOLUMES} volumes: no number is left"
            )));
        }
        check_hot(&plan, class, grain, &self.space.drives)?;
        let features = Features::of_plan(&plan);
        if !self.roots.features.have(features) {
            let what = Manage::CreateVolume(plan);
            self.roots.features.keep(features, (id, what));
            return Ok(());
        }
        let mut entry = VolumeEntry {
            state: VolumeState::Live,
            name: plan.name,
            uuid: plan.uuid,
            granules: plan.granules,
            layout: plan.layout,
            grain,
            stops: plan.stops,
            class,
            is_cache: plan.is_cache,
            hot: plan.hot,
        };
        if let Layout::Stripe { .. } = entry.layout {
            let (raw, mut around) = self.raw();
            raw.grow(number, entry.clone(), id, &mut around)?;
        } else {
            self.volumes
                .stage(number, &entry, Some(id), &mut self.journal);
        }
        // The number is taken from now on; hosts see it when the record is durable.
        entry.state = VolumeState::Free;
        self.volumes.insert(number, entry);
        Ok(())
    }

    /// Sets what a volume does when a copy is missing that no drive can take.
    fn set_stops(&mut self, id: u64, volume: u32, stops: bool) -> Result<(), IoError> {
        let mut entry = self.volumes.live(volume)?;
        if self.volumes.is_changing(volume) || self.raw.is_changing(volume) {
            return Err(refuse(format!(
                "volume {volume} is still being changed as it was asked to be before"
            )));
        }
        check_stops(entry.layout, stops)?;
        if self.volumes.is_raw(volume) {
            // It never stops. A change of its entry would be taken for the end of another, of its size
            // say, which is asked for while this one is on its way.
            self.base.answer(id, Ok(Managed::Done));
            return Ok(());
        }
        entry.stops = stops;
        // One change of an entry at a time: another that is asked for meanwhile would undo this one, or be
        // undone, for each writes the whole entry.
        self.volumes.begin_change(volume, entry.granules);
        self.volumes
            .stage(volume, &entry, Some(id), &mut self.journal);
        Ok(())
    }

    fn delete_volume(&mut self, id: u64, volume: u32) -> Result<(), IoError> {
        self.volumes.live(volume)?;
        if self.raw.is_changing(volume) || self.volumes.is_changing(volume) {
            return Err(refuse(format!(
                "volume {volume} is still being changed as it was asked to be before"
            )));
        }
        self.raw.is_deleted(volume);
        // From now on hosts are refused; what is on its way goes through first.
        let state = VolumeState::Deleting;
        self.volumes
            .set_state(volume, state, Some(id), &mut self.journal);
        Ok(())
    }

    fn resize_volume(&mut self, id: u64, volume: u32, granules: u64) -> Result<(), IoError> {
        check_granules(granules)?;
        let mut entry = self.volumes.live(volume)?;
        if self.replicas.has(volume) {
            return self.grow_replica(id, volume, granules);
        }
        if self.volumes.is_raw(volume) {
            entry.granules = granules;
            let (raw, mut around) = self.raw();
            return raw.resize(id, volume, entry, &mut around);
        }
        if self.volumes.is_changing(volume) {
            // Its entry would let hosts in again behind the end that this one sets.
            return Err(refuse(format!(
                "volume {volume} is still being changed as it was asked to be before"
            )));
        }
        self.check_not_shrinking(volume)?;
        let before = entry.granules;
        if granules > before {
            self.check_root_budget(Wanted {
                layout: entry.layout,
                granules,
                volume: Some(volume),
            })?;
        }
        entry.granules = granules;
        self.volumes.begin_change(volume, granules);
        self.volumes
            .stage(volume, &entry, Some(id), &mut self.journal);
        if granules < before {
            // Nothing behind the new end is let in from now on.
            self.volumes.insert(volume, entry);
            self.waiting
                .begin_clear(Clear::behind(volume, granules..before));
        }
        Ok(())
    }

    /// A volume becomes one of several copies.
    fn make_replica(&mut self, id: u64, volume: u32, new: NewReplica) -> Result<(), IoError> {
        let NewReplica { identity, granules } = new;
        let mut live = self.volumes.live(volume)?;
        if self.volumes.is_raw(volume) {
            return Err(refuse(format!(
                "volume {volume} is passed through: it keeps no logs that a replica needs"
            )));
        }
        if usize::from(identity.position) >= POSITIONS {
            let why = format!("a volume has {POSITIONS} copies at most");
            return Err(refuse(why));
        }
        if self.replicas.has(volume) {
            return Err(refuse(format!("volume {volume} is a copy already")));
        }
        if self.volumes.is_changing(volume) {
            return Err(refuse(format!("volume {volume} is still being changed")));
        }
        let before = live.granules;
        live.granules = granules.unwrap_or(before);
        if live.granules < before {
            return Err(refuse(format!(
                "volume {volume} would be smaller as a copy than it is"
            )));
        }
        check_granules(live.granules)?;
        if live.granules > before {
            self.check_not_shrinking(volume)?;
        }
        let pages = pages_of(PlaneShape::of(live.granules));
        self.check_replica_budget(Wanted::of(volume, &live), pages)?;
        let place = self.replicas.place_for_new(live.granules)?;
        let copies = self.log_copies();
        if !self.space.has_places_for(&self.map, pages.into(), copies) {
            let why = format!("volume {volume}: the pool has no room for {pages} pages of planes");
            return Err(IoError::new(ErrorKind::NoSpace, why));
        }
        let features = Features::NONE.with(Feature::Replicas);
        if !self.roots.features.have(features) {
            let what = Manage::MakeReplica {
                volume,
                identity,
                granules,
            };
            self.roots.features.keep(features, (id, what));
            return Ok(());
        }
        let entry = ReplicaEntry {
            volume,
            shape: place.shape,
            identity,
            promise: ReplicaPromise::default(),
            numbers: [1; POSITIONS],
            till: Till::Committed(Committed::default()),
            committed: Committed::default(),
            saved: 0,
            size: None,
            marks: [ReplicaMark::default(); POSITIONS],
        };
        let copy = Copy::made(entry, place, self.identity.cage());
        self.replicas
            .add(id, copy, &mut self.map, self.journal.published());
        let grown = (live.granules > before).then_some(live);
        self.save_replica_with(volume, grown.as_ref());
        Ok(())
    }

    /// A copy becomes larger, in one durable step with its planes.
    fn grow_replica(&mut self, id: u64, volume: u32, granules: u64) -> Result<(), IoError> {
        check_granules(granules)?;
        let mut live = self.volumes.live(volume)?;
        if granules < live.granules {
            return Err(refuse(format!(
                "volume {volume} is a copy of a replicated one: it cannot be made smaller"
            )));
        }
        if granules == live.granules {
            self.base.answer(id, Ok(Managed::Done));
            return Ok(());
        }
        let wish = Growing {
            id,
            volume,
            granules,
        };
        if self.replicas.holds_growth(wish) {
            return Ok(());
        }
        if self.volumes.is_changing(volume) || !self.replicas.says_nothing(volume) {
            return Err(refuse(format!(
                "volume {volume} keeps what another copy misses, or what none could read, or is still being changed: it grows \
                 when all are in sync, and blocks that are lost were written again"
            )));
        }
        live.granules = granules;
        let pages = pages_of(PlaneShape::of(granules));
        self.check_replica_budget(Wanted::of(volume, &live), pages)?;
        let place = self.replicas.place_for_larger(volume, granules)?;
        let more = self.replicas.more_pages(volume, place).count();
        let copies = self.log_copies();
        if !self.space.has_places_for(&self.map, more as u64, copies) {
            let why =
                format!("volume {volume}: the pool has no room for {more} more pages of planes");
            return Err(IoError::new(ErrorKind::NoSpace, why));
        }
        self.replicas.grow(id, volume, place, &mut self.map)?;
        self.save_replica_with(volume, Some(&live));
        Ok(())
    }

    /// Saves a copy, in one durable step with its volume's entry if that is another.
    fn save_replica_with(&mut self, volume: u32, entry: Option<&VolumeEntry>) {
        if let Some(entry) = entry {
            self.volumes.begin_change(volume, entry.granules);
            self.volumes.stage(volume, entry, None, &mut self.journal);
            self.journal.join_last();
        }
        let (replicas, mut around) = self.saving();
        replicas.save(volume, &mut around);
    }

    /// What was behind a volume's end would be there again if it grew now.
    fn check_not_shrinking(&self, volume: u32) -> Result<(), IoError> {
        match self.waiting.clears().are_behind(volume) {
            true => Err(refuse(format!(
                "volume {volume} is still being made smaller"
            ))),
            false => Ok(()),
        }
    }

    /// A volume's entry is durable: it is what the table says.
    pub(super) fn volume_published(&mut self, number: u32, id: Option<u64>) {
        let bytes = self.map.entry_bytes(VOLUMES, number - FIRST_VOLUME);
        let entry = bytes.map(VolumeEntry::decode);
        let Some(Ok(entry)) = entry else {
            return self.fail(format!("the entry of volume {number} did not take"));
        };
        let (state, granules) = (entry.state, entry.granules);
        self.volumes.end_change(number);
        let created = self
            .volumes
            .get(&number)
            .is_some_and(|old| old.state == VolumeState::Free);
        self.volumes.insert(number, entry);
        self.tiers.know(&self.volumes);
        if state == VolumeState::Gone {
            self.space.look_for_hot_of(number);
        }
        self.roots.add_log_copies.want_those_of(&self.volumes);
        self.space.spread_reserve(Users {
            volumes: &self.volumes,
            rebuild: &self.rebuild,
        });
        self.space.look_at_empty();
        self.volumes
            .stops_admission_check(&self.space, &self.rebuild);
        if self.volumes.is_raw(number) {
            self.raw.published(number, state);
        } else if state == VolumeState::Deleting {
            // Not before: a crash would find it to be a copy, and what the logs keep for it.
            self.replicas.end(number, &mut self.map, &mut self.base);
            self.waiting.begin_clear(Clear::behind(number, 0..granules));
        }
        if let Some(id) = id {
            let answer = if created {
                Managed::Volume(number)
            } else {
                Managed::Done
            };
            self.base.answer(id, Ok(answer));
        }
    }

    /// Keeps free slots in stock for every class that a volume has.
    pub(super) fn provision(&mut self) {
        let short = self.waiting.writes();
        let short = short.short_of(&self.volumes, &self.space);
        for made in self.space.provision(&self.volumes, short) {
            self.journal.stage_first(made);
        }
        self.provision_tiers();
    }

    pub(super) fn segment_published(&mut self, id: u32, class: Class) {
        self.space.segments.end_coming(class);
        let bytes = self.map.entry_bytes(SEGMENTS, id);
        let Some(Ok(entry)) = bytes.map(SegmentEntry::decode) else {
            return self.fail(format!("the entry of segment {id} did not take"));
        };
        let sizes = self.identity.sizes();
        self.space
            .segments
            .add(sizes, id, class, Columns::of(&entry));
        self.space.recount_changes(id);
        self.space.drives_changed();
        self.space.close_if_lost(id);
        // A drive may have gone since the segment was made, or is to go and waits only for this.
        let Some(found) = self.space.segments.get(id) else {
            return invariant!(
                self.base,
                "segment {id} is not there right after it was made"
            );
        };
        let (columns, wanted) = (found.columns, found.wanted_columns());
        let (serving, staying) = (
            self.space.drives.serving(columns).len(),
            self.space.drives.staying(columns).len(),
        );
        if staying < serving {
            self.repair_now();
        }
        if staying < wanted {
            // Where no drive could take one, looking for it would pass over all segments, for each that is made.
            if self.rebuild.could_have_column(id, &self.space) {
                self.rebuild.want_columns(self.base.now);
            }
            self.volumes
                .stop_admission_check_for(id, &self.space, &self.rebuild);
        }
    }
}

/// The record that makes an entry of the segment table this.
pub(super) fn segment_change(id: u32, entry: &SegmentEntry, then: Then) -> StagedChange {
    let mut bytes = vec![0; SegmentEntry::BYTES];
    entry.encode(&mut bytes);
    StagedChange {
        change: Change::Entry {
            table: SEGMENTS,
            index: id,
            bytes,
        },
        then,
        more: false,
    }
}

/// Names that are files, URLs and NQNs without quoting.
pub(crate) fn check_name(name: &str) -> Result<(), IoError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=64).contains(&name.len()) && name.chars().all(plain) {
        return Ok(());
    }
    Err(refuse(format!(
        "{name:?} is no name: 1 to 64 letters, digits, '-', '_', '.'"
    )))
}

fn check_granules(granules: u64) -> Result<(), IoError> {
    if (1..=MAX_GRANULES).contains(&granules) {
        return Ok(());
    }
    Err(refuse(format!(
        "a volume has 4 KiB to 32 TiB, not {granules} x 4 KiB"
    )))
}

/// The grain of a new volume: the one that was asked for, if its layout takes it, or the usual one.
fn check_grain(layout: Layout, wanted: Option<Grain>, usual: Grain) -> Result<Grain, IoError> {
    let Some(grain) = wanted else {
        return Ok(usual);
    };
    if let Layout::Stripe { .. } = layout {
        return Err(refuse(format!(
            "{layout} is passed through and has no grain"
        )));
    }
    if !layout.takes(grain) {
        return Err(refuse(format!(
            "a grain of {grain} leaves more than a quarter of {layout} empty: {} is the least, {} \
             the best",
            layout.least_grain(),
            usual
        )));
    }
    Ok(grain)
}

pub(super) fn refuse(why: String) -> IoError {
    IoError::new(ErrorKind::InvalidRequest, why)
}
