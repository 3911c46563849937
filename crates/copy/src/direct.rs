//! Direct reads: hosts' reads for which the protocol has nothing to do while the engine has them.

use std::collections::{BTreeMap, VecDeque};

use ashlar_block::{Completion, IoBuffer, IoError};
use ashlar_replica::Token;

/// The end of a [direct read](ashlar_replica::Replica::begin_direct).
#[derive(Debug)]
pub struct DirectlyRead {
    pub token: Token,
    /// What was lent for it: with what was read, if that could be.
    pub buffer: Option<IoBuffer>,
    pub result: Result<(), IoError>,
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
        let Completion { buffer, result, .. } = completion;
        self.done.push_back(DirectlyRead {
            token,
            buffer,
            result,
        });
        Ok(())
    }

    pub(crate) fn next(&mut self) -> Option<DirectlyRead> {
        self.done.pop_front()
    }
}
