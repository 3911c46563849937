use std::ops::Range;

use ashlar_block::{Gather, IoBuffer, Moment};

use crate::failure::Failure;

/// What should become of a stream now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Leave it as it is, or absent.
    None,
    /// Connect it to the target.
    Open,
    /// Send what is left to say, disconnect, bring every lent buffer back, and say
    /// [`Streams::closed`].
    Close,
}

/// A set of byte streams to one target, as a driver (or the simulator) sees the state machines that
/// talk over them. Streams are numbered from 0 (the admin queue) on.
///
/// The driver's part: look at [`wish`](Self::wish); feed what arrives to
/// [`receive`](Self::receive); one batch at a time, take [`transmit`](Self::transmit), send it, and
/// give it back by [`sent`](Self::sent).
pub trait Streams {
    /// How many streams there can be.
    fn streams(&self) -> usize;

    /// What should become of a stream now.
    fn wish(&self, stream: usize) -> Wish;

    /// The stream is connected.
    fn opened(&mut self, now: Moment, stream: usize);

    /// The stream could not be connected, or has broken or ended.
    fn lost(&mut self, stream: usize, failure: Failure);

    /// Nothing of the stream is left, and no buffer of it is out.
    fn closed(&mut self, stream: usize);

    /// Bytes arrived.
    fn receive(&mut self, stream: usize, bytes: &[u8]);

    /// Where the rest of the payload that is arriving belongs, if that is at least `least` bytes.
    fn direct(&mut self, stream: usize, least: usize) -> Option<(IoBuffer, Range<usize>)>;

    /// Gives back what [`direct`](Self::direct) gave, with `filled` bytes received.
    fn direct_done(&mut self, stream: usize, buffer: IoBuffer, filled: usize);

    /// Appends what is to be sent.
    fn transmit(&mut self, stream: usize, out: &mut Gather);

    /// A batch was sent, or never will be.
    fn sent(&mut self, stream: usize, batch: &mut Gather);
}
