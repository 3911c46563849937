//! Programs that agents run for as long as this side is there.

use std::time::Duration;

use super::{ANSWER, Clients};
use crate::LabError;
use crate::agent::words::{Answer, Ask};

/// An agent has done what it is ordered within so long, or says why not.
pub const ORDER_TAKES: Duration = Duration::from_secs(60);
/// What it says is on its way for so long.
const SAID_WITHIN: Duration = Duration::from_secs(5);

impl Clients {
    /// Has the agent of this number do something about its programs; what it says of it.
    ///
    /// # Errors
    /// Names the agent, and says why it does not.
    pub fn order(&self, number: usize, words: &str) -> Result<String, LabError> {
        self.order_within(ORDER_TAKES + SAID_WITHIN, number, words)
    }

    /// The same of what takes no time.
    ///
    /// # Errors
    /// As [`Self::order`]'s.
    pub fn order_soon(&self, number: usize, words: &str) -> Result<String, LabError> {
        self.order_within(ANSWER, number, words)
    }

    fn order_within(
        &self,
        patience: Duration,
        number: usize,
        words: &str,
    ) -> Result<String, LabError> {
        let mut all = self.lock();
        let client = all.get_mut(number);
        let client =
            client.ok_or_else(|| LabError::usage(format!("no agent has number {number}")))?;
        match client.ask(&Ask::Order(words.to_owned()), patience)? {
            Answer::Ordered(words) => Ok(words),
            _ => Err(client.misunderstood()),
        }
    }
}
