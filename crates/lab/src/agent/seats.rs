//! Programs that an agent runs for a coordinator, for as long as that is there. What they are stands in words that only
//! the two ends understand.

use crate::LabError;

/// Runs such programs. All of them end, and leave nothing, when it is dropped.
pub trait Seats: Sync {
    /// Does what is ordered; what there is to say of it.
    ///
    /// # Errors
    /// It cannot be done, or is not understood.
    fn order(&self, words: &str) -> Result<String, LabError>;

    /// Does what is due, if something is: called all the time while nothing is ordered.
    fn look_after(&self) {}
}

/// For agents that make load only.
#[derive(Debug)]
pub struct NoSeats;

impl Seats for NoSeats {
    fn order(&self, _: &str) -> Result<String, LabError> {
        Err(LabError::usage("this agent makes load only"))
    }
}
