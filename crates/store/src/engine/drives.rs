//! The pool's drives: each as a member of the pool and as what requests go to, what is free on it, and the numbers of
//! the roots that they hold.

pub(super) mod media;

use ashlar_block::{BlockRange, Geometry};

use super::extents::{Extents, take_columns};
use super::record::DriveRecord;
use super::state::Drive;
use crate::format::{ChunkCopy, DriveClass, Member, MemberState};
use crate::sizes::GRANULE;

/// Drives by member number.
pub(super) struct Drives {
    drives: Vec<Drive>,
    members: Vec<Member>,
    /// Free extents of each.
    free: Vec<Extents>,
    /// Of the last root that was written.
    generation: u64,
    /// Of this import.
    term: u64,
    record: DriveRecord,
}

impl Drives {
    /// As an import has found them, in the order of their numbers.
    pub(super) fn new(drives: Vec<Drive>, members: Vec<Member>, free: Vec<Extents>) -> Self {
        Self {
            drives,
            members,
            free,
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

    /// Those copies whose drives are in service.
    pub(super) fn serving(&self, copies: &[ChunkCopy]) -> Vec<ChunkCopy> {
        let copies = copies.iter().copied();
        copies.filter(|copy| self.in_service(copy.drive)).collect()
    }

    /// Those copies whose drives stay.
    pub(super) fn staying(&self, copies: &[ChunkCopy]) -> Vec<ChunkCopy> {
        let copies = copies.iter().copied();
        copies.filter(|copy| self.stays(copy.drive)).collect()
    }

    pub(super) fn active(&self) -> Vec<usize> {
        let all = self.numbers();
        let active = all.filter(|&drive| self.in_service(drive));
        active.map(usize::from).collect()
    }

    /// Members that may be given more.
    pub(super) fn usable(&self) -> Vec<bool> {
        let all = self.numbers();
        all.map(|drive| self.stays(drive)).collect()
    }

    /// How many members may be given more.
    pub(super) fn usable_count(&self) -> usize {
        self.numbers().filter(|&drive| self.stays(drive)).count()
    }

    /// A byte range of a drive in the drive's own blocks.
    pub(super) fn range(&self, drive: usize, at: u64, bytes: usize) -> BlockRange {
        let shift = self.shift(drive);
        debug_assert!(at.is_multiple_of(GRANULE as u64) && bytes.is_multiple_of(GRANULE));
        BlockRange::new(at >> shift, (bytes >> shift) as u32)
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
        put(&mut self.free, number, Extents::new(member.extents));
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

    /// The free extents of each drive.
    pub(super) fn all_free(&self) -> &[Extents] {
        &self.free
    }

    pub(super) fn free(&self, drive: usize) -> &Extents {
        &self.free[drive]
    }

    /// What a drive that is back has free.
    pub(super) fn set_free(&mut self, drive: usize, free: Extents) {
        self.free[drive] = free;
    }

    /// Takes so many extents of a drive side by side.
    pub(super) fn take(&mut self, drive: usize, extents: u32) -> Option<u32> {
        self.free[drive].take(extents)
    }

    /// Takes these very extents of a drive; false when one is not free.
    pub(super) fn claim(&mut self, drive: usize, first: u32, count: u32) -> bool {
        self.free[drive].claim(first, count)
    }

    /// Extents of a drive are free; false if there is no such drive.
    pub(super) fn give(&mut self, drive: usize, first: u32, count: u32) -> bool {
        let free = self.free.get_mut(drive);
        free.map(|free| free.give(first, count)).is_some()
    }

    /// Takes columns of so many extents on distinct drives, by what each has room for.
    pub(super) fn take_columns(
        &mut self,
        rooms: &[u32],
        columns: usize,
        extents: u32,
    ) -> Option<Vec<ChunkCopy>> {
        take_columns(&mut self.free, rooms, columns, extents)
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
fn put<T>(list: &mut Vec<T>, at: usize, what: T) {
    match list.get_mut(at) {
        Some(place) => *place = what,
        None => list.push(what),
    }
}
