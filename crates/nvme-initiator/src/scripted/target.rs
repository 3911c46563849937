//! For tests: a small target in memory, on whose answers a test can put its finger.

use ashlar_block::Moment;
use ashlar_nvme::command::{DataPointer, DsmRange, opcode};
use ashlar_nvme::event::AsyncEvent;
use ashlar_nvme::fabrics::{Cap, Csts, property};
use ashlar_nvme::feature::fid;
use ashlar_nvme::identify::{
    IdentifyController, IdentifyNamespace, NamespaceIdentity, cns, namespace_list, oncs,
};
use ashlar_nvme::log::{AnaGroup, AnaLog, AnaState, lid};
use ashlar_nvme::reservation::{Registrant, ReservationStatus, ReservationType};
use ashlar_nvme::{Command, Completion, Status};

use super::{Flags, Peer};
use crate::failure::Failure;
use crate::streams::{Streams, Wish};

const BLOCK: usize = 4096;

pub(crate) struct Target {
    pub storage: Vec<u8>,
    pub controller: IdentifyController,
    pub uuid: [u8; 16],
    pub cap: Cap,
    pub connect: Status,
    pub io_connect: Status,
    /// Refuses connections.
    pub down: bool,
    /// Executes I/O commands but does not answer them.
    pub mute: bool,
    /// Leaves I/O commands unexecuted.
    pub stalled: bool,
    /// Answers the next I/O commands with these, without executing them.
    pub refusals: Vec<Status>,
    /// Never becomes ready.
    pub stuck: bool,
    /// Does not answer keep-alives.
    pub deaf: bool,
    /// I/O opcodes executed, in order.
    pub executed: Vec<u8>,
    pub keep_alives: usize,
    pub shutdowns: usize,
    pub connects: Vec<u16>,
    pub event_cid: Option<u16>,
    /// CIU and CIRN, if it has Cross-Controller Reset.
    pub instance: Option<(u8, u64)>,
    /// CDW10, CDW12 and CDW13 of each such command.
    pub resets: Vec<[u32; 3]>,
    /// Answers the next such commands with these; all others are complete at once.
    pub reset_answers: Vec<(Status, u32)>,
    /// Paths by which such commands are not answered yet.
    pub keeps_resets: Vec<usize>,
    /// Streams of a path; the first is an admin queue.
    pub each: usize,
    /// How each path is reached, if the controllers tell (ANA).
    pub paths: Vec<AnaState>,
    /// Paths over which nothing goes.
    pub cut: Vec<usize>,
    /// Paths whose target is stopped: it takes everything, and does nothing.
    pub stopped: Vec<usize>,
    /// The host that holds the reservation.
    pub holder: Option<[u8; 16]>,
    /// Does not answer reports of reservations yet.
    pub keeps_reports: bool,
    /// The path of each I/O command executed, in order.
    pub by: Vec<usize>,
    events: Vec<Option<u16>>,
    /// Features that were set, and that it does not know.
    pub(crate) unknown_features: Vec<u8>,
    cc: u32,
    ready_polls: u32,
}

impl Target {
    pub(crate) fn new(blocks: u64) -> Self {
        let mut controller = IdentifyController::default();
        controller.cntlid.set(5);
        controller.kas.set(10);
        controller.nn.set(8);
        controller.vwc = 1;
        controller.mdts = 5;
        controller
            .oncs
            .set(oncs::DATASET_MANAGEMENT | oncs::WRITE_ZEROES);
        controller.set_in_capsule_bytes(8192);
        controller.maxcmd.set(64);
        Self {
            storage: vec![0; blocks as usize * BLOCK],
            controller,
            uuid: [7; 16],
            cap: Cap::new(128, 2),
            connect: Status::SUCCESS,
            io_connect: Status::SUCCESS,
            down: false,
            mute: false,
            stalled: false,
            refusals: Vec::new(),
            stuck: false,
            deaf: false,
            executed: Vec::new(),
            keep_alives: 0,
            shutdowns: 0,
            connects: Vec::new(),
            event_cid: None,
            instance: None,
            resets: Vec::new(),
            reset_answers: Vec::new(),
            keeps_resets: Vec::new(),
            each: usize::MAX,
            paths: Vec::new(),
            cut: Vec::new(),
            stopped: Vec::new(),
            holder: None,
            keeps_reports: false,
            by: Vec::new(),
            events: vec![None; 4],
            unknown_features: Vec::new(),
            cc: 0,
            ready_polls: 0,
        }
    }

    fn serve(&mut self, stream: usize, peer: &mut Peer) {
        if !self.keeps_reports {
            for cid in std::mem::take(&mut peer.reports) {
                peer.send(cid, 0, &self.report(), Flags::SUCCESS);
            }
        }
        if !self.keeps_resets.contains(&(stream / self.each)) {
            for cid in std::mem::take(&mut peer.resets) {
                let (status, dw0) = self.reset_answers.pop().unwrap_or((Status::SUCCESS, 1));
                peer.answer(&Completion::new(cid, status).with_dw0(dw0));
            }
        }
        // Writes whose data did not come in the capsule: asked for in one piece.
        while let Some((command, data)) = peer.commands.pop_front() {
            let cid = command.cid.get();
            match command.data() {
                DataPointer::Transport { length } if wants_data(&command) => {
                    peer.r2t(cid, 0, length);
                    peer.pending.push((command, Vec::new(), length as usize));
                }
                _ => self.execute(stream, peer, &command, &data),
            }
        }
        while let Some((header, bytes)) = peer.data.pop_front() {
            let at = peer
                .pending
                .iter()
                .position(|(c, ..)| c.cid.get() == header.cid);
            let at = at.expect("data for a pending write");
            peer.pending[at].1.extend(bytes);
            if peer.pending[at].1.len() == peer.pending[at].2 {
                let (command, data, _) = peer.pending.remove(at);
                self.execute(stream, peer, &command, &data);
            }
        }
    }

    fn execute(&mut self, stream: usize, peer: &mut Peer, command: &Command, data: &[u8]) {
        if command.is_fabrics() {
            let answer = self.fabrics(command);
            peer.answer(&answer);
        } else if stream.is_multiple_of(self.each) {
            self.admin(stream / self.each, peer, command);
        } else if command.opcode == opcode::io::RESERVATION_REPORT {
            peer.reports.push(command.cid.get());
        } else if !self.stalled {
            self.by.push(stream / self.each);
            self.io(peer, command, data);
        }
    }

    fn fabrics(&mut self, command: &Command) -> Completion {
        let cid = command.cid.get();
        let ok = Completion::new(cid, Status::SUCCESS);
        match command.fctype() {
            opcode::fabrics::CONNECT => {
                self.connects.push(command.connect_parameters().qid);
                let io = command.connect_parameters().qid > 0;
                let status = if io { self.io_connect } else { self.connect };
                if !status.is_success() {
                    return Completion::new(cid, status);
                }
                Completion::connected(cid, 5)
            }
            opcode::fabrics::PROPERTY_SET => {
                self.cc = command.property_value() as u32;
                self.ready_polls = 0;
                self.shutdowns += usize::from(self.cc >> 14 & 3 == 1);
                ok
            }
            opcode::fabrics::PROPERTY_GET => ok.with_result(match command.property_offset() {
                property::CAP => self.cap.0,
                property::VS => u64::from(property::version(1, 4, 0)),
                property::CC => u64::from(self.cc),
                _ => u64::from(self.status()),
            }),
            other => panic!("fabrics command {other:#x}"),
        }
    }

    /// Ready, and shut down, at the second look.
    fn status(&mut self) -> u32 {
        self.ready_polls += 1;
        if self.stuck || self.ready_polls < 2 {
            return 0;
        }
        let down = if self.cc >> 14 & 3 == 1 {
            Csts::SHUTDOWN_COMPLETE
        } else {
            0
        };
        Csts::READY | down
    }

    fn admin(&mut self, path: usize, peer: &mut Peer, command: &Command) {
        let cid = command.cid.get();
        match command.opcode {
            opcode::admin::IDENTIFY => {
                let page = self.identify(command);
                peer.send(cid, 0, &page, Flags::SUCCESS);
            }
            opcode::admin::KEEP_ALIVE => {
                self.keep_alives += 1;
                if !self.deaf {
                    peer.complete(cid, Status::SUCCESS);
                }
            }
            opcode::admin::ASYNC_EVENT_REQUEST => {
                self.event_cid = Some(cid);
                self.events[path] = Some(cid);
            }
            opcode::admin::GET_LOG_PAGE => {
                let asked = command.log_page_parameters();
                let mut page = match asked.lid == lid::ANA {
                    true => self.ana_log(path),
                    false => Vec::new(),
                };
                page.resize(asked.bytes as usize, 0);
                peer.send(cid, 0, &page, Flags::SUCCESS);
            }
            // Vendor specific ones are not known.
            opcode::admin::SET_FEATURES if command.feature_id() >= fid::HERE_ONLY => {
                self.unknown_features.push(command.feature_id());
                peer.answer(&Completion::new(cid, Status::INVALID_FIELD.with_dnr()));
            }
            // Number of Queues: four of each.
            opcode::admin::SET_FEATURES => {
                peer.answer(&Completion::new(cid, Status::SUCCESS).with_dw0(0x0003_0003));
            }
            // Cross-Controller Reset.
            0x38 => {
                let words = [command.cdw10, command.cdw12, command.cdw13];
                self.resets.push(words.map(|word| word.get()));
                peer.resets.push(cid);
            }
            other => panic!("admin command {other:#x}"),
        }
    }

    /// As long as hosts ask for.
    fn report(&self) -> Vec<u8> {
        let holder = self.holder.map(|host| Registrant {
            host,
            key: 1,
            holds: true,
        });
        let status = ReservationStatus {
            generation: 1,
            kind: Some(ReservationType::WriteExclusive),
            is_persistent: false,
            registrants: holder.into_iter().collect(),
        };
        let mut page = status.to_page();
        page.resize(12 << 10, 0);
        page
    }

    fn ana_log(&self, path: usize) -> Vec<u8> {
        let group = AnaGroup {
            id: 1,
            change_count: 1,
            // A target whose answers are damaged on the way may be asked although it has no paths.
            state: *self.paths.get(path).unwrap_or(&AnaState::Optimized),
            namespaces: vec![3],
        };
        let log = AnaLog {
            change_count: 1,
            groups: vec![group],
        };
        log.to_page()
    }

    fn identify(&self, command: &Command) -> Vec<u8> {
        match command.identify_parameters().cns {
            cns::CONTROLLER => {
                let mut page = self.controller.as_wire().to_vec();
                if let Some((uniquifier, number)) = self.instance {
                    (page[135], page[1807]) = (uniquifier, 1);
                    page[136..144].copy_from_slice(&number.to_le_bytes());
                }
                page
            }
            cns::ACTIVE_NAMESPACES => namespace_list([3, 4], command.nsid.get()),
            cns::NAMESPACE => {
                let blocks = (self.storage.len() / BLOCK) as u64;
                IdentifyNamespace::of_blocks(blocks, 12).as_wire().to_vec()
            }
            cns::NAMESPACE_DESCRIPTORS => {
                let identity = NamespaceIdentity {
                    uuid: Some(self.uuid),
                    ..NamespaceIdentity::default()
                };
                identity.to_page()
            }
            other => panic!("identify {other:#x}"),
        }
    }

    fn io(&mut self, peer: &mut Peer, command: &Command, data: &[u8]) {
        let cid = command.cid.get();
        if let Some(status) = self.refusals.pop() {
            return peer.complete(cid, status);
        }
        self.executed.push(command.opcode);
        let from = command.slba() as usize * BLOCK;
        let to = from + command.blocks() as usize * BLOCK;
        match command.opcode {
            opcode::io::READ if !self.mute => {
                let bytes = self.storage[from..to].to_vec();
                return peer.send(cid, 0, &bytes, Flags::SUCCESS);
            }
            opcode::io::WRITE => self.storage[from..to].copy_from_slice(data),
            opcode::io::WRITE_ZEROES => self.storage[from..to].fill(0),
            opcode::io::DATASET_MANAGEMENT => {
                let range = DsmRange::parse(data).expect("a range");
                let from = range.slba.get() as usize * BLOCK;
                let to = from + range.blocks.get() as usize * BLOCK;
                self.storage[from..to].fill(0);
            }
            _ => {}
        }
        if !self.mute {
            peer.complete(cid, Status::SUCCESS);
        }
    }
}

fn wants_data(command: &Command) -> bool {
    use opcode::{Direction, direction};
    !command.is_fabrics()
        && direction(command.opcode) == Direction::ToController
        && !matches!(command.data(), DataPointer::Transport { length: 0 })
}

/// The target and the wires to it.
pub(crate) struct World {
    pub target: Target,
    pub now: Moment,
    pub peers: Vec<Option<Peer>>,
    /// Bytes of each answer that are changed on the way: where, and by what.
    pub flips: Vec<(usize, u8)>,
}

impl World {
    pub(crate) fn new(blocks: u64) -> Self {
        Self {
            target: Target::new(blocks),
            now: Moment::ORIGIN,
            peers: Vec::new(),
            flips: Vec::new(),
        }
    }

    /// One round of everything; true if anything moved.
    pub(crate) fn round(&mut self, streams: &mut impl Streams) -> bool {
        self.peers
            .resize_with(streams.streams().max(self.peers.len()), || None);
        let mut moved = false;
        for at in 0..self.peers.len() {
            moved |= match streams.wish(at) {
                Wish::Open if self.target.down || self.is_cut(at) => {
                    streams.lost(at, Failure::Network("connection refused".into()));
                    true
                }
                Wish::Open => {
                    self.peers[at] = Some(Peer::new());
                    streams.opened(self.now, at);
                    true
                }
                Wish::Close => {
                    self.carry(streams, at);
                    self.peers[at] = None;
                    streams.closed(at);
                    true
                }
                Wish::None => self.carry(streams, at),
            };
        }
        moved
    }

    fn carry(&mut self, streams: &mut impl Streams, at: usize) -> bool {
        let Some(peer) = &mut self.peers[at] else {
            return false;
        };
        let mut out = ashlar_block::Gather::default();
        streams.transmit(at, &mut out);
        let sent: Vec<u8> = out.chunks().flatten().copied().collect();
        peer.feed(&sent);
        streams.sent(at, &mut out);
        if self.target.stopped.contains(&(at / self.target.each)) {
            return !sent.is_empty();
        }
        self.target.serve(at, peer);
        let mut back = peer.take();
        for (at, by) in &self.flips {
            if let Some(byte) = back.get_mut(*at) {
                *byte ^= by;
            }
        }
        if !back.is_empty() {
            streams.receive(at, &back);
        }
        !sent.is_empty() || !back.is_empty()
    }

    fn is_cut(&self, stream: usize) -> bool {
        self.target.cut.contains(&(stream / self.target.each))
    }

    /// A path is reached otherwise from now on; the host is told.
    pub(crate) fn turn(&mut self, path: usize, state: AnaState) {
        self.target.paths[path] = state;
        let told = self.target.events[path].take();
        if let (Some(cid), Some(peer)) = (told, &mut self.peers[path * self.target.each]) {
            let event = AsyncEvent::AnaChange.dw0();
            peer.answer(&Completion::new(cid, Status::SUCCESS).with_dw0(event));
        }
    }

    /// Breaks the connections of one path, which stays away.
    pub(crate) fn cut_path(&mut self, streams: &mut impl Streams, path: usize) {
        self.target.cut.push(path);
        for at in 0..self.peers.len() {
            if at / self.target.each == path && self.peers[at].take().is_some() {
                streams.lost(at, Failure::Closed);
            }
        }
    }

    /// Breaks every connection.
    pub(crate) fn cut(&mut self, streams: &mut impl Streams) {
        for at in 0..self.peers.len() {
            if self.peers[at].take().is_some() {
                streams.lost(at, Failure::Closed);
            }
        }
    }
}
