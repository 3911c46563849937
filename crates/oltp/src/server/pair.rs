//! A primary and its standby, as one thing: built once, saved, and put back as a single server or as an
//! availability group.

use std::path::Path;

use ashlar_lab::LabError;
use serde::{Deserialize, Serialize};

use super::doors::Door;
use super::managed::{Managed, REPLICATOR};
use super::standby::NAME;
use super::{Commit, DATABASE, Server, Settings, can_limit_memory};

/// How many servers keep the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    Standalone,
    /// A primary and a synchronous standby.
    AvailabilityGroup,
}

impl std::fmt::Display for Topology {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Standalone => "standalone",
            Self::AvailabilityGroup => "availability group",
        })
    }
}

/// Two servers; the second is there once it was seeded.
#[derive(Debug)]
pub struct Pair {
    primary: Server,
    standby: Server,
    seeded: bool,
    /// Patroni, if it keeps them wherever they are a group.
    managed: Option<Box<Managed>>,
}

impl Pair {
    /// The servers in two directories, of which the primary's is made and started.
    ///
    /// # Errors
    /// As [`Server::start`]'s.
    pub fn start(primary: &Path, standby: &Path, settings: Settings) -> Result<Self, LabError> {
        Self::start_listening([primary, standby], settings, None)
    }

    /// The same; the primary listens there besides its socket.
    pub(crate) fn start_listening(
        [primary, standby]: [&Path; 2],
        settings: Settings,
        door: Option<Door>,
    ) -> Result<Self, LabError> {
        let pair = Self {
            primary: Server::at(primary)?.listening(door),
            standby: Server::at(standby)?,
            seeded: false,
            managed: None,
        };
        pair.primary.start(Some(settings))?;
        Ok(pair)
    }

    /// From now on Patroni keeps them wherever they run as a group, and clients come in by HAProxy. A commit waits
    /// until the standby has it durably, whatever was said when that was seeded. While a group runs, its own things
    /// and etcd's are in this directory, which is made and removed again.
    pub fn keep_by_patroni(&mut self, dir: &Path) {
        self.managed = Some(Box::new(Managed::at(dir.to_owned())));
    }

    /// Whether Patroni keeps them, wherever they run as a group.
    pub(crate) fn is_kept(&self) -> bool {
        self.managed.is_some()
    }

    pub fn primary(&self) -> &Server {
        &self.primary
    }

    pub fn standby(&self) -> &Server {
        &self.standby
    }

    /// What `--db` takes for the primary's database.
    pub fn url(&self) -> String {
        let listener = self.managed.as_ref().and_then(|managed| managed.url());
        listener.unwrap_or_else(|| self.primary.url(DATABASE))
    }

    /// Seeds the standby from the primary, which runs; commits wait for it from then on.
    ///
    /// # Errors
    /// As [`Server::add_standby`]'s.
    pub fn seed(&mut self, settings: Settings, commit: Commit) -> Result<(), LabError> {
        if self.managed.is_some() {
            self.primary.sql("postgres", REPLICATOR)?;
        }
        self.primary.add_standby(&self.standby, settings, commit)?;
        self.seeded = true;
        Ok(())
    }

    /// Stops and saves what there is.
    ///
    /// # Errors
    /// As [`Server::save`]'s.
    pub fn save(&self) -> Result<(), LabError> {
        // In this order the standby has everything that the primary has.
        self.stop()?;
        self.primary.save()?;
        if self.seeded {
            self.standby.save()
        } else {
            Ok(())
        }
    }

    /// Puts back what was saved and starts it with these settings.
    ///
    /// # Errors
    /// As [`Server::restore`]'s and [`Server::start`]'s; a group whose standby was never seeded.
    pub fn restore(&self, topology: Topology, settings: &Settings) -> Result<(), LabError> {
        self.stop()?;
        self.primary.restore()?;
        if topology == Topology::AvailabilityGroup && self.seeded {
            self.standby.restore()?;
        }
        self.start_as(topology, settings)
    }

    /// Stops what runs.
    ///
    /// # Errors
    /// As [`Server::stop`]'s.
    pub fn stop(&self) -> Result<(), LabError> {
        if let Some(managed) = &self.managed {
            managed.stop()?;
        }
        self.primary.stop()?;
        if self.seeded {
            self.standby.stop()?;
        }
        Ok(())
    }

    /// Starts what is stopped with these settings.
    ///
    /// # Errors
    /// As [`Server::start`]'s; a group whose standby was never seeded.
    pub fn start_as(&self, topology: Topology, settings: &Settings) -> Result<(), LabError> {
        let mut own = settings.clone();
        if topology == Topology::Standalone {
            own.set.push("synchronous_standby_names=".to_owned());
            self.primary.start(Some(own))?;
            return Ok(());
        }
        if !self.seeded {
            return Err(LabError::environment(
                "the group's standby was never seeded",
            ));
        }
        if let Some(managed) = &self.managed {
            return managed.start([&self.primary, &self.standby], settings);
        }
        // A primary that waits for its standby cannot do anything before that is there.
        self.primary.start_made(Some(own))?;
        let mut other = settings.clone();
        other.set.push(format!("cluster_name={NAME}"));
        self.standby.start_made(Some(other))?;
        self.primary.await_standby()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // Whatever is left of a run must not stay: what cannot be killed is not there.
        self.managed = None;
        let _ = self.primary.kill();
        let _ = self.standby.kill();
    }
}

/// Settings with a limit of memory, where there can be one; otherwise with PostgreSQL's own cache of the
/// size that it would have had, and why that is all.
pub fn limited(set: Vec<String>, bytes: u64) -> (Settings, Option<String>) {
    limited_by(super::shared_buffers, set, bytes)
}

/// The same of a kind of database with a cache of its own: what sets its size.
pub(crate) fn limited_by(
    cache: fn(&Settings) -> Option<String>,
    set: Vec<String>,
    bytes: u64,
) -> (Settings, Option<String>) {
    let memory_bytes = Some(bytes);
    let limited = Settings { memory_bytes, set };
    match can_limit_memory() {
        Ok(()) => (limited, None),
        Err(reason) => {
            let mut set = limited.set.clone();
            set.extend(cache(&limited));
            let settings = Settings {
                memory_bytes: None,
                set,
            };
            (settings, Some(reason))
        }
    }
}
