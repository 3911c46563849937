//! Reservations kept in a file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ashlar_block::{ErrorKind, IoError};

use crate::reservation::{KeptReservations, ReservationKeeper, Ticket};

/// Keeps a namespace's reservations in a file, which is replaced as a whole.
pub struct ReservationFile {
    path: PathBuf,
    line: Mutex<Line>,
}

/// What is to be written.
#[derive(Default)]
struct Line {
    /// The newest state; what it replaces need not be written any more.
    state: Option<Vec<u8>>,
    tickets: Vec<Ticket>,
    /// A thread is writing.
    writes: bool,
}

impl ReservationFile {
    /// The reservations in the file, if it is there, and who keeps what comes.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn open(path: &Path) -> io::Result<KeptReservations> {
        let kept = match fs::read(path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let file = Arc::new(Self {
            path: path.to_owned(),
            line: Mutex::default(),
        });
        Ok(KeptReservations {
            kept,
            keeper: Arc::new(Shared(file)),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what there is to be written, until there is nothing more.
    fn work(&self) {
        loop {
            let (state, tickets) = {
                let mut line = self.lock();
                let Some(state) = line.state.take() else {
                    line.writes = false;
                    return;
                };
                (state, std::mem::take(&mut line.tickets))
            };
            let written = replace(&self.path, &state);
            for ticket in tickets {
                ticket.done(written.as_ref().map(|_| ()).map_err(|error| {
                    let what = format!("{}: {error}", self.path.display());
                    IoError::new(ErrorKind::Media, what)
                }));
            }
        }
    }
}

/// Puts a file in another's place, durably.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

struct Shared(Arc<ReservationFile>);

impl ReservationKeeper for Shared {
    fn keep(&self, state: Vec<u8>, ticket: Ticket) {
        let mut line = self.0.lock();
        line.state = Some(state);
        line.tickets.push(ticket);
        if line.writes {
            return;
        }
        let file = self.0.clone();
        let thread = std::thread::Builder::new().name("reservations".into());
        match thread.spawn(move || file.work()) {
            Ok(_) => line.writes = true,
            // Dropped without a word, tickets have failed.
            Err(_) => line.tickets.clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_state_is_there_when_its_ticket_is_done() {
        let folder = std::env::temp_dir().join(format!("ashlar-rsv-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("one");
        let kept = ReservationFile::open(&path).expect("none is there");
        assert_eq!(kept.kept, None);
        for state in 0..20u8 {
            let (ticket, receipt) = Ticket::new();
            kept.keeper.keep(vec![state; 5], ticket);
            while receipt.outcome().is_none() {
                std::thread::yield_now();
            }
            assert_eq!(receipt.outcome(), Some(true));
            assert_eq!(fs::read(&path).expect("there"), [state; 5]);
        }
        fs::remove_dir_all(&folder).expect("clean up");
        // Where nothing can be written that is told.
        let (ticket, receipt) = Ticket::new();
        kept.keeper.keep(vec![1], ticket);
        while receipt.outcome().is_none() {
            std::thread::yield_now();
        }
        assert_eq!(receipt.outcome(), Some(false));
    }
}
