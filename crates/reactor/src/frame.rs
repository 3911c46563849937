//! What is lent to the ring for a receive or a send, with the kernel's message header inside it.
#![allow(unsafe_code)]

use std::ops::Range;

use ashlar_block::{Gather, IoBuffer};

/// Memory for one receive: first the rest of a payload straight into its destination, then
/// whatever follows into a staging buffer.
pub struct RecvFrame {
    /// Takes headers and small payloads.
    pub staging: IoBuffer,
    /// How much of `staging` may be used by this receive.
    pub staging_limit: usize,
    /// A payload's destination and the part of it that is still missing.
    pub direct: Option<(IoBuffer, Range<usize>)>,
    /// No data is expected right now: let the kernel wait before it tries.
    pub expect_idle: bool,
    iov: [libc::iovec; 2],
    msg: libc::msghdr,
}

fn empty_msghdr() -> libc::msghdr {
    // SAFETY: an all-zero `msghdr` is valid: no address, no vectors, no control data.
    unsafe { std::mem::zeroed() }
}

const EMPTY_IOVEC: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

impl RecvFrame {
    /// A frame around `staging`.
    pub fn new(staging: IoBuffer) -> Box<Self> {
        Box::new(Self {
            staging_limit: staging.len(),
            staging,
            direct: None,
            expect_idle: false,
            iov: [EMPTY_IOVEC; 2],
            msg: empty_msghdr(),
        })
    }

    /// How many of `received` bytes went to the direct destination; the others are at the start of
    /// `staging`.
    pub fn direct_part(&self, received: usize) -> usize {
        let direct = self.direct.as_ref().map_or(0, |(_, range)| range.len());
        received.min(direct)
    }

    /// Points the message header at the buffers. The frame must not move or be touched until the
    /// kernel is done with it.
    pub(crate) fn prepare(&mut self) -> *mut libc::msghdr {
        let mut vectors = 0;
        if let Some((buffer, range)) = &mut self.direct {
            let bytes = &mut buffer[range.clone()];
            self.iov[0] = iovec(bytes);
            vectors = 1;
        }
        let limit = self.staging_limit.min(self.staging.len());
        self.iov[vectors] = iovec(&mut self.staging[..limit]);
        self.msg.msg_iov = self.iov.as_mut_ptr();
        self.msg.msg_iovlen = vectors + 1;
        &mut self.msg
    }
}

fn iovec(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }
}

/// What a connection sends in one system call.
pub struct SendBatch {
    pub gather: Gather,
    iov: Vec<libc::iovec>,
    msg: libc::msghdr,
}

impl SendBatch {
    /// An empty batch.
    pub fn new() -> Box<Self> {
        Box::new(Self {
            gather: Gather::default(),
            iov: Vec::new(),
            msg: empty_msghdr(),
        })
    }

    /// Points the message header at the bytes. As for [`RecvFrame::prepare`].
    pub(crate) fn prepare(&mut self) -> *const libc::msghdr {
        self.iov.clear();
        for bytes in self.gather.chunks() {
            let base = bytes.as_ptr().cast_mut().cast();
            self.iov.push(libc::iovec {
                iov_base: base,
                iov_len: bytes.len(),
            });
        }
        self.msg.msg_iov = self.iov.as_mut_ptr();
        self.msg.msg_iovlen = self.iov.len();
        &self.msg
    }
}
