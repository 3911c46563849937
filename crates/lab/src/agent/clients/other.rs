//! Load of another kind than devices', dealt out to agents.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::{Client, Clients, Dealt, Moment, SET_UP, begin, panicked};
use crate::agent::words::{Answer, Ask};
use crate::live::Counted;
use crate::result::ClientNote;
use crate::{LabError, Progress};

/// What came of a client's share.
#[derive(Debug)]
pub struct OtherHome {
    /// The client's name.
    pub client: String,
    /// It is on this machine.
    pub is_here: bool,
    /// What it measured, in words; or why there is nothing.
    pub measured: Result<OtherMeasured, LabError>,
}

/// What a client measured.
#[derive(Debug)]
pub struct OtherMeasured {
    /// In the words of the load.
    pub words: String,
    /// How long after the common moment it began.
    pub late: Duration,
}

/// A load that has been told when to begin.
pub struct Begun<'a> {
    /// The moment, which may still be ahead.
    pub at: Instant,
    has_ended: &'a (dyn Fn() -> bool + Sync),
}

impl Begun<'_> {
    /// Whether all clients are at their end.
    pub fn has_ended(&self) -> bool {
        (self.has_ended)()
    }
}

/// Looks on while clients load.
pub trait Onlooker {
    /// All stand ready, and nothing has begun.
    ///
    /// # Errors
    /// Nothing is to begin.
    fn before(&mut self) -> Result<(), LabError>;

    /// They have been told to begin.
    fn meanwhile(&mut self, begun: &Begun<'_>);
}

/// A client's share of a load, in words.
struct Share<'a> {
    client: &'a mut Client,
    words: &'a str,
}

impl Dealt for Share<'_> {
    fn client(&mut self) -> &mut Client {
        self.client
    }

    fn share(&self) -> Ask {
        Ask::Other(self.words.to_owned())
    }
}

impl Clients {
    /// Their names, in order.
    pub fn names(&self) -> Vec<String> {
        self.lock().iter().map(|of| of.name.clone()).collect()
    }

    /// Where they are.
    pub fn peers(&self) -> Vec<IpAddr> {
        self.lock().iter().filter_map(|of| of.peer).collect()
    }

    /// What is told of each in a result.
    pub fn told(&self) -> Vec<ClientNote> {
        self.notes()
    }

    /// Those that died, and how.
    pub fn died(&self) -> Vec<String> {
        self.dead()
    }

    /// Has each client that has words see whether it can make a load.
    ///
    /// # Errors
    /// Names the one that cannot, and why.
    pub fn look(&self, shares: &[Option<String>]) -> Result<(), LabError> {
        for (client, words) in self.lock().iter_mut().zip(shares) {
            let Some(words) = words else { continue };
            match client.ask(&Ask::Look(words.clone()), SET_UP)? {
                Answer::Looked => {}
                _ => return Err(client.misunderstood()),
            }
        }
        Ok(())
    }

    /// Has each client that has words make its share, from one moment on; `onlooker` looks on here.
    ///
    /// # Errors
    /// One of them cannot begin; or what the onlooker's [`Onlooker::before`] says. All are called off.
    pub fn carry_out(
        &self,
        shares: &[Option<String>],
        progress: &Progress,
        onlooker: &mut dyn Onlooker,
    ) -> Result<Vec<OtherHome>, LabError> {
        let mut all = self.lock();
        let dealt = all.iter_mut().zip(shares);
        let dealt = dealt.filter_map(|(client, words)| {
            let words = words.as_deref()?;
            Some(Share { client, words })
        });
        let mut dealt: Vec<Share<'_>> = dealt.collect();
        let Moment { at, .. } = begin(&mut dealt, &self.clock, || onlooker.before())?;
        let homes = std::thread::scope(|scope| {
            let homes = dealt
                .iter_mut()
                .map(|share| scope.spawn(|| share.client.attend(progress, Counted::NewOrders)));
            let homes: Vec<_> = homes.collect();
            let has_ended = || homes.iter().all(|home| home.is_finished());
            onlooker.meanwhile(&Begun {
                at,
                has_ended: &has_ended,
            });
            let homes = homes.into_iter();
            let homes = homes.map(|home| home.join().unwrap_or_else(|_| Err(panicked())));
            homes.collect::<Vec<_>>()
        });
        Ok(dealt
            .iter()
            .zip(homes)
            .map(|(share, home)| share.client.home(home))
            .collect())
    }
}

impl Client {
    fn home(&self, home: Result<Answer, LabError>) -> OtherHome {
        let measured = home.and_then(|answer| match answer {
            Answer::Other { words, late_ns } => Ok(OtherMeasured {
                words,
                late: Duration::from_nanos(late_ns),
            }),
            _ => Err(self.misunderstood()),
        });
        OtherHome {
            client: self.name.clone(),
            is_here: self.is_here,
            measured,
        }
    }
}
