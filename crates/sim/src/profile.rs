use std::time::Duration;

/// How a device behaves.
#[derive(Clone, Copy, Debug)]
pub struct DeviceShape {
    /// Longest service time of most requests.
    pub time: Duration,
    /// Longest service time of slow ones.
    pub slow: Duration,
    /// How many of a thousand requests are slow.
    pub slow_per_mille: u32,
    /// How many of a thousand requests fail with a media error.
    pub fails_per_mille: u32,
}

/// What is broken on purpose, to show that the checks notice. All of it lies in the simulation's own
/// device, network and drivers; the code that ships has no such switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A device answers a write before it has done it.
    EarlyAck,
    /// A device drops one completion.
    DroppedCompletion,
    /// A device writes one block too low.
    WrongPlace,
    /// Commands of closed connections count as drained although they will still be executed: what a
    /// target without the drain at Connect would do.
    NoDrain,
    /// A device calls a flush done that did nothing.
    IgnoredFlush,
    /// The host's driver puts received payloads 16 bytes off.
    ShiftedPayload,
    /// Bits are flipped although no digest protects them.
    UndetectedFlip,
    /// A host repeats a write after a newer one was acknowledged.
    LateReplay,
    /// The target's driver keeps a buffer for ever.
    LeakedBuffer,
    /// The target's driver forgets to report a closed connection.
    ForgottenClose,
    /// The host's driver damages the command that has a lost association ended, so that it names none:
    /// what a host that does not ask would do.
    LivingPredecessor,
}

impl Canary {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::EarlyAck,
        Self::DroppedCompletion,
        Self::WrongPlace,
        Self::NoDrain,
        Self::IgnoredFlush,
        Self::ShiftedPayload,
        Self::UndetectedFlip,
        Self::LateReplay,
        Self::LeakedBuffer,
        Self::ForgottenClose,
        Self::LivingPredecessor,
    ];
}

/// What a world is made of and what happens to it. Every choice that is not fixed here follows from
/// the seed.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    pub name: &'static str,
    /// Most cores of the target.
    pub cores: u64,
    /// Most hosts; each has one or two sessions.
    pub hosts: u64,
    /// Requests of a session.
    pub requests: u64,
    /// Most requests of a session at once.
    pub depth: u64,
    /// Buffer memory of a target core, in regions of 2 MiB.
    pub pool_regions: usize,
    /// Longest usual delay of a piece of a stream; fifty times that happens too.
    pub delay: Duration,
    /// The target's devices.
    pub device: DeviceShape,
    /// Connections that are cut.
    pub cuts: u64,
    /// Whether a cut may leave an end unaware.
    pub half_open: bool,
    /// Whether the network of a session may go silent, so that neither end notices and the target does
    /// not know that a whole association is dead.
    pub silent: bool,
    /// Restarts of the target.
    pub restarts: u64,
    /// Whether a restart may be a power loss, and devices have volatile caches.
    pub crashes: bool,
    /// Bytes that are damaged, on connections with digests.
    pub flips: u64,
    /// Pauses of a core, as of a thread that gets no processor.
    pub pauses: u64,
    /// What is broken on purpose.
    pub canary: Option<Canary>,
}

const QUICK: DeviceShape = DeviceShape {
    time: Duration::from_micros(300),
    slow: Duration::from_millis(20),
    slow_per_mille: 20,
    fails_per_mille: 0,
};

impl Profile {
    /// Nothing breaks: bytes arrive in any pieces, late, and devices answer in any order.
    pub const STREAM: Self = Self {
        name: "stream",
        cores: 3,
        hosts: 3,
        requests: 120,
        depth: 24,
        pool_regions: 8,
        delay: Duration::from_micros(100),
        device: QUICK,
        cuts: 0,
        half_open: false,
        silent: false,
        restarts: 0,
        crashes: false,
        flips: 0,
        pauses: 0,
        canary: None,
    };

    /// Connections break at any byte, in both or one direction, noticed or not; devices are slow.
    pub const CUT: Self = Self {
        name: "cut",
        cuts: 12,
        half_open: true,
        silent: true,
        pauses: 3,
        device: DeviceShape {
            slow: Duration::from_secs(1),
            fails_per_mille: 3,
            ..QUICK
        },
        ..Self::STREAM
    };

    /// The target restarts, also with a power loss that empties volatile caches.
    pub const RESTART: Self = Self {
        name: "restart",
        restarts: 3,
        crashes: true,
        ..Self::STREAM
    };

    /// Bits flip on connections with digests.
    pub const FLIP: Self = Self {
        name: "flip",
        flips: 10,
        ..Self::STREAM
    };

    /// Hardly any buffers for many large requests, and slow devices.
    pub const STARVE: Self = Self {
        name: "starve",
        pool_regions: 2,
        depth: 48,
        device: DeviceShape {
            time: Duration::from_millis(5),
            slow: Duration::from_millis(200),
            ..QUICK
        },
        ..Self::STREAM
    };

    /// Associations that only the host knows to be dead, and devices that take longer than the host
    /// waits: old writes must not land after new ones.
    pub const LATE: Self = Self {
        name: "late",
        cuts: 8,
        half_open: true,
        silent: true,
        depth: 8,
        device: DeviceShape {
            slow: Duration::from_secs(5),
            slow_per_mille: 50,
            ..QUICK
        },
        ..Self::STREAM
    };

    /// All of it.
    pub const ALL_FAULTS: Self = Self {
        name: "all",
        cuts: 6,
        half_open: true,
        silent: true,
        restarts: 1,
        crashes: true,
        flips: 3,
        pauses: 3,
        pool_regions: 2,
        device: Self::CUT.device,
        ..Self::STREAM
    };

    /// Every profile.
    pub const EVERY: [Self; 7] = [
        Self::STREAM,
        Self::CUT,
        Self::RESTART,
        Self::FLIP,
        Self::STARVE,
        Self::LATE,
        Self::ALL_FAULTS,
    ];

    /// The profile of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::EVERY.into_iter().find(|profile| profile.name == name)
    }

    /// The same with something broken.
    pub fn with_canary(self, canary: Canary) -> Self {
        Self {
            canary: Some(canary),
            ..self
        }
    }

    /// Whether anything is done to connections.
    pub(crate) fn disturbs(&self) -> bool {
        self.cuts + self.restarts + self.flips > 0
    }
}
