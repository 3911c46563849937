use std::fmt;

use ashlar_block::Moment;

/// What a world has lived through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Requests completed.
    pub requests: u64,
    /// Of these, failed.
    pub failed: u64,
    /// Connections made.
    pub connections: u64,
    /// Bytes carried, both ways.
    pub bytes: u64,
    /// Associations lost.
    pub losses: u64,
    /// Connections cut.
    pub cuts: u64,
    /// Restarts of the target.
    pub restarts: u64,
    /// Bytes damaged.
    pub flips: u64,
    /// Simulated time in microseconds.
    pub micros: u64,
    /// Turns of the world.
    pub turns: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests ({} failed), {} connections, {} bytes, {} losses, {} cuts, {} restarts, \
             {} flips, {} ms in {} turns",
            self.requests,
            self.failed,
            self.connections,
            self.bytes,
            self.losses,
            self.cuts,
            self.restarts,
            self.flips,
            self.micros / 1000,
            self.turns,
        )
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The world's seed.
    pub seed: u64,
    /// The profile's name.
    pub profile: &'static str,
    /// Simulated time in microseconds.
    pub micros: u64,
    /// What was broken.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            profile,
            micros,
            what,
        } = self;
        write!(f, "seed {seed} profile {profile} at {micros} us: {what}")
    }
}

impl std::error::Error for Failure {}

/// Takes the lines of a trace.
pub type Listener<'a> = &'a mut dyn FnMut(&str);

/// Where a world tells what happens in it.
pub(crate) struct Trace<'a>(pub(crate) Option<Listener<'a>>);

impl Trace<'_> {
    /// Says something, if there is a listener.
    pub(crate) fn say(&mut self, now: Moment, what: impl FnOnce() -> String) {
        if let Some(listener) = &mut self.0 {
            listener(&format!("{:>10} us  {}", now.as_nanos() / 1000, what()));
        }
    }
}
