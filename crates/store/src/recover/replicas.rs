//! Copies of replicated volumes: what their pages say, and what the logs' records say on top.

use std::collections::BTreeMap;

use crate::Cage;
use crate::engine::map::{Map, REPLICAS};
use crate::engine::replica::{Copy, Published};
use crate::error::PoolError;
use crate::format::{Descriptor, Kind, ReplicaPage, VolumeEntry, VolumeState};
use crate::ring::Scanned;

/// The copies of volumes that are live.
pub(super) fn replicas(
    map: &Map,
    volumes: &BTreeMap<u32, VolumeEntry>,
    logs: [&Scanned; 2],
    cage: Cage,
) -> Result<BTreeMap<u32, Copy>, PoolError> {
    let mut copies = BTreeMap::new();
    let mut planes = Vec::new();
    for index in map.system_pages(REPLICAS) {
        let Some(bytes) = map.entry_bytes(REPLICAS, index) else {
            continue;
        };
        match ReplicaPage::decode(bytes)? {
            ReplicaPage::Entry(entry) => {
                let volume = volumes.get(&entry.volume);
                let is_it = |volume: &&VolumeEntry| {
                    volume.state == VolumeState::Live && volume.granules == entry.shape.granules
                };
                if volume.is_some_and(|volume| is_it(&volume)) {
                    copies.insert(entry.volume, Copy::found(entry, index, cage));
                }
            }
            ReplicaPage::Plane(page) => planes.push((index, page)),
            ReplicaPage::Free => {}
        }
    }
    for (index, page) in planes {
        let copy = copies.get_mut(&page.volume);
        if let Some(copy) = copy.filter(|copy| copy.pages().contains(&index)) {
            copy.found_page(page);
        }
    }
    if copies.is_empty() {
        return Ok(copies);
    }
    for batch in logs.into_iter().flat_map(|log| &log.batches) {
        let records = batch.batch.records.iter();
        for (record, sequence) in records.zip(batch.batch.first_sequence..) {
            let Some(copy) = copies.get_mut(&record.volume).filter(|_| changes(record)) else {
                continue;
            };
            if sequence >= copy.saved() {
                copy.published(&Published {
                    granules: record.first_granule
                        ..record.first_granule + u64::from(record.granules),
                    sequence,
                    tag: record.replica,
                });
            }
        }
    }
    copies.values_mut().for_each(Copy::found_all);
    Ok(copies)
}

/// Whether a record changes content: what moves it does not.
fn changes(record: &Descriptor) -> bool {
    matches!(record.kind, Kind::Data | Kind::Place | Kind::Deallocate)
}
