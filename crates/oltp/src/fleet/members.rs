//! The databases of a fleet: made, built, each with its memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use ashlar_lab::units::human_bytes;
use ashlar_lab::{LabError, OwnFolder, Progress};

use super::file::{Engine, FleetScenario};
use super::nodes::Nodes;
use super::result::{FleetDatabase, FleetResult};
use crate::database::{Database, ServerPlace};
use crate::load::{BuildPlan, build};
use crate::postgres::{Logic, Postgres};
use crate::remote::{Entrance, RemoteUsers};
use crate::scenario::Place;
use crate::schema::Marker;
use crate::server::{DATABASE, Server, Settings, limited};
use crate::sqlite::Sqlite;

/// A server's processes take so much memory, whatever the size of its database.
const LEAST_MEMORY: u64 = 40 << 20;
const MEMORY_EACH_SESSION: u64 = 6 << 20;
/// Connections besides the sessions'.
const SPARE_CONNECTIONS: usize = 10;

/// All databases. Their servers are killed when it is dropped: their folders go, too.
pub(crate) struct Members {
    pub(crate) all: Vec<Member>,
}

/// Where they are made.
pub(crate) struct Ground<'a> {
    pub(crate) places: &'a [Place],
    pub(crate) folders: &'a [OwnFolder],
    pub(crate) nodes: &'a Nodes,
    /// Agents that have the streams; without, they are in this process.
    pub(crate) clients: Option<&'a RemoteUsers<'a>>,
}

/// A database of a fleet.
pub(crate) struct Member {
    pub(crate) name: String,
    /// The node that it is on, from 0.
    pub(crate) node: usize,
    pub(crate) database: Arc<dyn Database>,
    pub(crate) marker: Marker,
    /// Where its storage and processes can be looked at.
    pub(crate) place: ServerPlace,
    server: Own,
}

/// A server of this run's, if there is one; killed when it is dropped.
struct Own(Option<Server>);

impl Drop for Own {
    fn drop(&mut self) {
        // What cannot be killed is not there.
        let _ = self.0.as_ref().map(Server::kill);
    }
}

impl Members {
    /// Makes and builds them, one after the other, and tells of each in the result.
    pub(crate) fn make(
        file: &FleetScenario,
        ground: &Ground<'_>,
        progress: &Progress,
        result: &mut FleetResult,
    ) -> Result<Self, LabError> {
        let mut all = Vec::new();
        let count = file.fleet.databases;
        for number in 0..count {
            progress.go_on()?;
            let home = ground.nodes.home(number);
            let (mut member, told) = member(file, ground, number, progress)?;
            member.node = home.node;
            let place = &ground.places[home.place].name;
            progress.say(&format!(
                "database {} of {count} on {}: {}, memory {}",
                number + 1,
                place,
                human_bytes(told.bytes),
                told.memory_bytes
                    .map_or("not limited".to_owned(), human_bytes)
            ));
            result.databases.push(FleetDatabase {
                place: place.clone(),
                node: Nodes::name(home.node),
                ..told
            });
            all.push(member);
        }
        Ok(Self { all })
    }
}

fn member(
    file: &FleetScenario,
    ground: &Ground<'_>,
    number: usize,
    progress: &Progress,
) -> Result<(Member, FleetDatabase), LabError> {
    let name = format!("db-{}", number + 1);
    let folder = &ground.folders[ground.nodes.home(number).place];
    let door = ground.clients.map(RemoteUsers::door).transpose()?;
    let begun = Instant::now();
    let dir = folder.path().join(&name);
    let server = match file.fleet.engine {
        Engine::Sqlite => Own(None),
        Engine::Postgres => Own(Some(Server::at(&dir)?.listening(door))),
    };
    let database: Arc<dyn Database> = match &server.0 {
        None => Arc::new(Sqlite::new(dir.with_extension("db"))),
        Some(server) => {
            server.start(Some(Settings {
                memory_bytes: None,
                set: set(file),
            }))?;
            let url = server.url(DATABASE);
            Arc::new(Postgres::new(&url, Logic::Functions)?.until(progress))
        }
    };
    let listens = server.0.as_ref().and_then(Server::listens);
    if let Some((agents, address)) = ground.clients.zip(listens) {
        let entrance = Entrance {
            address,
            speaks: Logic::Functions.into(),
            at: agents.of_database(number),
        };
        agents.admit(database.as_ref(), entrance, &progress.quiet())?;
    }
    let plan = BuildPlan {
        shape: file.fleet.shape(),
        seed: file.measure.seed + number as u64,
        users: ashlar_lab::Machine::here().cores as usize,
        destroy_data: false,
    };
    build(database.as_ref(), &plan, &progress.quiet())?;
    let bytes = bytes(database.as_ref(), file.fleet.engine)?;
    let memory_bytes = server.limit(file, bytes)?;
    let told = FleetDatabase {
        name: name.clone(),
        place: String::new(),
        node: String::new(),
        bytes,
        memory_bytes: memory_bytes.as_ref().ok().copied().flatten(),
        memory_reason: memory_bytes.err(),
        seconds: begun.elapsed().as_secs_f64(),
    };
    let member = Member {
        name,
        node: 0,
        marker: crate::run::built(database.as_ref())?,
        place: database.watcher()?.place(),
        database,
        server,
    };
    Ok((member, told))
}

fn bytes(database: &dyn Database, engine: Engine) -> Result<u64, LabError> {
    let sql = match engine {
        Engine::Postgres => "SELECT pg_database_size(current_database())",
        Engine::Sqlite => {
            "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
        }
    };
    let bytes = database.watcher()?.number(sql)?;
    Ok(bytes.max(0).unsigned_abs())
}

impl Own {
    /// Starts it again with little memory; how much that is, or why there is no limit.
    fn limit(
        &self,
        file: &FleetScenario,
        bytes: u64,
    ) -> Result<Result<Option<u64>, String>, LabError> {
        let (Some(server), Some(percent)) = (&self.0, file.fleet.memory_pct) else {
            return Ok(Ok(None));
        };
        let least = LEAST_MEMORY + MEMORY_EACH_SESSION * file.fleet.sessions as u64;
        let wanted = (percent / 100.0 * bytes as f64) as u64;
        let (settings, reason) = limited(set(file), wanted.max(least));
        let memory_bytes = settings.memory_bytes;
        server.stop()?;
        server.start(Some(settings))?;
        Ok(match reason {
            Some(reason) => Err(reason),
            None => Ok(memory_bytes),
        })
    }
}

impl Member {
    /// Where agents reach its server, if it has one that listens.
    pub(crate) fn listens(&self) -> Option<SocketAddr> {
        self.server.0.as_ref().and_then(Server::listens)
    }

    /// What comes after a step, and is not measured, may take memory.
    pub(crate) fn lift_limit(&self) -> Result<(), LabError> {
        self.server.0.as_ref().map_or(Ok(()), Server::lift_limit)
    }
}

fn set(file: &FleetScenario) -> Vec<String> {
    let connections = file.fleet.sessions + SPARE_CONNECTIONS;
    let mut set = vec![format!("max_connections={connections}")];
    set.extend(file.fleet.set.iter().cloned());
    set
}
