use serde::{Deserialize, Serialize};

/// How a block is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureClass {
    /// An acknowledged write is not there and was never seen: the block holds an older
    /// generation, or zeroes.
    Lost,
    /// The newest generation was read before; now an older one came.
    Stale,
    /// Part of a write is there: sectors of a block, or blocks of an access, differ in
    /// generation.
    Torn,
    /// An intact block of this run, but of another address.
    Misplaced,
    /// An intact block that this run never wrote here: of another run, or of a generation that
    /// was never written to it.
    Foreign,
    /// The checksum does not hold, or there is no stamp at all.
    Corrupt,
}

/// Failed blocks by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// See [`FailureClass::Lost`].
    pub lost: u64,
    /// See [`FailureClass::Stale`].
    pub stale: u64,
    /// See [`FailureClass::Torn`].
    pub torn: u64,
    /// See [`FailureClass::Misplaced`].
    pub misplaced: u64,
    /// See [`FailureClass::Foreign`].
    pub foreign: u64,
    /// See [`FailureClass::Corrupt`].
    pub corrupt: u64,
}

impl Failures {
    /// The counter of `class`.
    pub const fn count_mut(&mut self, class: FailureClass) -> &mut u64 {
        match class {
            FailureClass::Lost => &mut self.lost,
            FailureClass::Stale => &mut self.stale,
            FailureClass::Torn => &mut self.torn,
            FailureClass::Misplaced => &mut self.misplaced,
            FailureClass::Foreign => &mut self.foreign,
            FailureClass::Corrupt => &mut self.corrupt,
        }
    }

    /// Failed blocks of all classes.
    pub const fn total(&self) -> u64 {
        self.lost + self.stale + self.torn + self.misplaced + self.foreign + self.corrupt
    }
}

/// One failed block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    /// How it is wrong.
    pub class: FailureClass,
    /// Its logical block address.
    pub lba: u64,
    /// What it should hold.
    pub expected: String,
    /// What it holds.
    pub found: String,
}

/// What checking found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) checked: u64,
    pub(crate) failures: Failures,
    pub(crate) examples: Vec<Example>,
}

const MOST_EXAMPLES: usize = 10;

impl Tally {
    pub(crate) fn add(&mut self, class: FailureClass, example: impl FnOnce() -> Example) {
        *self.failures.count_mut(class) += 1;
        if self.examples.len() < MOST_EXAMPLES {
            self.examples.push(example());
        }
    }

    pub(crate) fn merge(&mut self, other: Tally) {
        let mut from = other.failures;
        for class in [
            FailureClass::Lost,
            FailureClass::Stale,
            FailureClass::Torn,
            FailureClass::Misplaced,
            FailureClass::Foreign,
            FailureClass::Corrupt,
        ] {
            *self.failures.count_mut(class) += *from.count_mut(class);
        }
        self.checked += other.checked;
        let room = MOST_EXAMPLES.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.into_iter().take(room));
    }
}
