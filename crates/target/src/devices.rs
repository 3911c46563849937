use ashlar_block::{BlockDevice, Checked, Completion, Moment, Request};

/// The devices that a core has opened, and what they have completed.
pub(crate) struct Devices {
    list: Vec<Checked<Box<dyn BlockDevice>>>,
    unpolled: bool,
}

impl Devices {
    pub(crate) fn new(devices: Vec<Box<dyn BlockDevice>>) -> Self {
        Self {
            list: devices.into_iter().map(Checked::new).collect(),
            unpolled: false,
        }
    }

    pub(crate) fn submit(&mut self, device: usize, request: Request) {
        self.unpolled = true;
        self.list[device].submit(request);
    }

    /// Whether something was submitted since the last poll.
    pub(crate) fn unpolled(&self) -> bool {
        self.unpolled
    }

    pub(crate) fn poll(&mut self, now: Moment, done: &mut Vec<Completion>) {
        self.unpolled = false;
        for device in &mut self.list {
            device.poll(now, done);
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        self.list
            .iter()
            .filter_map(BlockDevice::next_deadline)
            .min()
    }
}
