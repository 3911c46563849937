//! One connection of a host, blocking, one command at a time: what bring-up needs.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ashlar_nvme::pdu::{self, Digests, Fatal, Framing, IcReq, Role};
use ashlar_nvme::stream::{Header, Limits, Receiver, Step};
use ashlar_nvme::{Command, Completion, Status};

use crate::failure::Failure;

/// How long a target may take to answer.
const TARGET_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection after the ICReq and ICResp handshake, without digests.
pub(super) struct Link {
    pub(super) stream: TcpStream,
    pub(super) receiver: Receiver,
    /// Received and not yet taken.
    input: Vec<u8>,
    next_cid: u16,
}

/// What a command brought back.
pub(super) struct Answer {
    pub(super) completion: Completion,
    pub(super) data: Vec<u8>,
}

impl Link {
    /// Connects and shakes hands.
    pub(super) fn open(address: SocketAddr) -> Result<Self, Failure> {
        let io = |error| Failure::environment(format!("{address}: {error}"));
        let stream = TcpStream::connect_timeout(&address, TARGET_TIMEOUT).map_err(io)?;
        stream.set_nodelay(true).map_err(io)?;
        stream.set_read_timeout(Some(TARGET_TIMEOUT)).map_err(io)?;
        stream.set_write_timeout(Some(TARGET_TIMEOUT)).map_err(io)?;
        let mut link = Self {
            stream,
            receiver: Receiver::new(Role::Host, Limits::default()),
            input: Vec::new(),
            next_cid: 0,
        };
        let request = IcReq::default();
        let mut out = Vec::new();
        request.encode(&mut out);
        link.send(&out)?;
        link.receive(|header, _| match header {
            Header::IcResp(response) => Some(response.grants(&request)),
            _ => Some(false),
        })?
        .then_some(())
        .ok_or_else(|| Failure::environment(format!("{address}: no NVMe/TCP target")))?;
        link.receiver.open(Digests::NONE);
        Ok(link)
    }

    /// Sends a command with `data` in its capsule and waits for its success.
    pub(super) fn call(
        &mut self,
        what: &str,
        command: Command,
        data: &[u8],
    ) -> Result<Answer, Failure> {
        let cid = self.next_cid;
        self.next_cid = cid.wrapping_add(1);
        let mut out = Vec::new();
        let bytes = data.len() as u32;
        pdu::capsule_cmd(&mut out, Framing::PLAIN, &command.with_cid(cid), bytes);
        out.extend_from_slice(data);
        self.send(&out)?;
        let mut got = Vec::new();
        let completion = self.receive(|header, data| {
            got.extend_from_slice(data);
            match header {
                Header::CapsuleResp(completion) => Some(Ok(completion)),
                // Success without a response capsule: there was no result to tell.
                Header::C2hData(data) if data.success => {
                    Some(Ok(Completion::new(cid, Status::SUCCESS)))
                }
                Header::C2hData(_) => None,
                other => Some(Err(Failure::environment(format!("unexpected {other:?}")))),
            }
        });
        let completion = completion?.map_err(Failure::doing(what))?;
        if !completion.status().is_success() {
            let status = completion.status();
            return Err(Failure::environment(format!("{what}: {status}")));
        }
        Ok(Answer {
            completion,
            data: got,
        })
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.stream
            .write_all(bytes)
            .map_err(Failure::doing("sending"))
    }

    /// Hands PDUs, each with all its data, to `take` until it has what it wants.
    fn receive<T>(
        &mut self,
        mut take: impl FnMut(Header, &[u8]) -> Option<T>,
    ) -> Result<T, Failure> {
        let mut pending: Option<(Header, Vec<u8>)> = None;
        loop {
            let received = std::mem::take(&mut self.input);
            let mut rest = received.as_slice();
            loop {
                let step = self.receiver.next(&mut rest).map_err(protocol)?;
                let whole = match step {
                    Step::NeedMore => break,
                    Step::Pdu(pdu) if pdu.data_len == 0 => Some((pdu.header, Vec::new())),
                    Step::Pdu(pdu) => {
                        pending = Some((pdu.header, Vec::with_capacity(pdu.data_len)));
                        None
                    }
                    Step::Data(bytes) => {
                        if let Some((_, data)) = &mut pending {
                            data.extend_from_slice(bytes);
                        }
                        None
                    }
                    Step::End { .. } => pending.take(),
                };
                if let Some((header, data)) = whole
                    && let Some(wanted) = take(header, &data)
                {
                    self.input = rest.to_vec();
                    return Ok(wanted);
                }
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<(), Failure> {
        self.input.resize(16 << 10, 0);
        let got = self.stream.read(&mut self.input).map_err(|error| {
            let silent = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            let what = if silent {
                "no answer".into()
            } else {
                error.to_string()
            };
            Failure::environment(format!("the target: {what}"))
        })?;
        self.input.truncate(got);
        if got == 0 {
            return Err(Failure::environment("the target closed the connection"));
        }
        Ok(())
    }

    /// Whether a received byte is still to be taken.
    pub(super) fn is_clean(&self) -> bool {
        self.input.is_empty() && !self.receiver.is_inside_pdu()
    }
}

/// A violation of the protocol by the target.
pub(super) fn protocol(fatal: Fatal) -> Failure {
    Failure::environment(format!("the target violates the protocol: {fatal:?}"))
}
