//! `--fault upgrade`: the program of all nodes is exchanged, one after the other, while hosts go on.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ashlar_lab::{LabError, Pulse};
use ashlar_node::model::{MoveVolume, NodeState, ProtocolOfCluster};
use ashlar_testbed::process::own_program;

use super::kinds::HaFault;
use super::round::Scene;

/// What nodes are upgraded to.
#[derive(Clone, Debug)]
pub(super) struct Upgrade {
    program: PathBuf,
    version: String,
}

impl Upgrade {
    /// A program, or this one.
    pub(super) fn to(program: Option<&Path>, schedule: &[HaFault]) -> Result<Self, LabError> {
        let Some(program) = program else {
            return Ok(Self {
                program: own_program()?,
                // All rooms have the program's.
                version: env!("CARGO_PKG_VERSION").to_owned(),
            });
        };
        if !schedule.contains(&HaFault::Upgrade) {
            return Err(LabError::usage(
                "--upgrade-to: nothing is upgraded: needs --fault upgrade, or a seed that draws it",
            ));
        }
        let refused =
            |why: &str| LabError::usage(format!("--upgrade-to {}: {why}", program.display()));
        let program =
            std::fs::canonicalize(program).map_err(|error| refused(&error.to_string()))?;
        let version = version_of(&program);
        let version = version.ok_or_else(|| {
            refused("it does not say \"ashlar VERSION\" when asked for --version")
        })?;
        Ok(Self { program, version })
    }
}

fn version_of(program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    let said = command
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let version = said.strip_prefix("ashlar ")?.split_whitespace().next()?;
    Some(version.to_owned())
}

/// One node after the other; the next one when all copies are in sync again. The first speaks an older version of the
/// protocol with the others before that, as one whose program is older, and owns the volume.
pub(super) fn roll(scene: &Scene<'_>, pulse: &Pulse) -> Result<(), LabError> {
    let Scene { nodes, upgrade, .. } = scene;
    if let Some(first) = nodes.names.first() {
        hold_back(scene, first, pulse)?;
    }
    for name in &nodes.names {
        nodes.end_daemon(name)?;
        nodes.set_program(name, &upgrade.program)?;
        nodes.set_protocol(name, None)?;
        start(scene, name)?;
        scene.await_answers(pulse, &format!("with the new program at node {name}"))?;
    }
    nodes
        .names
        .iter()
        .try_for_each(|name| expect_new(scene, name))
}

/// Begins a node; done when it can end again, and hosts notice nothing but that.
fn start(scene: &Scene<'_>, name: &str) -> Result<(), LabError> {
    let nodes = scene.nodes;
    nodes.start_node(name)?;
    nodes.await_ready(name, scene.progress)?;
    scene.await_in_sync()?;
    // Else the next node's end leaves them without a path until they try again.
    scene.eventually(&format!("hosts are back at node {name}"), |_| {
        let status = nodes.client(name)?.volume(&scene.volume);
        let status = status.map_err(|error| LabError::caused(format!("node {name}"), error))?;
        Ok(!status.connected_hosts.is_empty())
    })
}

/// The newest version of the protocol that a node speaks, and the oldest.
fn spoken(scene: &Scene<'_>, name: &str) -> Result<Option<ProtocolOfCluster>, LabError> {
    let view = scene.nodes.client(name)?.cluster();
    let view = view.map_err(|error| LabError::caused(format!("node {name}"), error))?;
    Ok(view.protocol)
}

/// A node goes on with what its program spoke before, first as one that others write to, then as owner.
fn hold_back(scene: &Scene<'_>, name: &str, pulse: &Pulse) -> Result<(), LabError> {
    let nodes = scene.nodes;
    let Some(all) = spoken(scene, name)?.filter(|all| all.oldest < all.newest) else {
        return Ok(());
    };
    let older = all.newest - 1;
    nodes.end_daemon(name)?;
    // Another one, of a round before, need not know how to.
    nodes.set_program(name, &own_program()?)?;
    nodes.set_protocol(name, Some(older))?;
    start(scene, name)?;
    scene.await_answers(pulse, &format!("beside node {name}, which speaks less"))?;
    let now = spoken(scene, name)?.map(|now| now.newest);
    if now != Some(older) {
        return Err(LabError::check(format!(
            "node {name} is to speak version {older} at the most, and says {now:?}"
        )));
    }
    let request = MoveVolume { to: name.into() };
    scene.eventually(&format!("node {name} serves"), |_| {
        let moved = nodes.client(name)?.move_volume(&scene.volume, &request);
        moved.map_err(|error| LabError::caused(&scene.volume, error))?;
        Ok(true)
    })?;
    scene.await_answers(pulse, &format!("by node {name}, which speaks less"))
}

/// A node is what it was upgraded to, and agrees with the others.
fn expect_new(scene: &Scene<'_>, name: &str) -> Result<(), LabError> {
    let Scene { nodes, upgrade, .. } = scene;
    let Upgrade { program, version } = upgrade;
    if !nodes.runs(name, program) {
        let program = program.display();
        return Err(LabError::check(format!(
            "node {name} was upgraded, and is not {program}"
        )));
    }
    let client = nodes.client(name)?;
    let failed = |error| LabError::caused(format!("node {name}"), error);
    let said = client.node().map_err(failed)?.version;
    if said != *version {
        return Err(LabError::check(format!(
            "node {name} was upgraded to version {version}, and says that it is {said}"
        )));
    }
    scene.eventually(&format!("node {name} reaches all others"), |_| {
        let view = client.cluster().map_err(failed)?;
        Ok(view.nodes.iter().all(|one| one.state == NodeState::Up))
    })
}
