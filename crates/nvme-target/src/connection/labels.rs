//! How old a connection's commands may be: labels, as they were when its host is known to have used the association.

use std::time::Duration;

use ashlar_block::{Label, Moment};

use super::{Connection, Queue};
use crate::controller::Role;
use crate::devices::Devices;
use crate::namespace::Namespace;
use crate::pulse::{Beat, Pulse, Round};
use crate::subsystem::Subsystem;

/// How long a host whose commands are refused for their labels has to prove that it has not given the association up.
const PROOF_LIMIT: Duration = Duration::from_secs(3);

/// What a device has said, which counts once the host has used the association afterwards.
#[derive(Clone, Copy, Debug)]
struct Unproven {
    label: Label,
    asked: Beat,
}

/// Of one namespace.
#[derive(Clone, Copy, Debug, Default)]
struct Labelled {
    known: Option<Label>,
    next: Option<Unproven>,
    /// What was said last, if `next` is older: it waits for its own proof, or none would ever be proven where devices say
    /// something new more often than hosts prove themselves.
    newest: Option<Unproven>,
}

impl Labelled {
    /// A device has said this before `asked`.
    fn heard(&mut self, label: Label, asked: Beat) {
        let is_another = |known: Option<Unproven>| known.is_none_or(|known| known.label != label);
        if self.known == Some(label) {
            (self.next, self.newest) = (None, None);
        } else if self.next.is_none() {
            self.next = Some(Unproven { label, asked });
        } else if is_another(self.next) && is_another(self.newest) {
            self.newest = Some(Unproven { label, asked });
        }
    }

    /// Takes what is proven by now; true if there was something.
    fn prove(&mut self, pulse: &Pulse) -> bool {
        let proven = |one: &mut Unproven| pulse.is_proven_after(one.asked);
        let Some(next) = self.next.take_if(proven) else {
            return false;
        };
        let newest = self.newest.take_if(proven);
        self.known = Some(newest.unwrap_or(next).label);
        self.next = self.newest.take();
        true
    }
}

/// A connection's labels: none as long as no device of its subsystem wants any.
#[derive(Debug, Default)]
pub(super) struct Labels {
    /// By namespace, nsid 1 first.
    by_namespace: Vec<Labelled>,
    /// The queue's own proof.
    round: Round,
    /// A command was refused, perhaps for its label, and the core has not heard of it.
    is_refused: bool,
    /// Commands have been refused, what devices have said then is unproven, and nothing was proven since.
    lacks_proof: bool,
    /// Since when, as far as a tick has seen.
    lacking: Option<Moment>,
}

impl Labels {
    /// The label of a command that begins now.
    fn of(&self, nsid: u32) -> Option<Label> {
        let index = (nsid as usize).wrapping_sub(1);
        self.by_namespace.get(index)?.known
    }

    /// Takes what is proven by now; true if there was something.
    fn prove(&mut self, pulse: &Pulse) -> bool {
        let labels = self.by_namespace.iter_mut();
        let is_proven = labels.fold(false, |any, one| one.prove(pulse) | any);
        self.lacks_proof &= !is_proven;
        is_proven
    }
}

impl Connection {
    /// The label of a command to this namespace that has just begun to arrive. What that proves counts, and devices are
    /// asked again: the next proof may come soon.
    pub(super) fn label_of(&mut self, devices: &mut Devices, nsid: u32) -> Option<Label> {
        let queue = self.queue.as_ref().filter(|_| self.has_labels())?;
        let (pulse, entries) = (&queue.controller.pulse, queue.size);
        let ends = self.labels.round.received(pulse);
        let is_proven = self.labels.prove(pulse);
        if ends || is_proven {
            self.ask_labels(devices);
        }
        if let (true, Some(queue)) = (ends, &self.queue) {
            self.labels.round.begin(&queue.controller.pulse, entries);
        }
        self.labels.of(nsid)
    }

    /// A command was answered, or will never be.
    pub(super) fn count_answer(&mut self) {
        self.labels.round.answered();
    }

    /// Asks devices for labels. They count once the host is known to have used the association afterwards.
    pub(crate) fn ask_labels(&mut self, devices: &mut Devices) {
        let Some(queue) = &self.queue else { return };
        let pulse = &queue.controller.pulse;
        let labels = &mut self.labels;
        // What is proven already must not be forgotten for what is not.
        labels.prove(pulse);
        each_label(queue, devices, |at, label| {
            // Read behind the label, which is then older than what proves it.
            let asked = pulse.now();
            if let Some(one) = labels.by_namespace.get_mut(at) {
                one.heard(label, asked);
            }
        });
    }

    /// The same, before the host is told that it is connected: it sends nothing until then. A device may know no label of
    /// an association that it has not been asked for: so it is asked when its admin queue connects.
    pub(crate) fn ask_first_labels(&mut self, devices: &mut Devices) {
        let Some(queue) = &self.queue else { return };
        let labels = &mut self.labels.by_namespace;
        if let (Role::Io(subsystem), true) = (&queue.controller.role, queue.id > 0)
            && devices.any_labels()
        {
            labels.resize(subsystem.namespaces.len(), Labelled::default());
        }
        each_label(queue, devices, |at, label| {
            if let Some(one) = labels.get_mut(at) {
                one.known = Some(label);
            }
        });
    }

    /// Whether its commands carry labels.
    pub(crate) fn has_labels(&self) -> bool {
        !self.labels.by_namespace.is_empty()
    }

    /// A command to this namespace ends with the answer that its path is changing. Where the path is usable, that may
    /// be for its label.
    pub(super) fn path_refused(&mut self, subsystem: &Subsystem, nsid: u32) {
        let usable = |namespace: &Namespace| namespace.path.refusal().is_none();
        self.labels.is_refused |=
            self.has_labels() && subsystem.namespace(nsid).is_some_and(usable);
    }

    /// Asks the host for proof that it has not given the association up, if commands were refused. True if there is an
    /// event for it.
    pub(crate) fn ask_for_proof(&mut self, devices: &mut Devices) -> bool {
        if !std::mem::take(&mut self.labels.is_refused) {
            return false;
        }
        self.ask_labels(devices);
        let labels = &mut self.labels;
        labels.lacks_proof |= labels.by_namespace.iter().any(|one| one.next.is_some());
        if !labels.lacks_proof {
            return false;
        }
        let queue = self.queue.as_ref();
        queue.is_some_and(|queue| queue.controller.want_proof())
    }

    /// Whether the host has been asked for proof, and not given it in time. With another association it begins anew.
    pub(crate) fn lacks_proof(&mut self, now: Moment) -> bool {
        let Some(queue) = &self.queue else {
            return false;
        };
        let labels = &mut self.labels;
        labels.prove(&queue.controller.pulse);
        labels.lacks_proof &= labels.by_namespace.iter().any(|one| one.next.is_some());
        if !labels.lacks_proof {
            labels.lacking = None;
            return false;
        }
        now.since(*labels.lacking.get_or_insert(now)) > PROOF_LIMIT
    }
}

/// What devices say of an association, by namespace: 0 is nsid 1.
fn each_label(queue: &Queue, devices: &mut Devices, mut hear: impl FnMut(usize, Label)) {
    let controller = &queue.controller;
    let Role::Io(subsystem) = &controller.role else {
        return;
    };
    if !devices.any_labels() {
        return;
    }
    for (at, namespace) in subsystem.namespaces.iter().enumerate() {
        let device = devices.labelling(namespace.device);
        let label =
            device.and_then(|device| device.label(controller.host.name, controller.association()));
        if let Some(label) = label {
            hear(at, label);
        }
    }
}
