//! A member's part in commands of hosts that have come to it: they go to the owner, with the labels that they came
//! with, and their answers come back.
//!
//! A command is sent once, in the session that is open, and ends with it: what may have become of it is not known then.
//! A label is what the owner has said of an association, so it is as old as that or older: a command that was held up
//! here, while its host went on elsewhere, is refused by the owner.

use std::collections::BTreeMap;

use ashlar_block::{AssociationId, Label, Moment};

use crate::event::{Effect, HostCommand, Outcome, Turn};
use crate::fence::Origin;
use crate::ids::{CommandId, Epoch, ForwardId, Position, SessionId};
use crate::member::Member;
use crate::message::{Forward, Message};

/// How often the owner is asked for a label at most.
const ASK_EVERY: std::time::Duration = std::time::Duration::from_millis(200);
/// Associations that labels are kept of.
const MOST_LABELS: usize = 4096;

/// What an owner has said of an association.
#[derive(Debug)]
struct Heard {
    label: Option<Label>,
    asked_at: Moment,
}

/// What a member has forwarded.
#[derive(Debug, Default)]
pub(crate) struct Forwarder {
    /// Whose session, while it is open and its owner is heard.
    session: Option<(Epoch, SessionId)>,
    commands: BTreeMap<ForwardId, CommandId>,
    labels: BTreeMap<Origin, Heard>,
    next: u64,
}

impl Forwarder {
    /// Whether commands can be forwarded.
    pub(crate) const fn is_open(&self) -> bool {
        self.session.is_some()
    }

    /// What the owner has said last of an association.
    pub(crate) fn label(&self, origin: Origin) -> Option<Label> {
        self.labels.get(&origin)?.label
    }

    /// An association has ended.
    pub(crate) fn ended(&mut self, origin: Origin) {
        self.labels.remove(&origin);
    }

    /// Follows the session: with another one, what was forwarded before has no answer.
    pub(crate) fn follow(&mut self, turn: &mut Turn<'_>, session: Option<(Epoch, SessionId)>) {
        if self.session == session {
            return;
        }
        let was_open = self.is_open();
        self.session = session;
        self.labels.clear();
        for command in std::mem::take(&mut self.commands).into_values() {
            turn.answer(command, Outcome::PathGone);
        }
        if was_open != self.is_open() {
            turn.out.push(Effect::Forwards(self.is_open()));
        }
    }

    /// Asks the owner for an association's label, unless it was asked a moment ago.
    pub(crate) fn want_label(&mut self, turn: &mut Turn<'_>, member: &mut Member, origin: Origin) {
        if !self.is_open() {
            return;
        }
        let now = turn.now;
        let is_new = |heard: &Heard| now - heard.asked_at >= ASK_EVERY;
        if self.labels.get(&origin).is_some_and(|heard| !is_new(heard)) {
            return;
        }
        if self.labels.len() >= MOST_LABELS && !self.labels.contains_key(&origin) {
            self.labels.pop_first();
        }
        let heard = self.labels.entry(origin).or_insert(Heard {
            label: None,
            asked_at: now,
        });
        heard.asked_at = now;
        member.say(turn, Message::LabelAsk { origin });
    }

    /// Sends a host's command to the owner.
    pub(crate) fn send(&mut self, turn: &mut Turn<'_>, member: &mut Member, of_host: HostCommand) {
        let HostCommand {
            command,
            registrant,
            operation,
        } = of_host;
        if !self.is_open() {
            return turn.answer(command, Outcome::NotOwner);
        }
        self.next += 1;
        let forward = ForwardId(self.next);
        self.commands.insert(forward, command);
        let message = Message::Forward(Forward {
            forward,
            registrant,
            operation,
        });
        member.say(turn, message);
    }

    /// The owner has answered.
    pub(crate) fn done(&mut self, turn: &mut Turn<'_>, forward: ForwardId, outcome: Outcome) {
        if let Some(command) = self.commands.remove(&forward) {
            turn.answer(command, outcome);
        }
    }

    /// The owner says what an association's label is now.
    pub(crate) fn labelled(&mut self, origin: Origin, label: Label) {
        if let Some(heard) = self.labels.get_mut(&origin) {
            heard.label = Some(label);
        }
    }
}

/// What an owner calls an association of hosts with another node: its own have numbers of their own.
pub(crate) fn of_node(origin: Origin, node: Position) -> Origin {
    let mark = (node.index() as u64 + 1) << 60;
    let association = AssociationId(origin.association.0 & !(0xf << 60) | mark);
    Origin {
        association,
        ..origin
    }
}
