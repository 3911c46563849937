//! The stream that the driver is given. Its calls block, so the driver's futures are done when they are polled.
//!
//! The server's first answer is read here before the driver has it: a driver without TLS would go on to send the
//! password, whatever the server has said about encryption.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::io::{AsyncRead, AsyncWrite};

use crate::socket::Socket;

/// Bytes before a packet's data.
const HEADER: usize = 8;
/// The type of packets from a server.
const FROM_SERVER: u8 = 4;
/// More than any server has to say before a login.
const MOST_HELLO: usize = 4096;

/// Options of the answer to the first message (MS-TDS 2.2.6.5).
const ENCRYPTION: u8 = 1;
const THREAD: u8 = 3;
const END: u8 = 0xff;
/// What a server says of encryption that goes on without.
const NOT_NOW: u8 = 0;
const NOT_SUPPORTED: u8 = 2;

pub(super) struct Blocking {
    socket: Socket,
    is_login: Arc<AtomicBool>,
    hello: Hello,
}

/// What has become of the server's first answer.
enum Hello {
    Awaited,
    /// Looked at; the driver has not read this.
    Kept(Vec<u8>),
    Read,
}

impl Blocking {
    /// A stream over a socket. While `is_login`, answers are waited for as long as a login may take.
    pub(super) fn new(socket: Socket, is_login: &Arc<AtomicBool>) -> Self {
        Self {
            socket,
            is_login: Arc::clone(is_login),
            hello: Hello::Awaited,
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let is_login = self.is_login.load(Ordering::Relaxed);
        if matches!(self.hello, Hello::Awaited) {
            let packet = first_packet(&self.socket)?;
            look_at(packet.get(HEADER..).unwrap_or_default())?;
            self.hello = Hello::Kept(packet);
        }
        let Hello::Kept(kept) = &mut self.hello else {
            return self.socket.read(into, is_login);
        };
        let length = kept.len().min(into.len());
        let taken: Vec<u8> = kept.drain(..length).collect();
        into[..length].copy_from_slice(&taken);
        if kept.is_empty() {
            self.hello = Hello::Read;
        }
        Ok(length)
    }
}

/// The server's first packet.
fn first_packet(socket: &Socket) -> io::Result<Vec<u8>> {
    let mut packet = vec![0; HEADER];
    fill(socket, &mut packet)?;
    let length = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    if packet[0] != FROM_SERVER || !(HEADER..=MOST_HELLO).contains(&length) {
        return Err(not_tds());
    }
    packet.resize(length, 0);
    fill(socket, &mut packet[HEADER..])?;
    Ok(packet)
}

fn fill(socket: &Socket, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match socket.read(into, true)? {
            0 => {
                let text = "before the login";
                return Err(io::Error::new(ErrorKind::UnexpectedEof, text));
            }
            read => into = &mut into[read..],
        }
    }
    Ok(())
}

/// Whether a login without encryption may follow the server's first answer.
fn look_at(hello: &[u8]) -> io::Result<()> {
    let mut options = hello;
    while let [token, place @ ..] = options {
        if *token == END {
            return Ok(());
        }
        let [a, b, c, d, rest @ ..] = place else {
            break;
        };
        let offset = usize::from(u16::from_be_bytes([*a, *b]));
        let length = usize::from(u16::from_be_bytes([*c, *d]));
        let value = hello.get(offset..offset + length).ok_or_else(not_tds)?;
        match (*token, value) {
            (ENCRYPTION, [NOT_NOW | NOT_SUPPORTED]) => {}
            (ENCRYPTION, _) => return Err(encrypts()),
            // The driver takes it for granted.
            (THREAD, [_, ..]) if value.iter().any(|byte| *byte != 0) => return Err(not_tds()),
            _ => {}
        }
        options = rest;
    }
    Err(not_tds())
}

fn encrypts() -> io::Error {
    io::Error::new(
        ErrorKind::Unsupported,
        "the server requires encryption, and there is no TLS here: switch its Force Encryption off, or use a tunnel; \
         no password was sent",
    )
}

fn not_tds() -> io::Error {
    io::Error::new(
        ErrorKind::InvalidData,
        "what answers there does not speak TDS as SQL Server does",
    )
}

impl AsyncRead for Blocking {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(self.read(into))
    }
}

impl AsyncWrite for Blocking {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let is_login = self.is_login.load(Ordering::Relaxed);
        Poll::Ready(self.socket.write(from, is_login))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket.shutdown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version, encryption, thread, end; then their values.
    fn hello(encryption: u8, thread: &[u8]) -> Vec<u8> {
        let length = thread.len() as u8;
        let mut bytes = vec![0, 0, 16, 0, 6, 1, 0, 22, 0, 1, 3, 0, 23, 0, length, END];
        bytes.extend([15, 0, 7, 208, 0, 0, encryption]);
        bytes.extend(thread);
        bytes
    }

    #[test]
    fn a_login_follows_only_where_no_encryption_is_wanted() {
        for (encryption, may) in [(0, true), (1, false), (2, true), (3, false), (9, false)] {
            let found = look_at(&hello(encryption, &[]));
            assert_eq!(found.is_ok(), may, "{encryption}: {found:?}");
        }
        let error = look_at(&hello(3, &[])).expect_err("required");
        assert!(error.to_string().contains("requires encryption"), "{error}");
    }

    #[test]
    fn what_is_cut_off_or_points_outside_is_no_tds() {
        assert!(look_at(&hello(2, &[0; 4])).is_ok());
        assert!(look_at(&hello(2, &[0, 0, 0, 1])).is_err());
        let whole = hello(2, &[]);
        for length in 0..whole.len() {
            assert!(look_at(&whole[..length]).is_err(), "{length} bytes");
        }
        assert!(look_at(&[0, 255, 255, 255, 255, END]).is_err());
        assert!(look_at(&[]).is_err());
    }
}
