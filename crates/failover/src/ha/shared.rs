//! Several hosts of one volume: each load thread is one.

use ashlar_lab::{LabError, OpenOptions, PrepareOptions, Prepared, Stacks, Worker};

/// For specs that end with a host's NQN.
pub(super) struct HostEach<'a> {
    pub(super) stacks: &'a dyn Stacks,
    pub(super) threads: u32,
}

fn of(spec: &str, thread: usize) -> String {
    format!("{spec}-{thread}")
}

impl Stacks for HostEach<'_> {
    fn prepare(&self, spec: &str, options: &PrepareOptions) -> Result<Prepared, LabError> {
        for thread in 1..self.threads as usize {
            self.stacks.prepare(&of(spec, thread), options)?;
        }
        self.stacks.prepare(&of(spec, 0), options)
    }

    fn open(&self, spec: &str, options: &OpenOptions) -> Result<Box<dyn Worker>, LabError> {
        self.stacks.open(&of(spec, options.thread), options)
    }
}
