//! The pool's drives: each as a member of the pool and as what requests go to, and the numbers of the roots that they
//! hold.

use ashlar_block::Geometry;

use super::record::DriveRecord;
use super::state::Drive;
use crate::format::{DriveClass, Member, MemberState};

/// Drives by member number.
pub(super) struct Drives {
    drives: Vec<Drive>,
    members: Vec<Member>,
    /// Of the last root that was written.
    generation: u64,
    /// Of this import.
    term: u64,
    record: DriveRecord,
}

impl Drives {
    /// As an import has found them: `drives` and `members` are in the same order.
    pub(super) fn new(drives: Vec<Drive>, members: Vec<Member>) -> Self {
        Self {
            drives,
            members,
            generation: 0,
            term: 0,
            record: DriveRecord::default(),
        }
    }

    /// The root that an import has written.
    pub(super) fn at_root(self, generation: u64, term: u64) -> Self {
        Self {
            generation,
            term,
            ..self
        }
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Members that there are or were.
    pub(super) fn count(&self) -> usize {
        self.members.len()
    }

    /// The numbers of all members.
    pub(super) fn numbers(&self) -> std::ops::Range<u16> {
        0..self.members.len() as u16
    }

    pub(super) fn member(&self, number: usize) -> Option<&Member> {
        self.members.get(number)
    }

    pub(super) fn in_service(&self, drive: u16) -> bool {
        let member = self.member(drive.into());
        member.is_some_and(|member| member.state.in_service())
    }

    /// Whether a drive is in service and not being emptied.
    pub(super) fn stays(&self, drive: u16) -> bool {
        let member = self.member(drive.into());
        member.is_some_and(|member| member.state == MemberState::Active)
    }

    pub(super) fn all_serve(&self) -> bool {
        self.members.iter().all(|member| member.state.in_service())
    }

    /// A member has another state; returns the one before, if there is such a member.
    pub(super) fn set_state(&mut self, member: usize, state: MemberState) -> Option<MemberState> {
        let member = self.members.get_mut(member)?;
        Some(std::mem::replace(&mut member.state, state))
    }

    /// Extents that a member has.
    pub(super) fn extents(&self, member: usize) -> u32 {
        self.members[member].extents
    }

    /// A drive becomes the member of this number, which may be the next one, or that of another drive.
    pub(super) fn join(&mut self, number: usize, member: Member, drive: Drive) {
        self.record.is_another(number);
        put(&mut self.members, number, member);
        put(&mut self.drives, number, drive);
    }

    /// The drive of a member is here again.
    pub(super) fn is_here(&mut self, number: usize, drive: Drive) {
        if let Some(place) = self.drives.get_mut(number) {
            *place = drive;
        }
    }

    pub(super) fn geometry(&self, drive: usize) -> Option<&Geometry> {
        self.drives.get(drive).map(|drive| &drive.geometry)
    }

    /// How far bytes of a drive are shifted to be its blocks.
    pub(super) fn shift(&self, drive: usize) -> u32 {
        self.drives[drive].geometry.block_size.shift()
    }

    pub(super) fn class(&self, drive: usize) -> Option<DriveClass> {
        self.drives.get(drive).and_then(|drive| drive.class)
    }

    /// The generation of the last root that was written.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Another root is written: its generation.
    pub(super) fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    /// The term of this import.
    pub(super) fn term(&self) -> u64 {
        self.term
    }

    pub(super) fn record(&self) -> &DriveRecord {
        &self.record
    }

    pub(super) fn record_mut(&mut self) -> &mut DriveRecord {
        &mut self.record
    }
}

/// Puts something in a place, which may be the next one.
pub(super) fn put<T>(list: &mut Vec<T>, at: usize, what: T) {
    match list.get_mut(at) {
        Some(place) => *place = what,
        None => list.push(what),
    }
}
