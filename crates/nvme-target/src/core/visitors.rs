//! Connections that carry no queue of a subsystem: those before their Connect, and discovery's. They cost nothing to
//! have, so they are bounded: one address could use up files and memory that hosts need.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ashlar_block::Moment;

use super::{Action, ConnectionId, Core};

/// Most of one address on a core. A host with many processors opens a queue for each of them at once.
const MOST_OF_AN_ADDRESS: usize = 256;
/// Most of all addresses on a core.
const MOST: usize = 4096;

struct Visitor {
    born: Moment,
    id: ConnectionId,
    from: IpAddr,
}

impl Core {
    /// A connection from this address has come: beyond a limit the oldest goes, so a new host is never the one
    /// that is turned away.
    pub(super) fn bound_visitors(&mut self, from: IpAddr) {
        let visitors: Vec<Visitor> = self.visitors().collect();
        let of_address = visitors.iter().filter(|one| one.from == from);
        if of_address.clone().count() > MOST_OF_AN_ADDRESS {
            self.close_oldest(of_address);
        } else if visitors.len() > MOST {
            self.close_oldest(visitors.iter());
        }
    }

    fn visitors(&self) -> impl Iterator<Item = Visitor> {
        let closing = self.actions.iter().filter_map(|action| match *action {
            Action::Close(id) => Some(id),
            _ => None,
        });
        let closing: BTreeSet<ConnectionId> = closing.collect();
        let stays = move |id: usize| !closing.contains(&(id as ConnectionId));
        let open = self.connections.iter();
        let open = open.filter(move |(id, one)| one.is_open() && stays(*id));
        let visitors = open.filter(|(_, one)| one.is_visitor());
        visitors.map(|(id, one)| Visitor {
            born: one.born,
            id: id as ConnectionId,
            from: one.ends.remote,
        })
    }

    fn close_oldest<'a>(&mut self, among: impl Iterator<Item = &'a Visitor>) {
        let Some(oldest) = among.min_by_key(|one| one.born) else {
            return;
        };
        let from = oldest.from;
        tracing::warn!(
            %from,
            "a connection from {from} is closed: too many carry no queue of a subsystem"
        );
        self.actions.push_back(Action::Close(oldest.id));
    }
}
