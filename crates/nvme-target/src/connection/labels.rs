//! How old a connection's commands may be: labels, as they were when its socket was last seen empty.

use ashlar_block::Label;

use super::{Connection, Context};
use crate::controller::Role;

/// Of one namespace.
#[derive(Clone, Copy, Debug, Default)]
struct Labelled {
    /// What was known when the socket was last seen empty.
    known: Option<Label>,
    /// What was known before it is looked at again.
    next: Option<Label>,
}

/// A connection's labels: none as long as no device of its subsystem wants any.
#[derive(Debug, Default)]
pub(super) struct Labels {
    /// By namespace, nsid 1 first.
    by_namespace: Vec<Labelled>,
    /// They were asked for since the socket was last seen empty.
    is_asked: bool,
}

impl Labels {
    /// The label of a command that begins now.
    pub(super) fn of(&self, nsid: u32) -> Option<Label> {
        let index = (nsid as usize).wrapping_sub(1);
        self.by_namespace.get(index)?.known
    }

    /// The socket was empty at some time since labels were asked for: what comes now was not there then.
    fn confirm(&mut self) {
        if std::mem::take(&mut self.is_asked) {
            for one in &mut self.by_namespace {
                one.known = one.next;
            }
        }
    }
}

impl Connection {
    /// Asks devices for the labels of what may be sent from now on. They count once the socket is
    /// [seen empty](Self::seen_empty) afterwards.
    pub(crate) fn ask_labels(&mut self, ctx: &mut Context<'_>) {
        if !ctx.devices.any_labels() {
            return;
        }
        let Some(queue) = self.queue.as_ref().filter(|queue| queue.id > 0) else {
            return;
        };
        let Role::Io(subsystem) = &queue.controller.role else {
            return;
        };
        let (host, association) = (queue.controller.host.name, queue.controller.association());
        let labels = &mut self.labels;
        labels.is_asked = false;
        labels
            .by_namespace
            .resize(subsystem.namespaces.len(), Labelled::default());
        for (namespace, one) in subsystem.namespaces.iter().zip(&mut labels.by_namespace) {
            let device = ctx.devices.labelling(namespace.device);
            let label = device.map(|device| device.label(host, association));
            labels.is_asked |= label.is_some();
            one.next = label.flatten();
        }
    }

    /// The socket was found empty after labels were asked for, and everything that was read of it before
    /// has been taken. Of a command that has arrived in part, the rest may come later: then nothing counts.
    pub(crate) fn seen_empty(&mut self) {
        if !self.receiver.is_inside_header() {
            self.labels.confirm();
        }
    }

    /// Whether it is worth looking whether the socket is empty.
    pub(crate) fn has_labels(&self) -> bool {
        !self.labels.by_namespace.is_empty()
    }
}
