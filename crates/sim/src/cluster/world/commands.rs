//! Commands of hosts: how they are sent, given up and sent again, and what their answers must be.

use ashlar_rights::Reserve;

use super::*;

impl World<'_> {
    /// A host sends a command on a path. Its label is what the node knew before.
    pub(super) fn attempt(&mut self, writer: usize) {
        let attempt = self.hosts.attempt();
        let node = self.hosts.writers[writer].path;
        // Without faults, a queue is the only thing that makes a host wait, and giving up would make it longer.
        let timeout = match self.has_healed {
            true => HEALING / 6,
            false => self.hosts.timeout(),
        };
        let origin = self.hosts.origin(writer);
        let is_seen = self.nodes[node].runs();
        let replica = self.nodes[node].replica.as_ref().filter(|_| is_seen);
        if let Some(replica) = replica {
            // The host has used its association until now.
            if self.hosts.takes_label(writer) {
                self.hosts.writers[writer].label = replica.label(origin);
            }
            if replica.forwards() {
                self.at(Duration::ZERO, Happening::LabelWanted { node, origin });
                if self.hosts.waits_for_label(writer) {
                    return self.at(Duration::from_millis(2), Happening::Again(writer));
                }
            }
        }
        let label = self.hosts.writers[writer].label.unwrap_or(NO_LABEL);
        let Doing::Busy(command) = &mut self.hosts.writers[writer].doing else {
            return;
        };
        (command.attempt, command.node) = (attempt, node);
        let wants = command.wants;
        let operation = command.operation(origin, label);
        let line = format!("writer {writer} {attempt} to node {node}: {command:?}");
        self.say(|| line);
        let mut after = Duration::from_micros(20) + self.chance.time(Duration::from_micros(300));
        if !self.has_healed && self.chance.happens(self.late_commands) {
            after += self.chance.time(Duration::from_secs(8));
        }
        let what = match wants {
            Some(wants) => {
                let petition = self.ask(writer, wants, attempt);
                Happening::Petition { node, petition }
            }
            None => {
                let command = HostCommand {
                    command: attempt,
                    registrant: hosts::registrant(writer),
                    operation,
                };
                Happening::Command { node, command }
            }
        };
        self.at(after, what);
        self.at(timeout, Happening::Timeout(attempt));
    }

    pub(super) fn try_again(&mut self, writer: usize, least: Duration) {
        self.summary.retries += 1;
        let nodes = self.nodes.len() as u64;
        let attempt = self.hosts.attempt();
        let path = self.chance.below(nodes) as usize;
        self.hosts.associate(writer, path);
        if let Doing::Busy(command) = &mut self.hosts.writers[writer].doing {
            // What the old path still says does not count.
            command.attempt = attempt;
        }
        let after = least + self.chance.time(Duration::from_millis(30));
        self.at(after, Happening::Again(writer));
    }

    pub(super) fn answered(&mut self, attempt: CommandId, outcome: Outcome) -> Result<(), String> {
        let Some(writer) = self.hosts.whose(attempt) else {
            return Ok(());
        };
        self.say(|| format!("writer {writer} hears of {attempt}: {outcome:?}"));
        match outcome {
            Outcome::Written => {
                self.summary.writes += 1;
                self.model.acknowledged(writer)?;
            }
            Outcome::Read(data) => {
                self.summary.reads += 1;
                if let Doing::Busy(command) = &self.hosts.writers[writer].doing {
                    hosts::check_read(command, &data)?;
                }
            }
            Outcome::NotOwner | Outcome::PathGone | Outcome::Failed | Outcome::Stale => {
                self.summary.stale += u64::from(outcome == Outcome::Stale);
                self.try_again(writer, Duration::from_millis(2));
                return Ok(());
            }
            Outcome::OutOfRange => return Err(format!("{attempt} is out of range")),
            // Its host does not send it again; what it has sent before was let in before, or never is.
            Outcome::Reserved if self.rights.is_some() => {
                self.summary.refused += 1;
                self.model.give_up(writer);
                self.hosts.writers[writer].is_fenced = true;
            }
            Outcome::Reserved | Outcome::Advice(_) => {
                return Err(format!("{attempt} ended as {outcome:?}"));
            }
        }
        self.is_done(writer);
        Ok(())
    }

    /// A writer's command is over.
    pub(super) fn is_done(&mut self, writer: usize) {
        self.hosts.writers[writer].doing = Doing::Thinking;
        let after = self.hosts.pause(&mut self.chance);
        self.at(after, Happening::Next(writer));
    }

    /// A process answers.
    pub(super) fn answer(
        &mut self,
        node: usize,
        command: CommandId,
        outcome: Outcome,
    ) -> Result<(), String> {
        let is_served = matches!(outcome, Outcome::Written | Outcome::Read(_));
        let replica = self.nodes[node].replica.as_ref();
        let is_owner = replica.is_some_and(|replica| replica.owns().is_some());
        if is_served && is_owner && !self.nodes[node].knows_register {
            return Err(format!(
                "node {node} serves hosts, and has not read the register"
            ));
        }
        if Reserve::asked(command) {
            return self.rights_answered(node, command, &outcome);
        }
        self.note_answer(node, command)?;
        if let (true, Outcome::Read(data)) = (is_owner, &outcome) {
            self.note_read(node, command, data)?;
        }
        let after = Duration::from_micros(20) + self.chance.time(Duration::from_micros(300));
        let attempt = command;
        self.at(after, Happening::Answer { attempt, outcome });
        Ok(())
    }

    /// What an owner has answered a host with, and what its store still holds, stays seen. Zeroes may be those of another
    /// write by now.
    pub(super) fn note_read(
        &mut self,
        node: usize,
        attempt: CommandId,
        data: &[u8],
    ) -> Result<(), String> {
        let Some(writer) = self.hosts.whose(attempt) else {
            return Ok(());
        };
        let Doing::Busy(command) = &self.hosts.writers[writer].doing else {
            return Ok(());
        };
        let content = self.nodes[node].store.content();
        for (granule, value) in command.extent.granules().zip(hosts::values_of(data)) {
            let granule = granule as usize;
            if value != 0 && content.get(granule) == Some(&value) {
                let seen = self.model.seen(granule, value);
                seen.map_err(|what| format!("node {node} answers {attempt}: {what}"))?;
            }
        }
        Ok(())
    }
}
