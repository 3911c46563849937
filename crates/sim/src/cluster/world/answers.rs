//! Hosts' commands that processes have: each is answered once, unless its process dies.

use std::collections::BTreeMap;

use ashlar_replica::is_forwarded;
use ashlar_rights::Reserve;

use super::*;

/// A process of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    node: usize,
    life: u32,
}

/// Commands without an answer, and who has them.
#[derive(Debug, Default)]
pub(super) struct Unanswered(BTreeMap<CommandId, Process>);

impl World<'_> {
    pub(super) fn note_command(&mut self, node: usize, event: &Event) {
        // What was forwarded is answered by a message, and by the node that it came to; and what a node asks for itself
        // is no host's.
        if let Event::Host(host) = event
            && !is_forwarded(host.command)
            && !Reserve::asked(host.command)
        {
            let life = self.nodes[node].life;
            self.unanswered
                .0
                .insert(host.command, Process { node, life });
        }
    }

    /// A process answers.
    ///
    /// # Errors
    /// It has no such command.
    pub(super) fn note_answer(&mut self, node: usize, command: CommandId) -> Result<(), String> {
        match self.unanswered.0.remove(&command) {
            Some(process) if process.node == node => Ok(()),
            had => Err(format!(
                "node {node} answers {command}, which it does not have: {had:?}"
            )),
        }
    }

    /// What a process that lives has not answered.
    pub(super) fn unanswered(&self) -> Vec<CommandId> {
        let lives = |process: &Process| {
            let node = &self.nodes[process.node];
            node.replica.is_some() && node.life == process.life
        };
        let all = self.unanswered.0.iter();
        all.filter(|(_, process)| lives(process))
            .map(|(&command, _)| command)
            .collect()
    }
}
