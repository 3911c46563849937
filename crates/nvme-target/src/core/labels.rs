//! Labels of commands, as far as cores have to do with them: when to ask, and what has ended.

use ashlar_block::Moment;

use super::{Action, ConnectionId, Core, Notice};
use crate::connection::Queue;
use crate::controller::Role;
use crate::devices::Devices;

impl Core {
    /// Asks devices for the labels of what hosts may send from now on.
    pub(super) fn ask_labels(&mut self, now: Moment) {
        if !self.devices.any_labels() {
            return;
        }
        let labelled = self.connections.iter().filter(|(_, one)| one.has_labels());
        let ids: Vec<ConnectionId> = labelled.map(|(id, _)| id as ConnectionId).collect();
        for id in ids {
            if let Some((connection, mut ctx)) = self.split(id, now) {
                connection.ask_labels(&mut ctx);
            }
        }
    }

    /// A device has refused a command of this connection, perhaps for its label.
    pub(super) fn ask_for_proof(&mut self, now: Moment, id: ConnectionId) {
        if let Some((connection, mut ctx)) = self.split(id, now)
            && connection.ask_for_proof(&mut ctx)
        {
            self.actions.push_back(Action::Notify(Notice::Events));
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
