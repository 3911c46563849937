//! `ashlar lab server`.

use ashlar_device::parse_size;
use ashlar_lab::LabError;
use ashlar_oltp::MariaServer;
use ashlar_oltp::server::{Commit, Engine, Private, Server, ServerStatus, Settings};

use crate::args::{CommitWord, EngineWord, ServerAction, ServerArguments};
use crate::exit::Failure;
use crate::output::print;

pub(super) fn run(arguments: &ServerArguments) -> Result<(), Failure> {
    let starts = arguments.action == ServerAction::Start;
    let says_how = arguments.memory.is_some() || !arguments.set.is_empty();
    if !starts && (says_how || arguments.standby.is_some()) {
        return Err(Failure::usage(
            "--memory, --set and --standby are for start",
        ));
    }
    if arguments.engine == EngineWord::Mariadb || MariaServer::is_one(&arguments.dir) {
        return mariadb(arguments, says_how);
    }
    let server = Server::at(&arguments.dir)?;
    match arguments.action {
        ServerAction::Start => start(&server, arguments, says_how),
        ServerAction::Promote => show(arguments, &server.promote()?),
        action => common(&server, arguments, action),
    }
}

/// What is done to servers of every kind.
fn common<E: Engine>(
    server: &Private<E>,
    arguments: &ServerArguments,
    action: ServerAction,
) -> Result<(), Failure> {
    match action {
        ServerAction::Stop => told(arguments, server.stop()?, "stopped"),
        ServerAction::Kill => told(arguments, server.kill()?, "killed"),
        ServerAction::Save => {
            server.save()?;
            told(arguments, true, "saved")
        }
        ServerAction::Restore => {
            server.restore()?;
            told(arguments, true, "restored, as it was saved")
        }
        ServerAction::Start | ServerAction::Promote | ServerAction::Status => {
            show(arguments, &server.status()?)
        }
    }
}

fn mariadb(arguments: &ServerArguments, says_how: bool) -> Result<(), Failure> {
    let server = MariaServer::at(&arguments.dir)?;
    if arguments.standby.is_some() {
        return Err(Failure::usage("--standby: PostgreSQL's alone"));
    }
    match arguments.action {
        ServerAction::Start => {
            let kept = known(server.status())?;
            let settings = settings(arguments, &kept)?;
            show(arguments, &server.start(says_how.then_some(settings))?)
        }
        ServerAction::Promote => Err(Failure::usage(
            "promote: PostgreSQL's alone; a MariaDB has no standby",
        )),
        action => common(&server, arguments, action),
    }
}

fn start(server: &Server, arguments: &ServerArguments, says_how: bool) -> Result<(), Failure> {
    let kept = known(server.status())?;
    let settings = settings(arguments, &kept)?;
    let Some(standby) = &arguments.standby else {
        let status = server.start(says_how.then_some(settings))?;
        return show(arguments, &status);
    };
    if server.status().is_ok_and(|status| status.pid.is_some()) {
        // A server that runs takes neither.
        if !settings.is_like(&kept) {
            return Err(Failure::usage(format!(
                "--memory, --set: are of both servers, and {} runs already with others: stop it first",
                arguments.dir.display()
            )));
        }
    } else {
        server.start(Some(settings.clone()))?;
    }
    let status = server.add_standby(&Server::at(standby)?, settings, commit(arguments.commit))?;
    show(arguments, &status)
}

/// How it ran last; of one that is not there yet, nothing.
fn known(status: Result<ServerStatus, LabError>) -> Result<Settings, LabError> {
    match status {
        Ok(status) => Ok(status.settings),
        Err(LabError::Usage(_)) => Ok(Settings::default()),
        Err(error) => Err(error),
    }
}

pub(super) fn commit(word: CommitWord) -> Commit {
    match word {
        CommitWord::On => Commit::On,
        CommitWord::RemoteApply => Commit::RemoteApply,
        CommitWord::Local => Commit::Local,
    }
}

/// What is said, and of what is not, what was kept.
fn settings(arguments: &ServerArguments, kept: &Settings) -> Result<Settings, Failure> {
    let memory_bytes = match arguments.memory.as_deref() {
        None => kept.memory_bytes,
        Some("none") => None,
        Some(text) => {
            Some(parse_size(text).map_err(|error| LabError::usage(format!("--memory: {error}")))?)
        }
    };
    let name = |setting: &str| setting.split('=').next().map(|name| name.trim().to_owned());
    let is_said = |of: &&String| arguments.set.iter().any(|said| name(said) == name(of));
    let kept = kept.set.iter().filter(|of| !is_said(of));
    Ok(Settings {
        memory_bytes,
        set: kept.chain(&arguments.set).cloned().collect(),
    })
}

fn told(arguments: &ServerArguments, did: bool, what: &str) -> Result<(), Failure> {
    let dir = arguments.dir.display();
    match did {
        true => print(&format!("{dir}: {what}\n")),
        false => print(&format!("{dir}: it did not run\n")),
    }
}

fn show(arguments: &ServerArguments, status: &ServerStatus) -> Result<(), Failure> {
    if arguments.json {
        let text = serde_json::to_string_pretty(status)
            .map_err(|error| Failure::environment(error.to_string()))?;
        return print(&format!("{text}\n"));
    }
    let state = match status.pid {
        Some(pid) => format!("ready, process {pid}"),
        None => "not running".to_owned(),
    };
    let memory = match status.settings.memory_bytes {
        Some(bytes) => format!("{bytes} bytes"),
        None => "no limit".to_owned(),
    };
    print(&format!(
        "{state}\nurl: {}\nmemory: {memory}\nsettings: {}\nsaved: {}\n",
        status.url,
        status.settings.set.join(" "),
        if status.saved { "yes" } else { "no" },
    ))
}
