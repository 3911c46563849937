//! One core of a target without a network: bytes in, bytes out, at once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ashlar_block::{BlockDevice, BufferPool, Gather, Geometry, Moment, REGION_BYTES};
use ashlar_nvme_target::{
    Action, ConnectionId, Core, Ends, HostAccess, NamespaceConfig, SubsystemConfig, Target,
    Timeouts,
};
use uuid::Uuid;

use crate::chance::Chance;
use crate::medium::{Medium, Shared, SimDevice};
use crate::profile::DeviceShape;

/// A target on a bench. See the module's documentation.
pub struct Bench {
    core: Core,
    pool: BufferPool,
    medium: Shared,
    now: Moment,
    /// What was sent on each connection.
    output: BTreeMap<ConnectionId, Vec<u8>>,
    /// Bytes that connections do not take yet.
    waiting: BTreeMap<ConnectionId, Vec<u8>>,
    closed: Vec<ConnectionId>,
}

impl Bench {
    /// A target with the subsystem `nqn` and one zeroed namespace of this shape, with the UUID that
    /// `ashlar serve` would give it. `run` is what [`Target::with_run`] takes; discovery tells the
    /// address 10.0.2.2:4420.
    ///
    /// # Panics
    /// If the NQN is not one.
    pub fn new(nqn: &str, geometry: Geometry, run: u64) -> Self {
        let shape = DeviceShape {
            time: Duration::ZERO,
            slow: Duration::ZERO,
            slow_per_mille: 0,
            fails_per_mille: 0,
        };
        let medium = Medium::new(geometry, shape, None);
        let subsystem = SubsystemConfig {
            nqn: nqn.into(),
            namespaces: vec![NamespaceConfig {
                geometry,
                uuid: Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("{nqn}#1").as_bytes()),
                reservations: None,
            }],
            access: HostAccess::Any,
            advertise: Some(SocketAddr::from(([10, 0, 2, 2], 4420))),
            shared: None,
        };
        let target = match Target::new(vec![subsystem], Timeouts::default()) {
            Ok(target) => Arc::new(target.with_run(run)),
            Err(error) => panic!("{error}"),
        };
        let pool = BufferPool::new(REGION_BYTES);
        let device = SimDevice::new(medium.clone(), 0, Chance::new(1));
        let devices: Vec<Box<dyn BlockDevice>> = vec![Box::new(device)];
        Self {
            core: Core::new(target, devices, pool.clone()),
            pool,
            medium,
            now: Moment::ORIGIN,
            output: BTreeMap::new(),
            waiting: BTreeMap::new(),
            closed: Vec::new(),
        }
    }

    /// A new connection.
    pub fn accept(&mut self) -> ConnectionId {
        let ends = Ends {
            local: SocketAddr::from(([127, 0, 0, 1], 4420)),
            remote: [127, 0, 0, 1].into(),
        };
        let id = self.core.accept(self.now, ends);
        self.closed.retain(|&other| other != id);
        self.output.insert(id, Vec::new());
        self.waiting.insert(id, Vec::new());
        id
    }

    /// Bytes arrive on a connection, and everything that follows from them happens.
    pub fn receive(&mut self, id: ConnectionId, bytes: &[u8]) {
        if !self.closed.contains(&id) {
            self.waiting.entry(id).or_default().extend_from_slice(bytes);
        }
        self.settle();
    }

    /// Time passes.
    pub fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.settle();
    }

    /// The host closes the connection.
    pub fn close(&mut self, id: ConnectionId) {
        if !self.closed.contains(&id) {
            self.closed.push(id);
            self.waiting.remove(&id);
            self.core.closed(id);
        }
        self.settle();
    }

    /// Whether the target has closed the connection.
    pub fn is_closed(&self, id: ConnectionId) -> bool {
        self.closed.contains(&id)
    }

    /// What was sent on a connection since the last call.
    pub fn output(&mut self, id: ConnectionId) -> Vec<u8> {
        self.output
            .get_mut(&id)
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Closes everything and panics unless nothing is left.
    ///
    /// # Panics
    /// If a connection, a request or a buffer is left.
    pub fn finish(mut self) {
        let open: Vec<ConnectionId> = self.output.keys().copied().collect();
        open.into_iter().for_each(|id| self.close(id));
        self.pass(Duration::from_secs(1));
        assert_eq!(self.core.connections(), 0, "connections are left");
        assert_eq!(
            self.medium.borrow().outstanding,
            0,
            "device requests are left"
        );
        assert_eq!(self.pool.outstanding_bytes(), 0, "buffers are left");
    }

    fn settle(&mut self) {
        loop {
            let mut news = false;
            let ids: Vec<ConnectionId> = self.waiting.keys().copied().collect();
            for id in ids {
                news |= self.feed(id);
            }
            self.core.poll(self.now);
            while let Some(action) = self.core.next_action() {
                news |= self.act(action);
            }
            if !news {
                return;
            }
        }
    }

    fn feed(&mut self, id: ConnectionId) -> bool {
        let Some(bytes) = self.waiting.get_mut(&id).filter(|bytes| !bytes.is_empty()) else {
            return false;
        };
        if !self.core.accepts_input(id) {
            return false;
        }
        let mut input = &bytes[..];
        self.core.receive(self.now, id, &mut input);
        let taken = bytes.len() - input.len();
        bytes.drain(..taken);
        taken > 0
    }

    fn act(&mut self, action: Action) -> bool {
        match action {
            Action::Attend(id) => {
                self.core.attended(id);
                let mut batch = Gather::default();
                let sent = self.core.take_output(id, &mut batch);
                if sent {
                    let output = self.output.entry(id).or_default();
                    batch
                        .chunks()
                        .for_each(|chunk| output.extend_from_slice(chunk));
                    self.core.sent(self.now, id);
                }
                let finished = self.core.is_finished(id);
                if finished {
                    self.closed_by_target(id);
                }
                return sent || finished;
            }
            Action::Place(id, _) => self.core.connect(self.now, id),
            Action::Close(id) => self.closed_by_target(id),
            Action::Notify(notice) => self.core.notice(notice),
        }
        true
    }

    fn closed_by_target(&mut self, id: ConnectionId) {
        if !self.closed.contains(&id) {
            self.closed.push(id);
            self.waiting.remove(&id);
            self.core.closed(id);
        }
    }
}
