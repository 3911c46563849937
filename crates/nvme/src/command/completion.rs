//! Completion queue entries (Base 2.1, 4.2).

use crate::layout::{layout, wire};
use crate::status::Status;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A completion queue entry. Over fabrics it has no phase tag.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Completion {
    /// Command specific result.
    pub dw0: U32,
    /// Command specific result, second half.
    pub dw1: U32,
    /// SQHD: head of the submission queue; reserved when flow control is off.
    pub sqhd: U16,
    /// SQID; reserved over fabrics.
    pub sqid: U16,
    /// CID of the command that completed.
    pub cid: U16,
    /// Status shifted left by the phase bit; use [`Completion::status`].
    pub status_field: U16,
}

wire!(Completion);
layout!(Completion, 16, dw0 @ 0, dw1 @ 4, sqhd @ 8, sqid @ 10, cid @ 12, status_field @ 14);

impl Completion {
    /// The outcome of command `cid`, with no result.
    pub fn new(cid: u16, status: Status) -> Self {
        Self {
            cid: U16::new(cid),
            status_field: U16::new(status.to_wire()),
            ..Self::default()
        }
    }

    /// The same completion with this result in dword 0.
    #[must_use]
    pub fn with_dw0(mut self, dw0: u32) -> Self {
        self.dw0.set(dw0);
        self
    }

    /// The same completion with this result in dwords 0 and 1 (Property Get).
    #[must_use]
    pub fn with_result(mut self, result: u64) -> Self {
        self.dw0.set(result as u32);
        self.dw1.set((result >> 32) as u32);
        self
    }

    /// The same completion with this submission queue head.
    #[must_use]
    pub fn with_sqhd(mut self, sqhd: u16) -> Self {
        self.sqhd.set(sqhd);
        self
    }

    pub fn status(&self) -> Status {
        Status::from_wire(self.status_field.get())
    }

    /// Dwords 0 and 1 as one number.
    pub fn result(&self) -> u64 {
        u64::from(self.dw0.get()) | u64::from(self.dw1.get()) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lies_above_the_phase_bit() {
        let completion = Completion::new(9, Status::INVALID_FIELD.with_dnr())
            .with_sqhd(3)
            .with_result(0x1122_3344_5566_7788);
        let wire = completion.as_wire();
        assert_eq!(wire[14..], [0x04, 0x80]);
        assert_eq!(wire[8..10], [3, 0]);
        let back = Completion::parse(wire).unwrap();
        assert_eq!(back.status(), Status::INVALID_FIELD.with_dnr());
        assert_eq!(back.result(), 0x1122_3344_5566_7788);
    }
}
