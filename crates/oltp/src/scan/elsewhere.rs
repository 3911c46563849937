//! Readers that are at agents: dealt out in turn, so that a scan is the same from one or from ten. This process looks at
//! the server and the machine meanwhile.

use std::net::SocketAddr;
use std::time::Duration;

use ashlar_lab::agent::{Begun, Onlooker, OtherHome};
use ashlar_lab::{LabError, Progress};

use super::readers::Times;
use super::{Read, Wanted, now_s};
use crate::database::{Database, ServerPlace};
use crate::postgres::Logic;
use crate::remote::{LoadWords, ReadWords, ReaderWords, RemoteUsers, read, text};
use crate::result::ClientShare;
use crate::run::Part;
use crate::usage::{Usage, Used};

/// Whether the last reader has ended is looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Where the readers of a scan are, and what they read.
pub(crate) struct Elsewhere<'a> {
    pub(crate) agents: &'a RemoteUsers<'a>,
    /// The server's address for them.
    pub(crate) address: SocketAddr,
}

impl Elsewhere<'_> {
    /// Has each of the readers read the whole table once.
    pub(super) fn read(
        &self,
        database: &dyn Database,
        wanted: Wanted,
        progress: &Progress,
    ) -> Result<Read, LabError> {
        let Wanted { readers, rows } = wanted;
        let clients = self.agents.clients();
        let dealt = deal(readers, clients.count());
        let words = dealt.iter().map(|&readers| {
            let server = self.agents.server(self.address, Logic::Client);
            let words = LoadWords::Readers(ReaderWords {
                server,
                readers,
                rows,
            });
            (readers > 0).then(|| text(&words)).transpose()
        });
        let words = words.collect::<Result<Vec<_>, LabError>>()?;
        let mut eye = Eye::at(database.watcher()?.place());
        let homes = clients.carry_out(&words, progress, &mut eye)?;
        progress.go_on()?;
        let mut all = Home::default();
        for (home, &readers) in homes.into_iter().zip(dealt.iter().filter(|of| **of > 0)) {
            all.add(home, readers)?;
        }
        let unseen = || LabError::environment("the scan was not looked at");
        let mut used = eye.used.ok_or_else(unseen)?;
        used.client_cpu_s = all.clients.iter().map(|of| of.cpu_s).sum();
        Ok(Read {
            times: all.times.ok_or_else(unseen)?,
            used,
            began_unix_s: eye.began_unix_s,
            clients: all.clients,
        })
    }
}

/// How many readers each agent has.
fn deal(readers: usize, of: usize) -> Vec<usize> {
    let many = |index| Part { index, of }.numbers(readers).count();
    (0..of).map(many).collect()
}

/// Looks on from when all stand ready until the last has ended.
struct Eye {
    place: ServerPlace,
    before: Option<Usage>,
    began_unix_s: f64,
    used: Option<Used>,
}

impl Eye {
    fn at(place: ServerPlace) -> Self {
        Self {
            place,
            before: None,
            began_unix_s: 0.0,
            used: None,
        }
    }
}

impl Onlooker for Eye {
    fn before(&mut self) -> Result<(), LabError> {
        self.before = Some(Usage::now(&self.place));
        self.began_unix_s = now_s();
        Ok(())
    }

    fn meanwhile(&mut self, begun: &Begun<'_>) {
        while !begun.has_ended() {
            std::thread::sleep(LOOK_EVERY);
        }
        let before = self.before.take();
        self.used = before.map(|before| Usage::now(&self.place).since(&before));
    }
}

/// What agents bring home.
#[derive(Default)]
struct Home {
    times: Option<Times>,
    clients: Vec<ClientShare>,
}

impl Home {
    /// Adds what an agent's readers took. A scan that lacks some of its readers is none.
    fn add(&mut self, home: OtherHome, readers: usize) -> Result<(), LabError> {
        let sent = home.measured.map_err(|error| match error {
            LabError::Environment(why) => {
                LabError::environment(format!("{why}; its {readers} readers are missing"))
            }
            other => other,
        })?;
        let named = |error| LabError::caused(format!("client {}", home.client), error);
        let words: ReadWords = read(&sent.words).map_err(named)?;
        let run = sent.late.saturating_add(words.run);
        let so_far = self.times.take();
        self.times = Some(Times {
            run: so_far.as_ref().map_or(run, |all| all.run.max(run)),
            quickest: so_far.map_or(words.quickest, |all| all.quickest.min(words.quickest)),
        });
        self.clients.push(ClientShare {
            client: home.client,
            here: home.is_here,
            users: readers,
            transactions: readers as u64,
            cpu_s: words.cpu_s,
            late_us: sent.late.as_secs_f64() * 1e6,
            ..ClientShare::default()
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ashlar_lab::agent::OtherMeasured;

    use super::*;

    fn home(client: &str, measured: Result<(u64, u64), LabError>) -> OtherHome {
        let sent = |(run, late): (u64, u64)| OtherMeasured {
            words: text(&ReadWords {
                run: Duration::from_secs(run),
                quickest: Duration::from_secs(run / 2),
                cpu_s: 0.5,
            })
            .expect("text"),
            late: Duration::from_secs(late),
        };
        OtherHome {
            client: client.into(),
            is_here: false,
            measured: measured.map(sent),
        }
    }

    #[test]
    fn a_scan_ends_with_the_last_reader_of_all_agents() {
        assert_eq!(deal(7, 3), [3, 2, 2]);
        assert_eq!(deal(1, 2), [1, 0]);
        let mut all = Home::default();
        all.add(home("a", Ok((6, 0))), 3).expect("added");
        all.add(home("b", Ok((4, 3))), 2).expect("added");
        let times = all.times.as_ref().expect("both");
        let seconds = Duration::from_secs;
        assert_eq!((times.run, times.quickest), (seconds(7), seconds(2)));
        let parts: Vec<_> = all
            .clients
            .iter()
            .map(|of| (of.users, of.late_us))
            .collect();
        assert_eq!(parts, [(3, 0.0), (2, 3e6)]);
        let died = LabError::environment("client c died: gone");
        let error = all.add(home("c", Err(died)), 2).expect_err("no scan");
        assert_eq!(
            error.to_string(),
            "client c died: gone; its 2 readers are missing"
        );
        let wrong = all.add(home("c", Err(LabError::check("letters"))), 2);
        assert_eq!(wrong.expect_err("a check").exit_code(), 1);
    }
}
