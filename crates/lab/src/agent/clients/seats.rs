//! Programs that agents run for as long as this side is there.

use std::time::Duration;

use super::{ANSWER, Clients, SET_UP};
use crate::LabError;
use crate::agent::words::{Answer, Ask};

impl Clients {
    /// Has the agent of this number do something about its programs; what it says of it.
    ///
    /// # Errors
    /// Names the agent, and says why it does not.
    pub fn order(&self, number: usize, words: &str) -> Result<String, LabError> {
        self.order_within(SET_UP, number, words)
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
