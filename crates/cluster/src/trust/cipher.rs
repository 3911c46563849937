use std::io::{IoSlice, Read, Write};
use std::os::fd::OwnedFd;

use ashlar_replica::Incarnation;
use bytes::{Bytes, BytesMut};
use rustls::Connection;

/// What a TLS record adds, and the payload of the largest.
const RECORD_OVERHEAD: usize = 22;
const RECORD_BYTES: usize = 16 << 10;
/// What is deciphered in one step.
const STEP: usize = 64 << 10;

/// A peer's connection that has proven itself: its socket, which does not block, and what its bytes go through.
#[derive(Debug)]
pub struct PeerSocket {
    pub fd: OwnedFd,
    /// `None`: the bytes are as they are.
    pub cipher: Option<Cipher>,
    /// The version that both ends speak.
    pub version: u16,
    /// The process at the other end.
    pub incarnation: Incarnation,
}

/// TLS of one connection, without I/O.
pub struct Cipher(Box<Connection>);

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher")
    }
}

impl Cipher {
    pub(super) fn new(mut connection: Connection) -> Self {
        // Who uses it bounds what is queued.
        connection.set_buffer_limit(None);
        Self(Box::new(connection))
    }

    /// What goes over the socket for these bytes.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn seal(&mut self, head: &[u8], data: &[u8]) -> Result<Bytes, String> {
        let total = head.len() + data.len();
        let parts = [IoSlice::new(head), IoSlice::new(data)];
        let taken = self.0.writer().write_vectored(&parts);
        let taken = taken.map_err(|error| error.to_string())?;
        if taken != total {
            return Err(format!("TLS has taken {taken} of {total} bytes"));
        }
        let records = total / RECORD_BYTES + 2;
        let mut sealed = Vec::with_capacity(total + records * RECORD_OVERHEAD);
        while self.0.wants_write() {
            let written = self.0.write_tls(&mut sealed);
            written.map_err(|error| error.to_string())?;
        }
        Ok(sealed.into())
    }

    /// Appends what these bytes of the socket say; without any, what has come already.
    ///
    /// # Errors
    /// They are not what the peer has sent, or it has ended the connection.
    pub fn open(&mut self, mut bytes: &[u8], into: &mut BytesMut) -> Result<(), String> {
        loop {
            if !bytes.is_empty() {
                let taken = self.0.read_tls(&mut bytes);
                taken.map_err(|error| error.to_string())?;
            }
            let state = self.0.process_new_packets();
            let state = state.map_err(|error| error.to_string())?;
            let mut waiting = state.plaintext_bytes_to_read();
            while waiting > 0 {
                let step = waiting.min(STEP);
                let at = into.len();
                into.resize(at + step, 0);
                let read = self.0.reader().read(&mut into[at..]);
                let read = read.map_err(|error| error.to_string())?;
                into.truncate(at + read);
                waiting -= read.clamp(1, waiting);
            }
            if state.peer_has_closed() {
                return Err("it has closed the connection".into());
            }
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }
}
