//! Labels of commands, as far as cores have to do with them: when to ask, and what has ended.

use ashlar_block::Moment;

use super::{Action, ConnectionId, Core};
use crate::connection::Queue;
use crate::controller::Role;
use crate::devices::Devices;

impl Core {
    /// The driver is about to receive from the connection's socket, or to look whether it is empty: what is
    /// not in it when it is found so is sent with what devices know now.
    pub fn about_to_look(&mut self, now: Moment, id: ConnectionId) {
        if self.devices.any_labels()
            && let Some((connection, mut ctx)) = self.split(id, now)
        {
            connection.ask_labels(&mut ctx);
        }
    }

    /// The connection's socket was found empty after [`about_to_look`](Self::about_to_look), and everything
    /// that was read of it before was given to [`receive`](Self::receive) and taken.
    pub fn seen_empty(&mut self, id: ConnectionId) {
        if self.devices.any_labels()
            && let Some(connection) = self.connections.get_mut(id as usize)
        {
            connection.seen_empty();
        }
    }

    /// Asks the driver to look at the sockets of connections whose commands are labelled: a label of before
    /// a long pause would be refused for nothing.
    pub(super) fn look_around(&mut self) {
        if self.devices.any_labels() {
            let labelled = self.connections.iter().filter(|(_, one)| one.has_labels());
            let looks = labelled.map(|(id, _)| Action::Look(id as ConnectionId));
            self.actions.extend(looks);
        }
    }

    /// Nothing is left of the connection that carried `queue`.
    pub(super) fn leave(devices: &mut Devices, queue: &Queue) {
        let controller = &queue.controller;
        if queue.id > 0 {
            controller.release_queue(queue.id);
        }
        if let (true, Role::Io(subsystem)) = (controller.part(), &controller.role) {
            for namespace in &subsystem.namespaces {
                if let Some(device) = devices.labelling(namespace.device) {
                    device.association_ended(controller.host.name, controller.association());
                }
            }
        }
    }
}
