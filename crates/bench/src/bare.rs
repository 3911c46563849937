//! The bare socket server: the least work that moves the same bytes as a target.
//!
//! It knows the size of a request and of its answer, copies two bytes (the command identifier) from
//! one to the other, and looks at nothing else: no queue, no command, no memory but one block that
//! stays in the cache. All requests that one receive brought are answered by one send. It waits as
//! the target does: spins for a moment, then sleeps.

use std::io::{IoSlice, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ashlar_nvme::pdu::{self, C2hData, Framing};
use ashlar_nvme::{Completion, Status};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::args::BareShape;
use crate::failure::Failure;

const CAPSULE_BYTES: usize = 72;
/// CID in a command capsule: behind the common header, bytes 2 and 3 of the command.
const CID_AT: usize = 8 + 2;
/// CCCID in C2HData: the first field behind the common header.
const C2H_CID_AT: usize = 8;
/// CID in a response capsule: bytes 12 and 13 of the completion.
const RESPONSE_CID_AT: usize = 8 + 12;
const INBOX_BYTES: usize = 256 << 10;
/// Answers of one send.
const SEND_MOST: usize = 128;

/// The sub-command: serves connections one after the other until it is ended.
pub(crate) fn run(shape: &BareShape) -> Result<(), Failure> {
    if shape.block == 0 || shape.block > 1 << 20 {
        return Err(Failure::usage("--block: from 1 to 1048576"));
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(Failure::doing("127.0.0.1"))?;
    let address = listener.local_addr().map_err(Failure::doing("127.0.0.1"))?;
    let mut out = std::io::stdout().lock();
    let told = writeln!(out, "ready {address} bare").and_then(|()| out.flush());
    told.map_err(Failure::doing("standard output"))?;
    loop {
        let (stream, _) = listener.accept().map_err(Failure::doing("accept"))?;
        // A client that goes away is how every measurement ends.
        if let Err(error) = serve(stream, shape) {
            eprintln!("connection: {error}");
        }
    }
}

/// Sizes and templates of one direction.
struct Exchange {
    request_bytes: usize,
    answer: [u8; 24],
    answer_cid_at: usize,
    data: Vec<u8>,
}

impl Exchange {
    fn of(shape: &BareShape) -> Self {
        let mut header = Vec::new();
        let (in_bytes, out_bytes, answer_cid_at) = if shape.write {
            pdu::capsule_resp(
                &mut header,
                Framing::PLAIN,
                &Completion::new(0, Status::SUCCESS),
            );
            (shape.block as usize, 0, RESPONSE_CID_AT)
        } else {
            let data = C2hData {
                cid: 0,
                offset: 0,
                length: shape.block,
                last: true,
                success: true,
            };
            pdu::c2h_data(&mut header, Framing::PLAIN, &data);
            (0, shape.block as usize, C2H_CID_AT)
        };
        let mut answer = [0; 24];
        answer.copy_from_slice(&header);
        Self {
            request_bytes: CAPSULE_BYTES + in_bytes,
            answer,
            answer_cid_at,
            data: vec![0x5a; out_bytes],
        }
    }

    fn answer_to(&self, cid: [u8; 2]) -> [u8; 24] {
        let mut answer = self.answer;
        answer[self.answer_cid_at..self.answer_cid_at + 2].copy_from_slice(&cid);
        answer
    }
}

/// Where in the stream of requests the last receive ended.
#[derive(Default)]
struct Cutter {
    /// Bytes of the current request that were seen.
    at: usize,
    cid: [u8; 2],
}

impl Cutter {
    /// Calls `whole` with the command identifier of each request that ends in `bytes`.
    fn cut(&mut self, mut bytes: &[u8], request_bytes: usize, mut whole: impl FnMut([u8; 2])) {
        while !bytes.is_empty() {
            let take = bytes.len().min(request_bytes - self.at);
            for (index, byte) in self.cid.iter_mut().enumerate() {
                let place = CID_AT + index;
                if (self.at..self.at + take).contains(&place) {
                    *byte = bytes[place - self.at];
                }
            }
            self.at += take;
            bytes = &bytes[take..];
            if self.at == request_bytes {
                self.at = 0;
                whole(self.cid);
            }
        }
    }
}

/// Answers one connection until the client ends it.
pub(crate) fn serve(stream: TcpStream, shape: &BareShape) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let exchange = Exchange::of(shape);
    let spin = Duration::from_micros(shape.spin_us);
    let mut inbox = vec![0; INBOX_BYTES];
    let mut cutter = Cutter::default();
    let mut answers: Vec<[u8; 24]> = Vec::new();
    loop {
        let got = receive(&stream, &mut inbox, spin)?;
        if got == 0 {
            return Ok(());
        }
        answers.clear();
        cutter.cut(&inbox[..got], exchange.request_bytes, |cid| {
            answers.push(exchange.answer_to(cid));
        });
        for some in answers.chunks(SEND_MOST) {
            send(&stream, some, &exchange.data)?;
        }
    }
}

/// The next bytes; 0 at the end of the stream.
fn receive(stream: &TcpStream, inbox: &mut [u8], spin: Duration) -> std::io::Result<usize> {
    let mut since: Option<Instant> = None;
    loop {
        match recv(stream, &mut *inbox, RecvFlags::DONTWAIT) {
            Ok((got, _)) => return Ok(got),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => {
                let since = *since.get_or_insert_with(Instant::now);
                if since.elapsed() >= spin {
                    match poll(&mut [PollFd::new(stream, PollFlags::IN)], None) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends all answers. It may block: the client always receives.
fn send(mut stream: &TcpStream, answers: &[[u8; 24]], data: &[u8]) -> std::io::Result<()> {
    let mut parts: Vec<IoSlice<'_>> = Vec::with_capacity(2 * answers.len());
    for answer in answers {
        parts.push(IoSlice::new(answer));
        if !data.is_empty() {
            parts.push(IoSlice::new(data));
        }
    }
    let mut rest = parts.as_mut_slice();
    while !rest.is_empty() {
        let sent = stream.write_vectored(rest)?;
        IoSlice::advance_slices(&mut rest, sent);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_cut_wherever_a_receive_ends() {
        let mut bytes = Vec::new();
        for cid in [0x0102u16, 0x0304, 0x0506] {
            let mut request = [0xee; CAPSULE_BYTES + 7];
            request[CID_AT..CID_AT + 2].copy_from_slice(&cid.to_le_bytes());
            bytes.extend_from_slice(&request);
        }
        for piece in [1, 2, 11, 71, 79, 80, 1000] {
            let mut cutter = Cutter::default();
            let mut seen = Vec::new();
            for part in bytes.chunks(piece) {
                cutter.cut(part, CAPSULE_BYTES + 7, |cid| {
                    seen.push(u16::from_le_bytes(cid))
                });
            }
            assert_eq!(seen, [0x0102, 0x0304, 0x0506], "pieces of {piece}");
            assert_eq!(cutter.at, 0);
        }
    }
}
