//! What was written last of a page's granules that are cached and clean. A copy of the backing device from before has
//! something else there, and perhaps nowhere else: so this is compared when a cache is taken up.

use crate::bits::Bits;
use crate::layout::PAGE;

/// Granules that a page remembers.
const PLACES: usize = 16;
/// Bytes of it in a page.
pub(crate) const LATELY_BYTES: usize = 8 + 2 * PLACES;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lately {
    /// Of the cache's flushes, which are counted from 1, the last that made something of it clean.
    turn: u64,
    /// Granules of the page, counted from 1, those of the last flush first; 0 is none.
    places: [u16; PLACES],
}

impl Lately {
    pub(crate) fn encode(&self, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&self.turn.to_le_bytes());
        for (bytes, place) in bytes[8..].chunks_exact_mut(2).zip(self.places) {
            bytes.copy_from_slice(&place.to_le_bytes());
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let mut lately = Self::default();
        let (turn, places) = bytes.split_at(8);
        for (at, &byte) in turn.iter().enumerate() {
            lately.turn |= u64::from(byte) << (8 * at);
        }
        for (place, bytes) in lately.places.iter_mut().zip(places.chunks_exact(2)) {
            *place = u16::from_le_bytes([bytes[0], bytes[1]]);
        }
        lately
    }

    /// See [`Lately::turn`]; 0 if nothing is remembered.
    pub(crate) const fn turn(&self) -> u64 {
        self.turn
    }

    /// Granules of the page.
    pub(crate) fn places(&self) -> impl Iterator<Item = usize> {
        let places = self.places.iter().map(|&place| usize::from(place));
        places
            .filter(|&place| (1..=PAGE as usize).contains(&place))
            .map(|place| place - 1)
    }

    /// A flush has made these clean, which were written since the one before. Of many, some from all over.
    pub(crate) fn add(&mut self, turn: u64, written: &Bits) {
        let all: Vec<u16> = written.iter().map(|at| at as u16 + 1).collect();
        if all.is_empty() {
            return;
        }
        let some = all.len().min(PLACES);
        let new = (0..some).map(|at| all[at * all.len() / some]);
        let old = self.places.into_iter().filter(|place| !all.contains(place));
        let mut places = new.chain(old).take(PLACES);
        self.places = std::array::from_fn(|_| places.next().unwrap_or(0));
        self.turn = turn;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(places: impl IntoIterator<Item = usize>) -> Bits {
        let mut bits = Bits::default();
        places.into_iter().for_each(|at| bits.set(at, true));
        bits
    }

    #[test]
    fn the_last_that_was_written_is_remembered() {
        let mut lately = Lately::default();
        assert_eq!((lately.places().count(), lately.turn()), (0, 0));
        lately.add(3, &bits([0, 8191]));
        lately.add(4, &bits([8191, 7]));
        let places: Vec<usize> = lately.places().collect();
        assert_eq!((places, lately.turn()), (vec![7, 8191, 0], 4));
        lately.add(5, &bits([]));
        assert_eq!(lately.turn(), 4);
        let mut bytes = [0; LATELY_BYTES];
        lately.encode(&mut bytes);
        assert_eq!(Lately::decode(&bytes), lately);
        lately.add(9, &bits(0..1000));
        let places: Vec<usize> = lately.places().collect();
        assert!(places.len() == PLACES && places[1] == 62 && places[15] > 900);
    }
}
