//! Agents that a scenario asks for (`measure.clients`) and the command line does not name: processes of this machine,
//! which end with the run.

use std::path::PathBuf;

use ashlar_lab::{Agents, Journal, LabError, Origin, OwnFolder, ScenarioFile};

use super::process::Process;

/// More would only wait for each other.
const MOST: u32 = 64;

/// Agents of one run.
pub struct OwnAgents {
    processes: Vec<Process>,
    agents: Agents,
    _folder: OwnFolder,
}

/// Refuses another number of clients than the scenario asks for.
pub fn check(file: &ScenarioFile, named: &Agents) -> Result<(), LabError> {
    let Some(wanted) = file.measure.clients else {
        return Ok(());
    };
    if !(1..=MOST).contains(&wanted) {
        return Err(LabError::usage(format!(
            "scenario: measure.clients = {wanted}: must be 1 to {MOST}"
        )));
    }
    match named.addresses.len() {
        0 => Ok(()),
        given if given == wanted as usize => Ok(()),
        given => Err(LabError::usage(format!(
            "--client: {given} given, and the scenario has measure.clients = {wanted}: give as many, or --set \
             measure.clients={given}"
        ))),
    }
}

impl OwnAgents {
    /// Starts as many as a scenario asks for; none if it asks for no more than one, which this process is, or if
    /// the command line names them.
    pub fn start(
        file: &ScenarioFile,
        origin: &Origin,
        journal: &mut Journal,
    ) -> Result<Option<Self>, LabError> {
        let wanted = file.measure.clients.unwrap_or(1);
        if wanted < 2 || !origin.clients.addresses.is_empty() {
            return Ok(None);
        }
        let folder = OwnFolder::make(&origin.dir)?;
        journal.made(folder.path())?;
        let token_file: PathBuf = folder.path().join("token");
        let (token, log) = (
            token_file.display().to_string(),
            folder.path().join("agents.log"),
        );
        let words = [
            "lab",
            "agent",
            "--listen",
            "127.0.0.1:0",
            "--token-file",
            &token,
        ];
        let mut processes = Vec::new();
        let mut addresses = Vec::new();
        for _ in 0..wanted {
            // One after the other: the first makes the token.
            let process = Process::start(&words, &log)?;
            let address = process.ready.first().cloned();
            addresses.extend(address);
            processes.push(process);
        }
        Ok(Some(Self {
            processes,
            agents: Agents {
                addresses,
                token_file,
                serve_on: origin.clients.serve_on,
            },
            _folder: folder,
        }))
    }

    /// Where they are.
    pub fn agents(&self) -> &Agents {
        &self.agents
    }

    /// Ends them in order.
    pub fn stop(self) -> Result<(), LabError> {
        let mut all = self.processes.into_iter();
        all.try_for_each(Process::stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(clients: &str, given: usize) -> Result<(), LabError> {
        let text = format!(
            "name = 'x'\n[measure]\nseconds = 1\n{clients}\n[[configuration]]\nname = 'a'\nstack = 'null:1GiB'\n"
        );
        let file = ScenarioFile::parse(&text).expect("sound");
        let agents = Agents {
            addresses: vec!["here:1".into(); given],
            ..Agents::default()
        };
        check(&file, &agents)
    }

    #[test]
    fn as_many_as_asked_for_or_none_are_given() {
        for (clients, given) in [("", 0), ("", 3), ("clients = 2", 0), ("clients = 2", 2)] {
            assert_eq!(checked(clients, given), Ok(()), "{clients} {given}");
        }
        for (clients, given, says) in [
            ("clients = 2", 3, "--set measure.clients=3"),
            ("clients = 0", 0, "must be 1 to 64"),
            ("clients = 65", 0, "must be 1 to 64"),
        ] {
            let error = checked(clients, given).expect_err(clients);
            assert!(
                error.exit_code() == 2 && error.to_string().contains(says),
                "{error}"
            );
        }
    }
}
