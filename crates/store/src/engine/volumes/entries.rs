//! Entries of volumes, changed through the map log.

use ashlar_block::IoError;

use super::VolumeTable;
use crate::engine::journal::{Journal, StagedChange, Then};
use crate::engine::manage::refuse;
use crate::engine::map::{Change, FIRST_VOLUME, VOLUMES};
use crate::format::{VolumeEntry, VolumeState};

impl VolumeTable {
    /// The entry of a volume in service.
    pub(in crate::engine) fn live(&self, volume: u32) -> Result<VolumeEntry, IoError> {
        let entry = self.get(&volume);
        let entry = entry.filter(|entry| entry.state == VolumeState::Live);
        let none = || refuse(format!("there is no volume {volume}"));
        entry.cloned().ok_or_else(none)
    }

    /// The number of a volume of this name that is being deleted.
    pub(in crate::engine) fn number_being_deleted(&self, name: &str) -> Option<u32> {
        let is_it =
            |entry: &VolumeEntry| entry.name == name && entry.state == VolumeState::Deleting;
        let mut volumes = self.iter();
        let found = volumes.find(|(_, entry)| is_it(entry));
        found.map(|(&number, _)| number)
    }

    /// A volume's state changes at once, and is made durable, for an order if one asks for it.
    pub(in crate::engine) fn set_state(
        &mut self,
        volume: u32,
        state: VolumeState,
        id: Option<u64>,
        journal: &mut Journal,
    ) {
        if let Some(entry) = self.get_mut(&volume) {
            entry.state = state;
            let entry = entry.clone();
            self.stage(volume, &entry, id, journal);
        }
    }

    /// An entry is to be durable, for an order if one asks for it.
    pub(in crate::engine) fn stage(
        &self,
        number: u32,
        entry: &VolumeEntry,
        id: Option<u64>,
        journal: &mut Journal,
    ) {
        let mut bytes = vec![0; VolumeEntry::BYTES];
        entry.encode(&mut bytes);
        journal.stage(StagedChange {
            change: Change::Entry {
                table: VOLUMES,
                index: number - FIRST_VOLUME,
                bytes,
            },
            then: Then::Volume(number, id),
            more: false,
        });
    }
}
