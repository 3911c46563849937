//! Hosts' commands that have come to another node.

use super::Owner;
use crate::canary::Canary;
use crate::event::{Effect, HostCommand, HostOperation, Outcome, Turn};
use crate::fence::Origin;
use crate::forward::of_node;
use crate::ids::{CommandId, ForwardId, Position, SessionId};
use crate::message::{Forward, Message};

/// Names these commands: what hands in others has none so large.
const FORWARDED: u64 = 1 << 62;

/// A command, and who is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forwarded {
    from: Position,
    session: SessionId,
    forward: ForwardId,
    /// Whose it is, if it has a label, as the node that has sent it says.
    origin: Option<Origin>,
}

/// Whether a command has come from another node.
pub const fn is_forwarded(command: CommandId) -> bool {
    command.0 >> 62 == FORWARDED >> 62
}

impl Owner {
    /// A member wants to know an association's label.
    pub(super) fn label_asked(&mut self, turn: &mut Turn<'_>, from: Position, origin: Origin) {
        let label = self.fence.label(of_node(origin, from));
        let (epoch, writes) = (self.epoch, label.writes);
        if let Some(peer) = self.peers[from.index()].as_mut() {
            peer.send(turn, epoch, Message::Labelled { origin, writes });
        }
    }

    /// A member has sent a host's command. It is for what drives this replica to say whether the host may; then it
    /// comes back as any host's.
    pub(super) fn forwarded(&mut self, turn: &mut Turn<'_>, from: Position, forward: Forward) {
        let Some(session) = self.peers[from.index()].as_ref().map(|peer| peer.session) else {
            return;
        };
        let Forward {
            forward,
            registrant,
            mut operation,
        } = forward;
        let mut origin = None;
        if let Some((of, label)) = operation.provenance_mut() {
            origin = Some(*of);
            *of = of_node(*of, from);
            if turn.sings(Canary::ForwardRefreshed) {
                *label = self.fence.label(*of);
            }
        }
        self.next_forwarded += 1;
        let command = CommandId(FORWARDED | self.next_forwarded);
        self.forwarded.insert(
            command,
            Forwarded {
                from,
                session,
                forward,
                origin,
            },
        );
        let command = HostCommand {
            command,
            registrant,
            operation,
        };
        turn.out.push(Effect::Forwarded { by: from, command });
    }

    /// Such a command has ended. Who has sent it hears of it if its session is still there.
    pub(crate) fn forwarded_done(
        &mut self,
        turn: &mut Turn<'_>,
        command: CommandId,
        outcome: Outcome,
    ) {
        let Some(known) = self.forwarded.remove(&command) else {
            return;
        };
        let writes = |origin| self.fence.label(of_node(origin, known.from)).writes;
        let label = known.origin.map(|origin| (origin, writes(origin)));
        let epoch = self.epoch;
        let peer = self.peers[known.from.index()].as_mut();
        let Some(peer) = peer.filter(|peer| peer.is_open() && peer.session == known.session) else {
            return;
        };
        if let Some((origin, writes)) = label {
            peer.send(turn, epoch, Message::Labelled { origin, writes });
        }
        let forward = known.forward;
        peer.send(turn, epoch, Message::Done { forward, outcome });
    }
}

impl HostOperation {
    /// Whose a command that changes something is, and how old.
    pub(crate) const fn provenance_mut(
        &mut self,
    ) -> Option<(&mut Origin, &mut ashlar_block::Label)> {
        match self {
            Self::Write { origin, label, .. }
            | Self::SetRegister { origin, label, .. }
            | Self::Consult { origin, label, .. } => Some((origin, label)),
            Self::Read { .. } | Self::GetRegister => None,
        }
    }
}
