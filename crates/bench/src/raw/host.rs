//! Bring-up: an admin queue, a controller, one I/O queue.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ashlar_nvme::Command;
use ashlar_nvme::command::{Identify, SglDescriptor};
use ashlar_nvme::fabrics::{CNTLID_DYNAMIC, Cap, Cc, Connect, ConnectData, Csts, property};
use ashlar_nvme::identify::{IdentifyController, IdentifyNamespace, cns};
use ashlar_nvme::stream::Receiver;

use super::Load;
use super::link::Link;
use super::load::Target;
use crate::failure::Failure;

/// Entries of the I/O queue: one more than the deepest load.
const IO_ENTRIES: u16 = 129;
const ADMIN_ENTRIES: u16 = 32;
const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// A connected host with a controller of its own.
pub(crate) struct Host {
    admin: Link,
    io: Option<Link>,
    target: Target,
}

/// A connected I/O queue, without anything that was received and not taken.
pub(crate) struct Queue {
    pub(crate) stream: TcpStream,
    pub(crate) receiver: Receiver,
    pub(crate) target: Target,
}

impl Host {
    /// The name of host number `number`.
    pub(crate) fn nqn(number: u8) -> String {
        format!("nqn.2026-11.io.ashlar:bench-host-{number}")
    }

    /// Connects to `nqn` as host number `number`. With `keep_alive`, silence for that long ends the
    /// association; without, it may last.
    pub(crate) fn connect(
        address: SocketAddr,
        nqn: &str,
        number: u8,
        keep_alive: Option<Duration>,
    ) -> Result<Self, Failure> {
        let hostnqn = Self::nqn(number);
        let hostid = [number.wrapping_add(1); 16];
        let mut admin = Link::open(address)?;
        let parameters = Connect {
            record_format: 0,
            qid: 0,
            sqsize: ADMIN_ENTRIES - 1,
            attributes: 0,
            keep_alive_ms: keep_alive.map_or(0, |time| time.as_millis() as u32),
        };
        let data = ConnectData::new(hostid, CNTLID_DYNAMIC, nqn, &hostnqn);
        let connected = admin.call("Connect", Command::connect(parameters), data.as_wire())?;
        let cntlid = connected.completion.connected_cntlid();
        enable(&mut admin)?;
        let target = identify(&mut admin)?;
        let mut io = Link::open(address)?;
        let parameters = Connect {
            qid: 1,
            sqsize: IO_ENTRIES - 1,
            keep_alive_ms: 0,
            ..parameters
        };
        let data = ConnectData::new(hostid, cntlid, nqn, &hostnqn);
        io.call(
            "Connect of the I/O queue",
            Command::connect(parameters),
            data.as_wire(),
        )?;
        Ok(Self {
            admin,
            io: Some(io),
            target,
        })
    }

    /// Tells the target that this host is alive.
    pub(crate) fn keep_alive(&mut self) -> Result<(), Failure> {
        self.admin
            .call("Keep Alive", Command::keep_alive(), &[])
            .map(|_| ())
    }

    /// The I/O queue, to be loaded; once.
    pub(crate) fn load(&mut self) -> Result<Load, Failure> {
        let Queue {
            stream,
            receiver,
            target,
        } = self.queue()?;
        Load::new(stream, receiver, target)
    }

    /// The I/O queue itself; once.
    pub(crate) fn queue(&mut self) -> Result<Queue, Failure> {
        let io = self.io.take().filter(Link::is_clean);
        let io = io.ok_or_else(|| Failure::environment("the I/O queue is in use"))?;
        Ok(Queue {
            stream: io.stream,
            receiver: io.receiver,
            target: self.target,
        })
    }
}

fn enable(admin: &mut Link) -> Result<(), Failure> {
    let get = |admin: &mut Link, offset, wide| {
        let command = Command::property_get(offset, wide);
        let answer = admin.call("Property Get", command, &[])?;
        Ok(answer.completion.result())
    };
    let cap = Cap(get(admin, property::CAP, true)?);
    if cap.max_queue_entries() < u32::from(IO_ENTRIES) {
        return Err(Failure::environment(format!(
            "the target's queues have {} entries, {IO_ENTRIES} are needed",
            cap.max_queue_entries()
        )));
    }
    let enabled = Command::property_set(property::CC, false, u64::from(Cc::ENABLED.0));
    admin.call("Property Set", enabled, &[])?;
    let give_up = Instant::now() + READY_TIMEOUT;
    while !Csts(get(admin, property::CSTS, false)? as u32).ready() {
        if Instant::now() > give_up {
            return Err(Failure::environment("the controller does not become ready"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn identify(admin: &mut Link) -> Result<Target, Failure> {
    let page = |admin: &mut Link, nsid, cns| {
        let parameters = Identify {
            cns,
            ..Identify::default()
        };
        let mut command = Command::identify(nsid, parameters);
        command = command.with_data(SglDescriptor::transport(4096));
        admin
            .call("Identify", command, &[])
            .map(|answer| answer.data)
    };
    let short = || Failure::environment("Identify: too little data");
    let controller = page(admin, 0, cns::CONTROLLER)?;
    let controller = IdentifyController::parse(&controller).ok_or_else(short)?;
    let namespace = page(admin, 1, cns::NAMESPACE)?;
    let namespace = IdentifyNamespace::parse(&namespace).ok_or_else(short)?;
    let block_bytes = namespace.block_bytes().filter(|&bytes| bytes > 0);
    Ok(Target {
        nsid: 1,
        block_bytes: block_bytes.ok_or_else(|| Failure::environment("namespace 1: no format"))?,
        blocks: namespace.nsze.get(),
        in_capsule_bytes: controller.in_capsule_bytes(),
    })
}
