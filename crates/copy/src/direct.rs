//! Direct reads: hosts' reads for which the protocol has nothing to do while the engine has them.

use std::collections::{BTreeMap, VecDeque};

use ashlar_block::{Completion, IoBuffer, IoError};
use ashlar_replica::Token;

/// What the engine has read for a [direct read](ashlar_replica::Replica::begin_direct).
#[derive(Debug)]
pub struct DirectlyRead {
    pub token: Token,
    pub result: Result<IoBuffer, IoError>,
}

/// Those that the engine has, by their names, and those that it has answered.
#[derive(Debug, Default)]
pub(crate) struct DirectReads {
    flying: BTreeMap<u64, Token>,
    done: VecDeque<DirectlyRead>,
}

impl DirectReads {
    pub(crate) fn begin(&mut self, name: u64, token: Token) {
        self.flying.insert(name, token);
    }

    /// Takes the completion of one of these.
    ///
    /// # Errors
    /// The completion, if it is of another command.
    pub(crate) fn completed(&mut self, completion: Completion) -> Result<(), Completion> {
        let Some(token) = self.flying.remove(&completion.tag) else {
            return Err(completion);
        };
        let buffer = completion.buffer;
        let result = completion
            .result
            .map(|()| buffer.unwrap_or_else(|| unreachable!("a read that succeeded has a buffer")));
        self.done.push_back(DirectlyRead { token, result });
        Ok(())
    }

    pub(crate) fn next(&mut self) -> Option<DirectlyRead> {
        self.done.pop_front()
    }
}
