//! Programs that agents run for as long as this side is there.

use super::{Clients, SET_UP};
use crate::LabError;
use crate::agent::words::{Answer, Ask};

impl Clients {
    /// Has the agent of this number do something about its programs; what it says of it.
    ///
    /// # Errors
    /// Names the agent, and says why it does not.
    pub fn order(&self, number: usize, words: &str) -> Result<String, LabError> {
        let mut all = self.lock();
        let client = all.get_mut(number);
        let client =
            client.ok_or_else(|| LabError::usage(format!("no agent has number {number}")))?;
        match client.ask(&Ask::Order(words.to_owned()), SET_UP)? {
            Answer::Ordered(words) => Ok(words),
            _ => Err(client.misunderstood()),
        }
    }
}
