//! Direct reads: hosts' reads for which nothing must be waited. Such a read is judged when it begins and when its data is
//! here; one that may not be answered then is read anew, as any other.

use std::time::Duration;

use ashlar_block::Moment;

use super::Owner;
use crate::canary::Canary;
use crate::event::{At, ReadMode, Turn};
use crate::extent::Extent;
use crate::ids::{CommandId, Token};

/// From then on the store owes the answer, as that of any other read, and may come to count as hung.
const DIRECT_READ_OWED_AFTER: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct DirectRead {
    command: CommandId,
    /// As the host has asked.
    extent: Extent,
    /// Where that is in the store.
    pub(crate) placed: Extent,
    began: Moment,
}

/// What becomes of a direct read whose data is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectEnd {
    /// The host gets the data.
    Answer(CommandId),
    /// The data is of no use: the replica is to hear of the host's read as of any other.
    Ask { command: CommandId, extent: Extent },
}

impl Owner {
    /// A host's read, if it may be read directly. While copies go to a learner the pace needs to know what each command
    /// takes.
    pub(crate) fn direct_read(
        &self,
        at: At<'_>,
        command: CommandId,
        extent: Extent,
    ) -> Option<DirectRead> {
        let is_leased = at.config.reads == ReadMode::Leased;
        if !self.is_open || !is_leased || self.pacing.is_on() {
            return None;
        }
        let placed = self.shape(at).place(extent)?;
        self.would_serve(at, placed).then_some(DirectRead {
            command,
            extent,
            placed,
            began: at.now,
        })
    }

    /// The store was asked for it.
    pub(crate) fn direct_begun(&mut self, token: Token, read: DirectRead) {
        self.direct.insert(token, read);
    }

    /// The store has answered; none if this was no direct read, or is none any more.
    pub(crate) fn direct_ended(
        &mut self,
        at: At<'_>,
        token: Token,
        is_read: bool,
    ) -> Option<DirectEnd> {
        let read = self.direct.remove(&token)?;
        let (command, extent) = (read.command, read.extent);
        let may_be_shown = self.is_open && self.would_serve(at, read.placed);
        Some(
            match is_read && (may_be_shown || at.sings(Canary::DirectUnchecked)) {
                true => DirectEnd::Answer(command),
                false => DirectEnd::Ask { command, extent },
            },
        )
    }

    /// What the store has not answered for long is owed.
    pub(super) fn look_at_direct(&self, turn: &mut Turn<'_>) {
        for (&token, read) in &self.direct {
            if turn.now - read.began > DIRECT_READ_OWED_AFTER {
                turn.owe(token);
            }
        }
    }

    /// Whose they are, and forgets them: what is read is of no use any more.
    pub(super) fn end_all_direct(&mut self) -> impl Iterator<Item = CommandId> + use<> {
        std::mem::take(&mut self.direct)
            .into_values()
            .map(|read| read.command)
    }
}
