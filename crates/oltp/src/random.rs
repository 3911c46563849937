//! The random values of TPC-C clauses 2.1.6 and 4.3.2: NURand, last names, strings.

use serde::{Deserialize, Serialize};

/// `A` of NURand for customers' last names.
const A_LAST: i32 = 255;
/// `A` of NURand for customers' numbers.
const A_CUSTOMER: i32 = 1023;
/// `A` of NURand for items.
const A_ITEM: i32 = 8191;

/// Sixty-four characters, so that six random bits choose one: two letters come twice.
const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789ez";

/// The syllables of a last name (clause 4.3.2.3).
const SYLLABLES: [&str; 10] = [
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
];

/// The constants `C` of NURand (clause 2.1.6), one for each of its three uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constants {
    /// For last names, within 0..=255.
    pub last: i32,
    /// For customers' numbers, within 0..=1023.
    pub customer: i32,
    /// For items, within 0..=8191.
    pub item: i32,
}

impl Constants {
    /// Constants for a load.
    pub fn for_load(rng: &mut Rng) -> Self {
        Self {
            last: rng.within(0, A_LAST),
            customer: rng.within(0, A_CUSTOMER),
            item: rng.within(0, A_ITEM),
        }
    }

    /// Whether all are within their ranges.
    pub(crate) fn are_sound(&self) -> bool {
        (0..=A_LAST).contains(&self.last)
            && (0..=A_CUSTOMER).contains(&self.customer)
            && (0..=A_ITEM).contains(&self.item)
    }

    /// Constants for a run against what was loaded with `self`: the one for last names differs from
    /// the load's by 65 to 119, but not by 96 or 112 (clause 2.1.6.1).
    pub fn for_run(&self, rng: &mut Rng) -> Self {
        let mut run = Self::for_load(rng);
        while !run_differs_rightly(self.last, run.last) {
            run.last = rng.within(0, A_LAST);
        }
        run
    }
}

fn run_differs_rightly(load: i32, run: i32) -> bool {
    let delta = (load - run).abs();
    (65..=119).contains(&delta) && delta != 96 && delta != 112
}

/// A seeded stream of random values.
#[derive(Clone, Debug)]
pub struct Rng(fastrand::Rng);

impl Rng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A stream of its own for a part of what `seed` stands for: streams with other numbers have
    /// nothing in common.
    pub fn stream(seed: u64, numbers: &[u64]) -> Self {
        let mut mixed = seed;
        for &number in numbers {
            mixed = fastrand::Rng::with_seed(mixed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
                .u64(..);
        }
        Self::new(mixed)
    }

    /// Uniform within `low..=high`.
    pub fn within(&mut self, low: i32, high: i32) -> i32 {
        self.0.i32(low..=high)
    }

    /// True `percent` times of a hundred.
    pub fn percent(&mut self, percent: i32) -> bool {
        self.within(1, 100) <= percent
    }

    /// Uniform within 0 (included) and 1 (excluded).
    pub fn unit(&mut self) -> f64 {
        self.0.f64()
    }

    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        self.0.shuffle(values);
    }

    fn nurand(&mut self, a: i32, c: i32, (x, y): (i32, i32)) -> i32 {
        ((self.within(0, a) | self.within(x, y)) + c) % (y - x + 1) + x
    }

    /// NURand(1023, 1, `customers`).
    pub fn customer(&mut self, constants: &Constants, customers: i32) -> i32 {
        self.nurand(A_CUSTOMER, constants.customer, (1, customers))
    }

    /// NURand(8191, 1, `items`).
    pub fn item(&mut self, constants: &Constants, items: i32) -> i32 {
        self.nurand(A_ITEM, constants.item, (1, items))
    }

    /// The number of a last name: NURand(255, 0, 999), or up to `customers` - 1 if those are fewer.
    pub fn last(&mut self, constants: &Constants, customers: i32) -> i32 {
        self.nurand(A_LAST, constants.last, (0, customers.min(1000) - 1))
    }

    /// Appends letters and digits, `least..=most` of them.
    pub fn letters(&mut self, into: &mut Vec<u8>, least: i32, most: i32) {
        let mut left = if least == most {
            least
        } else {
            self.within(least, most)
        } as usize;
        while left > 0 {
            let mut bits = self.0.u64(..);
            let take = left.min(10);
            let mut ten = [0u8; 10];
            for byte in &mut ten {
                *byte = LETTERS[(bits & 63) as usize];
                bits >>= 6;
            }
            into.extend_from_slice(&ten[..take]);
            left -= take;
        }
    }

    /// Appends `count` digits.
    pub fn digits(&mut self, into: &mut Vec<u8>, count: usize) {
        for _ in 0..count {
            into.push(b'0' + self.0.u8(0..10));
        }
    }

    /// Appends a zip code: four digits and 11111 (clause 4.3.2.7).
    pub fn zip(&mut self, into: &mut Vec<u8>) {
        self.digits(into, 4);
        into.extend_from_slice(b"11111");
    }

    /// Appends 26 to 50 letters, with ORIGINAL somewhere in them for one in ten (clause 4.3.3.1).
    pub fn data(&mut self, into: &mut Vec<u8>) {
        let start = into.len();
        self.letters(into, 26, 50);
        if self.percent(10) {
            let room = (into.len() - start - ORIGINAL.len()) as i32;
            let at = start + self.within(0, room) as usize;
            into[at..at + ORIGINAL.len()].copy_from_slice(ORIGINAL);
        }
    }
}

const ORIGINAL: &[u8] = b"ORIGINAL";

/// Appends the last name of a number within 0..=999: the syllables of its three digits.
pub fn push_last_name(into: &mut Vec<u8>, number: i32) {
    for digit in [number / 100, number / 10, number] {
        into.extend_from_slice(SYLLABLES[(digit % 10) as usize].as_bytes());
    }
}

/// The last name of a number within 0..=999.
pub fn last_name(number: i32) -> String {
    let digits = [number / 100, number / 10, number];
    digits
        .map(|digit| SYLLABLES[(digit % 10) as usize])
        .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_names_are_those_of_the_specification() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(40), "BARPRESBAR");
        assert_eq!(last_name(999), "EINGEINGEING");
        let mut bytes = Vec::new();
        push_last_name(&mut bytes, 371);
        assert_eq!(bytes, b"PRICALLYOUGHT");
    }

    #[test]
    fn nurand_stays_in_range_and_is_skewed() {
        let mut rng = Rng::new(7);
        let constants = Constants {
            last: 0,
            customer: 0,
            item: 0,
        };
        let mut counts = vec![0u32; 3001];
        for _ in 0..300_000 {
            counts[rng.customer(&constants, 3000) as usize] += 1;
        }
        assert_eq!(counts[0], 0, "numbers begin at 1");
        // The low ten bits are an OR of two random numbers: with C = 0, ones are three times as
        // likely as zeroes, so 1023 (+1) comes far more often than 1024 (+1).
        assert!(counts[1025] < 20, "{}", counts[1025]);
        assert!(counts[1024] > 1000, "{}", counts[1024]);
        // C moves the favourites.
        let moved = Constants {
            customer: 100,
            ..constants
        };
        let hits = (0..300_000)
            .filter(|_| rng.customer(&moved, 3000) == 1124)
            .count();
        assert!(hits > 1000, "{hits}");
    }

    #[test]
    fn constants_of_a_run_keep_their_distance() {
        let mut rng = Rng::new(1);
        for _ in 0..500 {
            let load = Constants::for_load(&mut rng);
            let run = load.for_run(&mut rng);
            let delta = (load.last - run.last).abs();
            assert!((65..=119).contains(&delta) && delta != 96 && delta != 112);
        }
        assert!(!run_differs_rightly(0, 96) && !run_differs_rightly(200, 88));
    }

    #[test]
    fn strings_have_their_lengths_and_one_in_ten_is_original() {
        let mut rng = Rng::new(3);
        let mut original = 0;
        for _ in 0..10_000 {
            let mut text = Vec::new();
            rng.data(&mut text);
            assert!((26..=50).contains(&text.len()));
            original += usize::from(text.windows(8).any(|w| w == ORIGINAL));
        }
        assert!((900..1100).contains(&original), "{original}");
        let mut zip = Vec::new();
        rng.zip(&mut zip);
        assert!(zip.len() == 9 && zip.ends_with(b"11111"));
    }

    #[test]
    fn streams_repeat_and_differ() {
        let draw = |numbers: &[u64]| Rng::stream(5, numbers).within(0, i32::MAX);
        assert_eq!(draw(&[1, 2]), draw(&[1, 2]));
        assert_ne!(draw(&[1, 2]), draw(&[2, 1]));
        assert_ne!(draw(&[1]), draw(&[1, 0]));
    }
}
