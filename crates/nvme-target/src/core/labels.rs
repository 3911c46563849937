//! Labels of commands, as far as cores have to do with them: when to ask, and what has ended.

use super::Core;
use crate::connection::Queue;
use crate::controller::Role;
use crate::devices::Devices;

impl Core {
    /// Asks devices for the labels of what hosts may send from now on.
    pub(super) fn ask_labels(&mut self) {
        if !self.devices.any_labels() {
            return;
        }
        let labelled = self.connections.iter_mut();
        for (_, connection) in labelled.filter(|(_, one)| one.has_labels()) {
            connection.ask_labels(&mut self.devices);
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
