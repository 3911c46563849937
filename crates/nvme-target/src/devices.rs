use ashlar_block::{
    BlockDevice, Checked, Completion, ErrorKind, IoError, Moment, Provenance, Request,
};

/// A device that a core has opened.
struct Opened {
    device: Checked<Box<dyn BlockDevice>>,
    labels_writes: bool,
    /// Requests that have not come back.
    outstanding: usize,
}

impl Opened {
    fn new(device: Box<dyn BlockDevice>) -> Self {
        Self {
            labels_writes: device.labels_writes(),
            device: Checked::new(device),
            outstanding: 0,
        }
    }

    fn poll(&mut self, now: Moment, done: &mut Vec<Completion>) {
        let before = done.len();
        self.device.poll(now, done);
        self.outstanding = self.outstanding.saturating_sub(done.len() - before);
    }
}

/// The devices that a core has opened, by number, and what they have completed.
pub(crate) struct Devices {
    list: Vec<Option<Opened>>,
    /// Taken away or replaced, but some of their requests are not back.
    retiring: Vec<(usize, Opened)>,
    /// Requests to devices that are not there.
    refused: Vec<Completion>,
    /// Some device of the list wants labels.
    any_labels: bool,
    unpolled: bool,
    submitted: bool,
}

impl Devices {
    pub(crate) fn new(devices: Vec<Box<dyn BlockDevice>>) -> Self {
        let mut devices = Self {
            list: devices.into_iter().map(|d| Some(Opened::new(d))).collect(),
            retiring: Vec::new(),
            refused: Vec::new(),
            any_labels: false,
            unpolled: false,
            submitted: false,
        };
        devices.look_for_labels();
        devices
    }

    fn look_for_labels(&mut self) {
        let mut opened = self.list.iter().flatten();
        self.any_labels = opened.any(|opened| opened.labels_writes);
    }

    /// Puts a device at `number`. One that was there takes nothing more, and is dropped when the
    /// last of its requests is back.
    pub(crate) fn attach(&mut self, number: usize, device: Box<dyn BlockDevice>) {
        self.detach(number);
        if self.list.len() <= number {
            self.list.resize_with(number + 1, || None);
        }
        self.list[number] = Some(Opened::new(device));
        self.look_for_labels();
    }

    /// Takes the device at `number` away, if there is one; it is dropped when the last of its
    /// requests is back.
    pub(crate) fn detach(&mut self, number: usize) {
        let old = self.list.get_mut(number).and_then(Option::take);
        if let Some(old) = old.filter(|opened| opened.outstanding > 0) {
            self.retiring.push((number, old));
        }
        self.look_for_labels();
    }

    /// Whether nothing is left of any device at `number`.
    pub(crate) fn is_vacant(&self, number: usize) -> bool {
        let there = self.list.get(number).is_some_and(Option::is_some);
        !there && self.retiring.iter().all(|(other, _)| *other != number)
    }

    /// Whether some device wants labels.
    pub(crate) fn any_labels(&self) -> bool {
        self.any_labels
    }

    /// The device at `number`, if it wants labels.
    pub(crate) fn labelling(&mut self, number: usize) -> Option<&mut dyn BlockDevice> {
        let opened = self.list.get_mut(number)?.as_mut();
        let opened = opened.filter(|opened| opened.labels_writes)?;
        Some(&mut opened.device)
    }

    /// Hands over a request of this provenance; what modifies nothing needs none where nothing is labelled.
    pub(crate) fn submit(&mut self, number: usize, request: Request, provenance: Provenance) {
        self.unpolled = true;
        self.submitted = true;
        match self.list.get_mut(number) {
            Some(Some(opened)) => {
                opened.outstanding += 1;
                match request.op.modifies() || opened.labels_writes {
                    true => opened.device.submit_from(request, provenance),
                    false => opened.device.submit(request),
                }
            }
            _ => {
                let gone = IoError::new(ErrorKind::Disconnected, "the device was taken away");
                self.refused.push(request.complete(Err(gone)));
            }
        }
    }

    /// Whether something was submitted since the last poll.
    pub(crate) fn unpolled(&self) -> bool {
        self.unpolled
    }

    /// Whether something was submitted since the last call.
    pub(crate) fn take_submitted(&mut self) -> bool {
        std::mem::take(&mut self.submitted)
    }

    pub(crate) fn poll(&mut self, now: Moment, done: &mut Vec<Completion>) {
        self.unpolled = false;
        done.append(&mut self.refused);
        for opened in self.list.iter_mut().flatten() {
            opened.poll(now, done);
        }
        if !self.retiring.is_empty() {
            self.retiring.retain_mut(|(_, opened)| {
                opened.poll(now, done);
                opened.outstanding > 0
            });
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        let current = self.list.iter().flatten();
        let retiring = self.retiring.iter().map(|(_, opened)| opened);
        current
            .chain(retiring)
            .filter_map(|opened| opened.device.next_deadline())
            .min()
    }
}
