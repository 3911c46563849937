//! How clients come to begin at one moment: each is given its share and stands ready, clocks are compared, all are told.

use std::time::Instant;

use super::{ASKED, Client, LEAD, SET_UP};
use crate::LabError;
use crate::agent::clock::Clock;
use crate::agent::words::{Answer, Ask};

/// A client, and its share of a turn.
pub(super) trait Dealt {
    fn client(&mut self) -> &mut Client;

    fn share(&self) -> Ask;
}

/// The moment at which all begin: here, and by the clock that was compared with theirs.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub(super) at: Instant,
    pub(super) at_ns: u64,
}

/// Has all begin at one moment; `before` is done when they stand ready. An error calls all off.
pub(super) fn begin<D: Dealt>(
    dealt: &mut [D],
    clock: &Clock,
    before: impl FnOnce() -> Result<(), LabError>,
) -> Result<Moment, LabError> {
    let ready = stand_ready(dealt).and_then(|()| before());
    // Last, so that clocks have no time to part.
    if let Err(error) = ready.and_then(|()| compare_clocks(dealt, clock)) {
        call_off(dealt);
        return Err(error);
    }
    let moment = Moment {
        at_ns: clock.steady_ns() + LEAD.as_nanos() as u64,
        at: Instant::now() + LEAD,
    };
    for one in dealt {
        one.client().go(moment.at_ns);
    }
    Ok(moment)
}

fn stand_ready<D: Dealt>(dealt: &mut [D]) -> Result<(), LabError> {
    for one in dealt.iter_mut() {
        let share = one.share();
        one.client().tell(&share)?;
        one.client().owes = true;
    }
    for one in dealt {
        match one.client().heard(SET_UP)? {
            Answer::Ready => {}
            _ => return Err(one.client().misunderstood()),
        }
    }
    Ok(())
}

fn compare_clocks<D: Dealt>(dealt: &mut [D], clock: &Clock) -> Result<(), LabError> {
    let mut all = dealt.iter_mut();
    all.try_for_each(|one| one.client().compare_clocks(clock, ASKED))
}

/// Nothing begins: those that stand ready are told, and what they answer is heard, so that the next answer is one to the
/// next question. One that is still making ready hears it when it is.
fn call_off<D: Dealt>(dealt: &mut [D]) {
    for one in dealt {
        let client = one.client();
        if client.owes && client.died.is_none() && client.tell(&Ask::Stop).is_ok() {
            while let Ok(Answer::Ready | Answer::Alive(_) | Answer::Clock(_)) = client.heard(SET_UP)
            {
            }
        }
    }
}
