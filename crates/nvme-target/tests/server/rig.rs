//! A server, and a remote device on a reactor of its own, driven by the test.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ashlar_block::{BlockDevice, BlockRange, Checked, Completion, Durability, IoBuffer, Request};
use ashlar_nvme_initiator::{Remote, RemoteDevice, local_host, url};
use ashlar_nvme_target::server::{CoreDeath, Export, Server, ServerConfig};
use ashlar_nvme_target::{HostAccess, Timeouts};
use ashlar_reactor::{Opener, Options, Reactor, Spin, available_cores};

const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

fn options() -> Options {
    Options {
        spin: Spin::Off,
        ..Options::default()
    }
}

/// A server on up to two cores, without subsystems.
pub fn serve() -> Server {
    serve_or_hold(false)
}

/// The same, on up to so many.
pub fn serve_on(cores: usize) -> Server {
    start(cores, false)
}

/// The same; hosts may have to wait until they are welcome.
pub fn serve_or_hold(hold: bool) -> Server {
    start(2, hold)
}

fn start(cores: usize, hold: bool) -> Server {
    let config = ServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        cores: available_cores().into_iter().take(cores).collect(),
        reactor: options(),
        exports: Vec::new(),
        timeouts: Timeouts::default(),
        hold,
        on_core_death: CoreDeath::Report,
    };
    Server::start(config).expect("serve")
}

pub fn stop(server: Server) {
    server.stopper()();
    server.wait().expect("stopped");
}

pub fn export(nqn: &str, device: Arc<dyn Opener>) -> Export {
    Export {
        nqn: nqn.into(),
        devices: vec![device],
        identities: Vec::new(),
        access: HostAccess::Any,
        advertise: None,
        reservations: Vec::new(),
        shared: None,
    }
}

/// Waits for something that comes by itself.
pub fn eventually(what: &str, mut happens: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happens() {
        assert!(start.elapsed() < EVENT_TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub struct Rig {
    // Dropped before the reactor, so that its last words are sent.
    pub device: Checked<RemoteDevice>,
    pub reactor: Reactor,
    pub done: Vec<Completion>,
}

impl Rig {
    /// Connects; `options` begin with a question mark.
    pub fn connect(server: &Server, nqn: &str, more: &str) -> Result<Self, ashlar_block::IoError> {
        let text = format!("nvme-tcp://{}/{nqn}{more}", server.address());
        let remote = Remote::connect(url::parse(&text, &local_host()).expect("a URL"))?;
        let reactor = Reactor::new(&options()).expect("io_uring");
        let device = Checked::new(remote.open_device(reactor.handle()));
        Ok(Self {
            device,
            reactor,
            done: Vec::new(),
        })
    }

    pub fn buffer(&self, bytes: usize) -> IoBuffer {
        let buffers = self.reactor.handle().buffers();
        buffers.get(bytes).expect("a buffer")
    }

    /// Takes what is there.
    fn poll(&mut self) {
        let now = self.reactor.handle().now();
        self.device.poll(now, &mut self.done);
    }

    /// One turn.
    pub fn turn(&mut self) {
        self.poll();
        let now = self.reactor.handle().now();
        let limit = now + Duration::from_millis(5);
        let own = self.device.next_deadline();
        let deadline = own.map_or(limit, |at| at.min(limit));
        self.reactor.turn(Some(deadline)).expect("turn");
    }

    /// Polls until `count` completions are there.
    pub fn wait(&mut self, count: usize) {
        let start = Instant::now();
        loop {
            self.poll();
            if self.done.len() >= count {
                return;
            }
            assert!(
                start.elapsed() < EVENT_TIMEOUT,
                "{} of {count}",
                self.done.len()
            );
            self.turn();
        }
    }

    pub fn submit_write(&mut self, tag: u64, block: u64, fill: u8) {
        let range = BlockRange::new(block, 1);
        let mut buffer = self.buffer(4096);
        buffer.fill(fill);
        let request = Request::write(tag, range, buffer, Durability::Cached);
        self.device.submit(request);
    }

    pub fn run(&mut self, request: Request) -> Completion {
        self.device.submit(request);
        self.wait(1);
        self.done.pop().expect("one")
    }

    pub fn write(&mut self, block: u64, fill: u8) {
        self.submit_write(1, block, fill);
        self.wait(1);
        self.done.pop().expect("one").result.expect("written");
    }

    pub fn check(&mut self, block: u64, fill: u8) {
        let request = Request::read(2, BlockRange::new(block, 1), self.buffer(4096));
        let completion = self.run(request);
        completion.result.expect("read");
        let buffer = completion.buffer.expect("data");
        assert!(buffer.iter().all(|&byte| byte == fill));
    }
}
