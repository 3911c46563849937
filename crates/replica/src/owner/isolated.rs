//! An owner without grants: another copy may serve by now, and hosts are not kept waiting for this one.

use std::time::Duration;

use super::reads::Whose;
use super::{Owner, Work};
use crate::event::{Effect, Outcome, Turn};
use crate::ids::CommandId;

/// After so long without the grants that reads need, hosts are sent to other paths.
const RELEASE_AFTER: Duration = Duration::from_millis(500);

impl Owner {
    /// Sends hosts away while the grants are missing, and lets them come again with the grants.
    pub(super) fn look_after_hosts(&mut self, turn: &mut Turn<'_>) {
        if !self.is_serving() || self.has_grants(turn.at()) {
            self.ungranted_since = None;
            if std::mem::take(&mut self.is_isolated) {
                turn.out.push(Effect::Isolated(false));
            }
            return;
        }
        let since = *self.ungranted_since.get_or_insert(turn.now);
        if turn.now - since < RELEASE_AFTER {
            return;
        }
        if !std::mem::replace(&mut self.is_isolated, true) {
            turn.out.push(Effect::Isolated(true));
        }
        for command in self.release(turn) {
            turn.answer(command, Outcome::PathGone);
        }
    }

    /// Takes hosts' commands off what they wait for. What has begun may end yet, before anything that comes later. The
    /// register's stay: who decides on reservations waits for them.
    fn release(&mut self, turn: &Turn<'_>) -> Vec<CommandId> {
        let register = self.shape(turn.at()).register();
        let is_hosts = |extent| Some(extent) != register;
        let mut commands = Vec::new();
        for op in self.ops.iter_mut().filter(|op| is_hosts(op.extent)) {
            commands.extend(op.command.take());
        }
        self.line.withdraw(|extent, work| match work {
            Work::Write { command, .. } if is_hosts(extent) => {
                commands.push(*command);
                true
            }
            _ => false,
        });
        self.reads.retain(|read| match read.whose {
            Whose::Command(command) if is_hosts(read.extent) => {
                commands.push(command);
                false
            }
            _ => true,
        });
        commands.extend(self.end_all_direct());
        commands
    }
}
