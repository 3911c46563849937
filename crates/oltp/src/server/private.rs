//! A private server in a directory, of whatever kind of database: made, started, stopped, killed, saved, put back.
//! Everything is below the directory: its data in `data`, its socket in `run`, what was saved in `saved`, its log in
//! `server.log`. What a kind does in its own way is an [`Engine`].

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ashlar_lab::{LONGEST_SOCKET, LabError};

use super::doors::Door;
use super::programs::give;
use super::{Cgroup, DATABASE, ServerStatus, Settings, copy};

/// Where a private server is, and whose.
#[derive(Debug)]
pub struct Room {
    pub(crate) dir: PathBuf,
    /// As whom its programs run, if we are root: numbers of user and group.
    pub(crate) user: Option<(u32, u32)>,
    /// If clients on other machines are to reach it.
    pub(crate) door: Option<Door>,
}

impl Room {
    /// Where its data are.
    pub(crate) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Where its socket is.
    pub(crate) fn run(&self) -> PathBuf {
        self.dir.join("run")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    fn saved(&self) -> PathBuf {
        self.dir.join("saved")
    }

    /// Makes a file or directory its user's.
    pub(crate) fn give(&self, path: &Path) -> Result<(), LabError> {
        give(path, self.user)
    }

    /// Takes an empty directory.
    fn claim(&self) -> Result<(), LabError> {
        let caused = |e| LabError::caused(self.dir.display(), e);
        std::fs::create_dir_all(&self.dir).map_err(caused)?;
        if let Some(other) = std::fs::read_dir(&self.dir).map_err(caused)?.next() {
            let other = other.map_err(caused)?.file_name();
            return Err(LabError::usage(format!(
                "{} holds other things ({}): a new server takes an empty directory",
                self.dir.display(),
                other.display()
            )));
        }
        self.give(&self.dir)
    }

    /// An error that says what the log says: the last line that names a cause, or the last one.
    pub(crate) fn complaint(&self, what: &str, is_cause: fn(&str) -> bool) -> LabError {
        let log = self.log();
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let error = said.lines().rev().find(|line| is_cause(line));
        let last = error.or(said.lines().last()).unwrap_or_default();
        LabError::environment(format!("{what}; {} says: {last}", log.display()))
    }
}

/// What is a kind's own.
pub trait Engine: Sized {
    /// Our mark: a directory with this file is one of ours, and it has the settings of last time.
    const MARK: &str;

    /// What is on this machine.
    ///
    /// # Errors
    /// There is none of it.
    fn here() -> Result<Self, LabError>;

    /// As whom it runs, if we are root.
    fn runs_as(&self) -> Option<(u32, u32)>;

    fn socket(&self, room: &Room) -> PathBuf;

    /// What `--db` takes for a database of it.
    fn url(&self, room: &Room, database: &str) -> String;

    /// Whether a server can be started so.
    ///
    /// # Errors
    /// A usage error that names what cannot be.
    fn check(&self, settings: &Settings) -> Result<(), LabError>;

    /// Makes its data.
    ///
    /// # Errors
    /// Its own complaint.
    fn make(&self, room: &Room) -> Result<(), LabError>;

    /// Starts it, in the group that limits its memory, and waits until it answers.
    ///
    /// # Errors
    /// Its own complaint.
    fn launch(
        &self,
        room: &Room,
        settings: &Settings,
        group: Option<&Cgroup>,
    ) -> Result<(), LabError>;

    /// Makes the database of the load, unless it is there.
    ///
    /// # Errors
    /// Its own complaint.
    fn make_database(&self, room: &Room) -> Result<(), LabError>;

    /// Its first process, if it runs.
    fn pid(&self, room: &Room) -> Option<u32>;

    /// Ends it in order.
    ///
    /// # Errors
    /// It does not end.
    fn shut_down(&self, room: &Room, pid: u32) -> Result<(), LabError>;

    /// Kills it and all its processes, as a crash would. Nothing of it stays behind outside of its directory.
    ///
    /// # Errors
    /// It does not go.
    fn kill(&self, room: &Room, pid: u32) -> Result<(), LabError>;
}

/// A private server.
#[derive(Debug)]
pub struct Private<E> {
    pub(super) room: Room,
    pub(super) engine: E,
}

impl<E: Engine> Private<E> {
    /// The server in a directory, which need not be there yet.
    ///
    /// # Errors
    /// There is none on this machine; a path too long for a socket.
    pub fn at(dir: &Path) -> Result<Self, LabError> {
        let dir = std::path::absolute(dir).map_err(|e| LabError::caused(dir.display(), e))?;
        let engine = E::here()?;
        let user = engine.runs_as();
        let room = Room {
            dir,
            user,
            door: None,
        };
        let socket = engine.socket(&room);
        if socket.as_os_str().len() > LONGEST_SOCKET {
            return Err(LabError::usage(format!(
                "{}: the path of a unix socket has at most {LONGEST_SOCKET} bytes: use a shorter one",
                socket.display()
            )));
        }
        Ok(Self { room, engine })
    }

    /// The same, which listens there besides its socket.
    pub(crate) fn listening(mut self, door: Option<Door>) -> Self {
        self.room.door = door;
        self
    }

    /// Where clients on other machines reach it.
    pub(crate) fn listens(&self) -> Option<SocketAddr> {
        self.room.door.as_ref().map(|door| door.at)
    }

    /// Whether a directory is one of ours.
    pub fn is_one(dir: &Path) -> bool {
        dir.join(E::MARK).exists()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.room.data()
    }

    /// Where its socket is.
    pub fn socket_dir(&self) -> PathBuf {
        self.room.run()
    }

    /// What `--db` takes for a database of it.
    pub fn url(&self, database: &str) -> String {
        self.engine.url(&self.room, database)
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.engine.pid(&self.room)
    }

    /// Makes it if it is not there, and starts it; settings that are not given are those of last time.
    ///
    /// # Errors
    /// The directory holds other things, the server runs already, or the server's own complaint.
    pub fn start(&self, settings: Option<Settings>) -> Result<ServerStatus, LabError> {
        settings
            .as_ref()
            .map_or(Ok(()), |it| self.engine.check(it))?;
        if !Self::is_one(&self.room.dir) {
            self.claim()?;
            self.engine.make(&self.room)?;
            self.keep(&Settings::default())?;
        }
        self.start_made(settings)?;
        self.engine.make_database(&self.room)?;
        self.status()
    }

    pub(super) fn claim(&self) -> Result<(), LabError> {
        self.room.claim()
    }

    /// Starts one that was made.
    pub(super) fn start_made(&self, settings: Option<Settings>) -> Result<(), LabError> {
        let dir = &self.room.dir;
        if let Some(pid) = self.pid() {
            let dir = dir.display();
            return Err(LabError::usage(format!(
                "{dir}: it runs already, as process {pid}"
            )));
        }
        let settings = match settings {
            Some(settings) => settings,
            None => self.settings()?,
        };
        self.engine.check(&settings)?;
        let run = self.room.run();
        std::fs::create_dir_all(&run).map_err(|e| LabError::caused(run.display(), e))?;
        self.room.give(&run)?;
        let limit = settings.memory_bytes;
        let group = limit.map(|bytes| Cgroup::make(dir, bytes)).transpose()?;
        let launched = self.engine.launch(&self.room, &settings, group.as_ref());
        if launched.is_err() && self.pid().is_none() {
            Cgroup::remove(dir);
        }
        launched?;
        // Only now: what it cannot be started with is not what it is started with next time.
        self.keep(&settings)
    }

    /// Stops it in order; false if it did not run.
    ///
    /// # Errors
    /// The server's own complaint.
    pub fn stop(&self) -> Result<bool, LabError> {
        self.end(E::shut_down)
    }

    /// Kills it and all its processes, as a crash would; false if it did not run.
    ///
    /// # Errors
    /// It cannot be killed, or does not go.
    pub fn kill(&self) -> Result<bool, LabError> {
        self.end(E::kill)
    }

    fn end(&self, how: fn(&E, &Room, u32) -> Result<(), LabError>) -> Result<bool, LabError> {
        self.ours()?;
        let pid = self.pid();
        if let Some(pid) = pid {
            how(&self.engine, &self.room, pid)?;
        }
        // Also that of a start which came to nothing.
        Cgroup::remove(&self.room.dir);
        Ok(pid.is_some())
    }

    /// Takes the limit of its memory away until the next start, if it has one.
    ///
    /// # Errors
    /// The cgroup cannot be changed.
    pub fn lift_limit(&self) -> Result<(), LabError> {
        match self.settings()?.memory_bytes {
            Some(_) => Cgroup::lift(&self.room.dir),
            None => Ok(()),
        }
    }

    /// Keeps a copy of its data, to be put back later. Stops it for that, and starts it again if it ran.
    ///
    /// # Errors
    /// It cannot be stopped, copied or started.
    pub fn save(&self) -> Result<(), LabError> {
        let ran = self.stop()?;
        copy::replace(&self.data(), &self.room.saved())?;
        if ran { self.start_made(None) } else { Ok(()) }
    }

    /// Puts the saved data back, checks that they are the saved ones, file by file, and drops them from the page cache.
    /// Starts it if it ran.
    ///
    /// # Errors
    /// Nothing was saved; it cannot be stopped, copied or started; what was put back is not the same.
    pub fn restore(&self) -> Result<(), LabError> {
        self.ours()?;
        let saved = self.room.saved();
        if !saved.exists() {
            let dir = self.room.dir.display();
            return Err(LabError::usage(format!("{dir}: nothing was saved")));
        }
        let ran = self.stop()?;
        copy::replace(&saved, &self.data())?;
        copy::same(&saved, &self.data())?;
        crate::files::forget(&self.data())?;
        if ran { self.start_made(None) } else { Ok(()) }
    }

    /// What it is at.
    ///
    /// # Errors
    /// The directory is not one of ours.
    pub fn status(&self) -> Result<ServerStatus, LabError> {
        Ok(ServerStatus {
            dir: self.room.dir.clone(),
            pid: self.pid(),
            url: self.url(DATABASE),
            settings: self.settings()?,
            saved: self.room.saved().exists(),
        })
    }

    pub(super) fn settings(&self) -> Result<Settings, LabError> {
        self.ours()?;
        let mark = self.room.dir.join(E::MARK);
        let caused = |e: String| LabError::caused(mark.display(), e);
        let text = std::fs::read_to_string(&mark).map_err(|e| caused(e.to_string()))?;
        serde_json::from_str(&text).map_err(|e| caused(e.to_string()))
    }

    pub(super) fn keep(&self, settings: &Settings) -> Result<(), LabError> {
        if self.settings().is_ok_and(|kept| kept == *settings) {
            return Ok(());
        }
        let mark = self.room.dir.join(E::MARK);
        let text = serde_json::to_string_pretty(settings);
        let text = text.map_err(|e| LabError::caused(mark.display(), e))?;
        // Half of it, after a power cut, would keep a database from its next start.
        ashlar_lab::write_whole(&mark, &text)
    }

    pub(super) fn ours(&self) -> Result<(), LabError> {
        if Self::is_one(&self.room.dir) {
            return Ok(());
        }
        let dir = self.room.dir.display();
        Err(LabError::usage(format!(
            "{dir}: there is no server of ours in it: `ashlar lab server start --dir {dir}` makes one in an \
             empty directory"
        )))
    }
}
