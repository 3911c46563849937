//! One direction of a connection.

use std::collections::VecDeque;
use std::time::Duration;

use ashlar_block::Moment;

use crate::chance::Chance;

/// How a direction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// In order, behind everything that was sent.
    Fin,
    /// At once: what has not been read is lost.
    Reset,
}

enum Piece {
    Bytes(Vec<u8>),
    End(End),
}

/// How a direction behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes that may be under way or unread.
    pub(crate) window: usize,
    /// Largest piece in which bytes arrive.
    pub(crate) piece: usize,
    /// Longest delay of a piece.
    pub(crate) delay: Duration,
    /// Longest delay now and then.
    pub(crate) spike: Duration,
}

/// Bytes on their way from one end to the other: in order, in pieces, late.
pub(crate) struct Pipe {
    shape: Shape,
    flight: VecDeque<(Moment, Piece)>,
    arrived: VecDeque<u8>,
    under_way: usize,
    latest: Moment,
    end: Option<End>,
    /// The reader is gone: what is sent vanishes.
    pub(crate) sink: bool,
    /// Nothing gets through and neither end is told.
    hole: bool,
    /// The end is under way: what is sent behind it vanishes.
    finished: bool,
    /// Bytes sent so far.
    pub(crate) carried: u64,
    /// The byte that is to be damaged.
    flip_at: Option<u64>,
    /// A byte was damaged.
    pub(crate) flipped: bool,
}

impl Pipe {
    pub(crate) fn new(shape: Shape) -> Self {
        Self {
            shape,
            flight: VecDeque::new(),
            arrived: VecDeque::new(),
            under_way: 0,
            latest: Moment::ORIGIN,
            end: None,
            sink: false,
            hole: false,
            finished: false,
            carried: 0,
            flip_at: None,
            flipped: false,
        }
    }

    /// Bytes that may be sent now.
    pub(crate) fn room(&self) -> usize {
        if self.sink || self.finished {
            return usize::MAX;
        }
        let used = self.under_way + self.arrived.len();
        self.shape.window.saturating_sub(used)
    }

    /// Damages one of the next `within` bytes.
    pub(crate) fn damage(&mut self, chance: &mut Chance, within: u64) {
        // The PDUs that set a connection up have no digest.
        self.flip_at = Some(self.carried.max(128) + chance.below(within));
    }

    fn when(&mut self, now: Moment, chance: &mut Chance) -> Moment {
        let most = if chance.happens(20) {
            self.shape.spike
        } else {
            self.shape.delay
        };
        let at = (now + chance.time(most)).max(self.latest) + Duration::from_nanos(1);
        self.latest = at;
        at
    }

    /// Sends bytes, at most [`room`](Self::room).
    pub(crate) fn send(&mut self, now: Moment, chance: &mut Chance, bytes: &[u8]) {
        let start = self.carried;
        self.carried += bytes.len() as u64;
        if self.sink || self.finished {
            return;
        }
        self.under_way += bytes.len();
        if self.hole {
            return;
        }
        let mut bytes = bytes.to_vec();
        if let Some(at) = self.flip_at.filter(|at| (start..self.carried).contains(at)) {
            bytes[(at - start) as usize] ^= 1 << chance.below(8);
            self.flip_at = None;
            self.flipped = true;
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(chance.size(self.shape.piece).min(rest.len()));
            let at = self.when(now, chance);
            self.flight.push_back((at, Piece::Bytes(piece.to_vec())));
            rest = behind;
        }
    }

    /// Ends the direction from the sender's side.
    pub(crate) fn finish(&mut self, now: Moment, chance: &mut Chance, end: End) {
        if !self.hole && !self.sink && !self.finished {
            self.finished = true;
            let at = self.when(now, chance);
            self.flight.push_back((at, Piece::End(end)));
        }
    }

    /// Loses the tail of what is under way, at any byte; then the reader is told, or not.
    pub(crate) fn cut(&mut self, now: Moment, chance: &mut Chance, end: Option<End>) {
        let keep = chance.below(self.flight.len() as u64 + 1) as usize;
        let cut_off = self.flight.split_off(keep);
        let mut lost: usize = cut_off.iter().map(|(_, piece)| piece.len()).sum();
        if let Some((_, Piece::Bytes(last))) = self.flight.back_mut() {
            let left = chance.between(1, last.len() as u64) as usize;
            lost += last.len() - left;
            last.truncate(left);
        }
        match end {
            // Lost bytes keep the window occupied: they are never acknowledged.
            None => self.hole = true,
            Some(end) => {
                self.under_way -= lost;
                self.finished = false;
                self.finish(now, chance, end);
            }
        }
    }

    /// Moves what is due to the reader. True if something arrived.
    pub(crate) fn deliver(&mut self, now: Moment) -> bool {
        let mut news = false;
        while self.flight.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, piece)) = self.flight.pop_front() else {
                break;
            };
            news = true;
            match piece {
                Piece::Bytes(bytes) => {
                    self.under_way -= bytes.len();
                    self.arrived.extend(bytes);
                }
                Piece::End(end) => {
                    if end == End::Reset {
                        self.arrived.clear();
                    }
                    self.end = self.end.or(Some(end));
                }
            }
        }
        news
    }

    /// Takes up to `most` bytes that have arrived.
    pub(crate) fn take(&mut self, most: usize) -> Vec<u8> {
        self.arrived.drain(..most.min(self.arrived.len())).collect()
    }

    /// Whether bytes, or the end, can be taken.
    pub(crate) fn is_readable(&self) -> bool {
        !self.arrived.is_empty() || self.end.is_some()
    }

    /// The end, once everything before it was taken.
    pub(crate) fn ended(&self) -> Option<End> {
        self.end.filter(|_| self.arrived.is_empty())
    }

    /// When something arrives next.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.flight.front().map(|(at, _)| *at)
    }
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::End(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        window: 1000,
        piece: 50,
        delay: Duration::from_micros(5),
        spike: Duration::from_millis(1),
    };

    #[test]
    fn bytes_arrive_in_order_in_pieces_and_then_the_end() {
        let mut chance = Chance::new(1);
        let mut pipe = Pipe::new(SHAPE);
        let bytes: Vec<u8> = (0..200).collect();
        pipe.send(Moment::ORIGIN, &mut chance, &bytes);
        assert_eq!(pipe.room(), 800);
        pipe.finish(Moment::ORIGIN, &mut chance, End::Fin);
        let mut got = Vec::new();
        while let Some(at) = pipe.next() {
            pipe.deliver(at);
            got.extend(pipe.take(7));
        }
        got.extend(pipe.take(1000));
        assert_eq!(got, bytes);
        assert_eq!(pipe.ended(), Some(End::Fin));
    }

    #[test]
    fn a_cut_loses_a_tail_and_a_hole_is_not_told() {
        for seed in 0..50 {
            let mut chance = Chance::new(seed);
            let mut pipe = Pipe::new(SHAPE);
            pipe.send(Moment::ORIGIN, &mut chance, &[1; 300]);
            let end = chance.happens(500).then_some(End::Reset);
            pipe.cut(Moment::ORIGIN, &mut chance, end);
            while let Some(at) = pipe.next() {
                pipe.deliver(at);
            }
            assert_eq!(
                pipe.is_readable(),
                end.is_some() || !pipe.take(1).is_empty()
            );
            assert_eq!(pipe.ended(), end);
        }
    }
}
