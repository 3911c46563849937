//! A peer's connection: messages of the replication protocol, in order, over a socket of the core's reactor.

use std::collections::VecDeque;
use std::io;

use ashlar_cluster::{Cipher, PeerSocket};
use ashlar_reactor::{File, Handle, Port, RecvFrame, SendBatch};
use ashlar_replica::{Codec, Encoded, Envelope, Frame};
use bytes::{Bytes, BytesMut};

/// Memory that a connection receives into.
const STAGING_BYTES: usize = 256 << 10;
/// A peer that has so many bytes to take is not reading: the connection is of no use any more.
const MOST_QUEUED: usize = 256 << 20;

/// A connection. Its events carry its key.
pub(super) struct Stream {
    file: File,
    key: u64,
    codec: Codec,
    cipher: Option<Cipher>,
    /// Not lent to the ring.
    frame: Option<Box<RecvFrame>>,
    batch: Option<Box<SendBatch>>,
    outgoing: VecDeque<Encoded>,
    /// Why nothing can be sent any more.
    unsent: Option<Ended>,
    queued: usize,
    incoming: BytesMut,
    /// Bytes that `incoming` must have before there can be a message in it.
    needs: usize,
}

/// Why a connection is over.
pub(super) type Ended = String;

impl Stream {
    /// A connected socket, whose events are to come to `port` with `key`.
    ///
    /// # Errors
    /// There is no memory to receive into.
    pub(super) fn new(
        socket: PeerSocket,
        key: u64,
        codec: Codec,
        reactor: &Handle,
    ) -> Result<Self, Ended> {
        let staging = reactor.buffers().get(STAGING_BYTES);
        let staging = staging.ok_or("no buffer is left to receive into")?;
        Ok(Self {
            file: reactor.adopt(socket.fd),
            key,
            codec,
            cipher: socket.cipher,
            frame: Some(RecvFrame::new(staging)),
            batch: Some(SendBatch::new()),
            outgoing: VecDeque::new(),
            unsent: None,
            queued: 0,
            incoming: BytesMut::new(),
            needs: 0,
        })
    }

    pub(super) const fn key(&self) -> u64 {
        self.key
    }

    /// Queues a message; [`flush`](Self::flush) sends. Gives the bytes that it takes.
    pub(super) fn push(&mut self, envelope: &Envelope) -> usize {
        let mut encoded = self.codec.encode(envelope);
        if let Some(cipher) = &mut self.cipher {
            match cipher.seal(&encoded.head, &encoded.data) {
                Ok(sealed) => {
                    encoded.head.clear();
                    encoded.data = sealed;
                }
                Err(why) => {
                    self.unsent = Some(why);
                    return 0;
                }
            }
        }
        let bytes = encoded.head.len() + encoded.data.len();
        self.queued += bytes;
        self.outgoing.push_back(encoded);
        bytes
    }

    /// Gives the ring what it can take: all that is queued, as far as one batch goes, and a place to receive into.
    ///
    /// # Errors
    /// The peer does not read.
    pub(super) fn flush(&mut self, port: &Port) -> Result<(), Ended> {
        if let Some(why) = self.unsent.take() {
            return Err(format!("cannot send: {why}"));
        }
        if self.queued > MOST_QUEUED {
            return Err(format!("it has not taken {} bytes", self.queued));
        }
        if !self.outgoing.is_empty()
            && let Some(mut batch) = self.batch.take()
        {
            batch.gather.clear();
            while !batch.gather.is_full()
                && let Some(Encoded { head, data }) = self.outgoing.pop_front()
            {
                self.queued -= head.len() + data.len();
                if !head.is_empty() {
                    batch.gather.head(|to| to.extend_from_slice(&head));
                }
                if !data.is_empty() {
                    batch.gather.shared(data);
                }
            }
            port.send(&self.file, batch, self.key);
        }
        if let Some(mut frame) = self.frame.take() {
            frame.direct = None;
            frame.staging_limit = STAGING_BYTES;
            frame.expect_idle = true;
            port.recv(&self.file, frame, self.key);
        }
        Ok(())
    }

    /// A batch has left, or the connection is broken.
    ///
    /// # Errors
    /// The latter.
    pub(super) fn sent(
        &mut self,
        result: io::Result<()>,
        mut batch: Box<SendBatch>,
    ) -> Result<(), Ended> {
        batch.gather.clear();
        self.batch = Some(batch);
        result.map_err(|error| format!("cannot send: {error}"))
    }

    /// Bytes have come: appends the messages that are whole now.
    ///
    /// # Errors
    /// The connection has ended, or what came is no message.
    pub(super) fn received(
        &mut self,
        result: io::Result<usize>,
        frame: Box<RecvFrame>,
        into: &mut Vec<Envelope>,
    ) -> Result<(), Ended> {
        let bytes = match result {
            Ok(0) => return Err("it has closed the connection".into()),
            Ok(bytes) => bytes,
            Err(error) => return Err(format!("cannot receive: {error}")),
        };
        let bytes = &frame.staging[..bytes];
        let opened = match &mut self.cipher {
            None => {
                self.incoming.extend_from_slice(bytes);
                Ok(())
            }
            Some(cipher) => cipher.open(bytes, &mut self.incoming),
        };
        self.frame = Some(frame);
        // What came before an end is heard.
        self.messages(into).and(opened)
    }

    /// What has come with the handshake's last bytes: appends the messages in it.
    ///
    /// # Errors
    /// As [`received`](Self::received).
    pub(super) fn early(&mut self, into: &mut Vec<Envelope>) -> Result<(), Ended> {
        match &mut self.cipher {
            None => Ok(()),
            Some(cipher) => {
                let opened = cipher.open(&[], &mut self.incoming);
                self.messages(into).and(opened)
            }
        }
    }

    /// The messages that are whole now.
    fn messages(&mut self, into: &mut Vec<Envelope>) -> Result<(), Ended> {
        if self.incoming.len() < self.needs {
            return Ok(());
        }
        let mut all: Bytes = self.incoming.split().freeze();
        loop {
            match self.codec.decode(&all) {
                Ok(Frame::Whole { envelope, bytes }) => {
                    into.push(envelope);
                    drop(all.split_to(bytes));
                }
                Ok(Frame::Partial { needs }) => {
                    self.needs = needs;
                    self.incoming = BytesMut::with_capacity(needs.max(all.len()));
                    self.incoming.extend_from_slice(&all);
                    return Ok(());
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // What the ring still has of it ends with this.
        self.file.shutdown();
    }
}
