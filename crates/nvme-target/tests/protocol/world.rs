//! Drives cores the way the server does, without sockets: bytes in vectors, time in a variable.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ashlar_block::{BlockSize, BufferPool, Gather, Geometry, IoBuffer, Moment};
use ashlar_nvme_target::{
    Action, ConnectionId, Core, Ends, HostAccess, Listing, NamespaceConfig, Notice, Reservations,
    Shared, SubsystemConfig, Target, Timeouts,
};
use uuid::Uuid;

use crate::disk::Disk;

pub const NQN: &str = "nqn.2024-01.com.example:disks";
pub const HOST: &str = "nqn.2024-01.com.example:host";

/// More actions than this without new input: the core is asking for the same thing for ever.
const MOST_ACTIONS: usize = 100_000;

/// One TCP connection, seen from the network.
pub struct Wire {
    core: usize,
    id: Option<ConnectionId>,
    /// Sent by the host, not yet taken by the target.
    input: Vec<u8>,
    /// Sent by the target.
    pub output: Vec<u8>,
    /// Whether the host takes what the target sends.
    pub reading: bool,
    batch: Option<Gather>,
    moving: Option<usize>,
    /// Most bytes that the target receives at once.
    pub chunk: usize,
}

impl Wire {
    pub fn is_closed(&self) -> bool {
        self.id.is_none()
    }

    pub fn core(&self) -> usize {
        self.core
    }

    /// Bytes that the host has sent and the target has left in the socket.
    pub fn unread(&self) -> usize {
        self.input.len()
    }
}

pub struct World {
    pub target: Arc<Target>,
    pub cores: Vec<Core>,
    pub pools: Vec<BufferPool>,
    pub wires: Vec<Wire>,
    pub now: Moment,
    pub local: SocketAddr,
    /// Where I/O queues are placed.
    pub io_core: usize,
    /// How many times the target has asked where to place a connection.
    pub placements: usize,
}

/// What a world is made of.
pub struct Plan {
    pub disks: Vec<Disk>,
    pub cores: usize,
    pub pool_bytes: usize,
    pub access: HostAccess,
    pub advertise: Option<SocketAddr>,
    pub shared: Option<Shared>,
    /// Of every namespace.
    pub reservations: Option<Reservations>,
    pub timeouts: Timeouts,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            disks: vec![Disk::plain(BlockSize::B4096, 1024)],
            cores: 1,
            pool_bytes: 64 << 20,
            access: HostAccess::Any,
            advertise: None,
            shared: None,
            reservations: None,
            timeouts: Timeouts::default(),
        }
    }
}

fn namespace(index: usize, disk: &Disk) -> NamespaceConfig {
    let geometry: Geometry = disk.geometry();
    NamespaceConfig {
        geometry,
        uuid: Uuid::from_u128(0xa5_0000_0001 + index as u128),
        reservations: None,
    }
}

/// A subsystem over these disks.
pub fn subsystem(nqn: &str, disks: &[Disk], access: &HostAccess) -> SubsystemConfig {
    let numbered = disks.iter().enumerate();
    SubsystemConfig {
        nqn: nqn.into(),
        namespaces: numbered
            .map(|(index, disk)| namespace(index, disk))
            .collect(),
        access: access.clone(),
        advertise: None,
        shared: None,
    }
}

impl World {
    pub fn new(plan: &Plan) -> Self {
        let mut subsystem = SubsystemConfig {
            advertise: plan.advertise,
            shared: plan.shared.clone(),
            ..subsystem(NQN, &plan.disks, &plan.access)
        };
        for namespace in &mut subsystem.namespaces {
            namespace.reservations = plan.reservations.clone();
        }
        // Without disks there is no subsystem.
        let has_disks = !plan.disks.is_empty();
        let subsystems = Some(subsystem).filter(|_| has_disks).into_iter().collect();
        let target = Arc::new(Target::new(subsystems, plan.timeouts).expect("valid"));
        let pools: Vec<_> = (0..plan.cores)
            .map(|_| BufferPool::new(plan.pool_bytes))
            .collect();
        let core = |pool: &BufferPool| {
            let devices = plan.disks.iter().map(Disk::queue).collect();
            Core::new(target.clone(), devices, pool.clone())
        };
        Self {
            target: target.clone(),
            cores: pools.iter().map(core).collect(),
            pools,
            wires: Vec::new(),
            now: Moment::from_nanos(1_000_000_000),
            local: SocketAddr::from(([127, 0, 0, 1], 4420)),
            io_core: plan.cores - 1,
            placements: 0,
        }
    }

    /// Tells every core.
    pub fn tell(&mut self, notices: &[Notice]) {
        for core in &mut self.cores {
            notices.iter().for_each(|&notice| core.notice(notice));
        }
        self.settle();
    }

    /// Adds a subsystem the way the server does.
    pub fn add(&mut self, nqn: &str, disks: &[Disk]) {
        let config = subsystem(nqn, disks, &HostAccess::Any);
        let listing = self.target.prepare(config).expect("a free name");
        self.attach(&listing.devices(), disks);
        self.target.admit(&listing).expect("still free");
        self.tell(&[Notice::Events]);
    }

    /// Opens the disks anew on every core.
    pub fn attach(&mut self, numbers: &[usize], disks: &[Disk]) {
        for core in &mut self.cores {
            for (&number, disk) in numbers.iter().zip(disks) {
                core.attach(number, disk.queue());
            }
        }
    }

    /// Removes a subsystem the way the server does, as far as that goes without waiting.
    pub fn expel(&mut self, nqn: &str) -> Listing {
        let listing = self.target.expel(nqn).expect("it is there");
        self.tell(&[Notice::Reap, Notice::Events]);
        for core in &mut self.cores {
            listing.devices().iter().for_each(|&n| core.detach(n));
        }
        self.settle();
        listing
    }

    /// Whether no core has anything left of it.
    pub fn is_clear_of(&self, listing: &Listing) -> bool {
        self.cores.iter().all(|core| core.is_clear_of(listing))
    }

    /// A new TCP connection.
    pub fn dial(&mut self) -> usize {
        self.dial_from([10, 0, 0, 2].into())
    }

    /// A new TCP connection from this address.
    pub fn dial_from(&mut self, remote: IpAddr) -> usize {
        let local = self.local;
        let ends = Ends { local, remote };
        let id = self.cores[0].accept(self.now, ends);
        self.wires.push(Wire {
            core: 0,
            id: Some(id),
            input: Vec::new(),
            output: Vec::new(),
            reading: true,
            batch: None,
            moving: None,
            chunk: usize::MAX,
        });
        self.wires.len() - 1
    }

    /// The host sends bytes; they arrive at the next [`settle`](Self::settle).
    pub fn push(&mut self, wire: usize, bytes: &[u8]) {
        self.wires[wire].input.extend_from_slice(bytes);
    }

    /// The host closes its socket.
    pub fn hang_up(&mut self, wire: usize) {
        self.close(wire);
        self.settle();
    }

    /// Lets time pass, with the ticks that it brings.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now = (self.now + Duration::from_millis(500)).min(end);
            self.settle();
        }
    }

    /// The cores are stopped for so long, and look at the clock before they read what has come.
    pub fn oversleep(&mut self, time: Duration) {
        self.now = self.now + time;
        self.turn();
    }

    /// Moves bytes and does what the cores ask for until nothing moves any more.
    pub fn settle(&mut self) {
        let mut actions = 0;
        loop {
            let mut moved = false;
            for wire in 0..self.wires.len() {
                moved |= self.deliver(wire);
                moved |= self.drain(wire);
            }
            let acted = self.turn();
            actions += acted;
            assert!(actions < MOST_ACTIONS, "spins");
            if !moved && acted == 0 {
                return;
            }
        }
    }

    /// A turn of every core; how many actions they asked for.
    fn turn(&mut self) -> usize {
        let mut actions = 0;
        for core in 0..self.cores.len() {
            self.cores[core].poll(self.now);
            while let Some(action) = self.cores[core].next_action() {
                actions += 1;
                assert!(actions < MOST_ACTIONS, "spins on {action:?}");
                self.act(core, action);
            }
        }
        actions
    }

    fn wire_of(&self, core: usize, id: ConnectionId) -> Option<usize> {
        self.wires
            .iter()
            .position(|w| w.core == core && w.id == Some(id))
    }

    fn act(&mut self, core: usize, action: Action) {
        match action {
            Action::Attend(id) => {
                self.cores[core].attended(id);
                if let Some(wire) = self.wire_of(core, id) {
                    self.attend(wire);
                }
            }
            Action::Place(id, placing) => {
                self.placements += 1;
                let to = match placing.queue {
                    0 => 0,
                    _ => placing.only.unwrap_or(self.io_core),
                };
                let wire = self.wire_of(core, id).expect("placed connections exist");
                if to == core {
                    return self.cores[core].connect(self.now, id);
                }
                self.wires[wire].moving = Some(to);
                if self.wires[wire].batch.is_none() {
                    self.hand_over(wire);
                }
            }
            Action::Close(id) => {
                if let Some(wire) = self.wire_of(core, id) {
                    self.close(wire);
                }
            }
            Action::Notify(notice) => {
                let now = self.now;
                self.cores.iter_mut().for_each(|core| {
                    core.notice(notice);
                    core.poll(now);
                });
            }
        }
    }

    fn attend(&mut self, wire: usize) {
        let Wire {
            core, id: Some(id), ..
        } = self.wires[wire]
        else {
            return;
        };
        if self.wires[wire].batch.is_none() {
            let mut batch = Gather::default();
            if self.cores[core].take_output(id, &mut batch) {
                self.wires[wire].batch = Some(batch);
            }
        }
        if self.cores[core].is_finished(id) {
            return self.close(wire);
        }
        self.receive(wire, &[]);
    }

    fn receive(&mut self, wire: usize, bytes: &[u8]) -> usize {
        let Wire {
            core, id: Some(id), ..
        } = self.wires[wire]
        else {
            return 0;
        };
        let mut input = bytes;
        self.cores[core].receive(self.now, id, &mut input);
        bytes.len() - input.len()
    }

    /// The target receives what it is willing to.
    fn deliver(&mut self, wire: usize) -> bool {
        let Wire {
            core,
            id: Some(id),
            moving: None,
            ..
        } = self.wires[wire]
        else {
            return false;
        };
        if self.wires[wire].input.is_empty() || !self.cores[core].accepts_input(id) {
            return false;
        }
        let direct = self.cores[core].direct(id);
        let mut input = std::mem::take(&mut self.wires[wire].input);
        let limit = input.len().min(self.wires[wire].chunk);
        let placed = match direct {
            Some((buffer, range)) => self.place(wire, buffer, range, &input[..limit]),
            None => 0,
        };
        let taken = placed + self.receive(wire, &input[placed..limit]);
        input.drain(..taken);
        self.wires[wire].input = input;
        taken > 0
    }

    /// Receives straight into a payload's buffer.
    fn place(
        &mut self,
        wire: usize,
        mut buffer: IoBuffer,
        range: std::ops::Range<usize>,
        input: &[u8],
    ) -> usize {
        let Wire {
            core, id: Some(id), ..
        } = self.wires[wire]
        else {
            return 0;
        };
        let bytes = range.len().min(input.len());
        buffer[range][..bytes].copy_from_slice(&input[..bytes]);
        self.cores[core].direct_done(id, buffer, bytes);
        bytes
    }

    /// The host takes what is in flight.
    fn drain(&mut self, wire: usize) -> bool {
        let at = &mut self.wires[wire];
        let Wire {
            core,
            id: Some(id),
            reading: true,
            ..
        } = *at
        else {
            return false;
        };
        let Some(batch) = at.batch.take() else {
            return false;
        };
        batch
            .chunks()
            .for_each(|chunk| at.output.extend_from_slice(chunk));
        drop(batch);
        self.cores[core].sent(self.now, id);
        if self.wires[wire].moving.is_some() {
            self.hand_over(wire);
        }
        true
    }

    fn hand_over(&mut self, wire: usize) {
        let Wire {
            core,
            id: Some(id),
            moving: Some(to),
            ..
        } = self.wires[wire]
        else {
            return;
        };
        let handoff = self.cores[core].hand_off(id).expect("it is there");
        let id = self.cores[to].adopt(self.now, handoff);
        let at = &mut self.wires[wire];
        (at.core, at.id, at.moving) = (to, Some(id), None);
    }

    fn close(&mut self, wire: usize) {
        let Some(id) = self.wires[wire].id.take() else {
            return;
        };
        self.wires[wire].batch = None;
        let core = self.wires[wire].core;
        self.cores[core].closed(id);
    }

    /// Buffer bytes out of the pools.
    pub fn outstanding(&self) -> usize {
        self.pools.iter().map(BufferPool::outstanding_bytes).sum()
    }

    pub fn connections(&self) -> usize {
        self.cores.iter().map(Core::connections).sum()
    }
}
