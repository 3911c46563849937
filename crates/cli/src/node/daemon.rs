//! The frame of `ashlar node`: everything but what is behind the [`Control`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ashlar_cluster::{Cluster, ClusterConfig, Home, Kind, NodeConfig, Problem, Remembered};
use ashlar_node::model::{ControlError, Reads};
use ashlar_node::service::{Services, fence_left_behind};
use ashlar_node::{Config, Control, Daemon};
use ashlar_nvme_initiator::machine_host;
use ashlar_reactor::Spin;
use clap::Args;

use super::supervise;
use crate::args::{LogOptions, NodeCommand};
use crate::exit::Failure;
use crate::output::print;

/// Keeps pools and serves their volumes, until SIGINT or SIGTERM.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct NodeArguments {
    #[command(subcommand)]
    pub(crate) command: Option<NodeCommand>,
    /// Where the daemon keeps its state, its socket `api.sock` and its token `api.token`
    #[arg(long, value_name = "DIR", required = true)]
    pub(crate) dir: Option<PathBuf>,
    /// Settings (docs/api.md); what the command line says counts more
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where hosts connect; port 0 takes a free one [default: 127.0.0.1:4420]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Offer the API on TCP, too; callers need the token
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) api: Option<SocketAddr>,
    /// When cores that serve hosts spin before they sleep: auto (where a sleep would cost more, as measured), off, or for
    /// so many microseconds after every event, on cores that have nothing else to do [default: auto]
    #[arg(long, value_name = "auto|off|USEC")]
    pub(crate) spin: Option<Spin>,
    /// What reads of volumes with copies on several nodes rely on: leased (clocks within 1 %), or confirmed (a word of all
    /// other copies in sync after each batch of reads; for machines whose clocks may stop, as virtual ones that are
    /// suspended or moved; say it at all nodes) [default: leased]
    #[arg(long, value_name = "leased|confirmed")]
    pub(crate) reads: Option<Reads>,
    /// Speak no newer version of the protocol between nodes than this, as the program of before: the node may go back to
    /// that one [default: the newest of this program]
    #[arg(long, value_name = "VERSION")]
    pub(crate) protocol_at_most: Option<u16>,
    /// The cluster that the node is in, if it is written in a file (docs/replication.md); one that it has joined is in
    /// --dir
    #[arg(long, value_name = "FILE", requires = "name")]
    pub(crate) cluster: Option<PathBuf>,
    /// The node's name in it
    #[arg(long, value_name = "NAME", requires = "cluster")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

impl NodeArguments {
    /// A node of a cluster has a parent: `None` in the daemon, how the daemon has ended in the parent.
    fn supervise(&self) -> Option<Result<(), Failure>> {
        let dir = self.dir.as_deref()?;
        let (Some(file), Some(name)) = (&self.cluster, &self.name) else {
            return match self.home() {
                Ok(Some((home, me))) => supervise::supervise_home(&home, me.id, dir),
                Ok(None) => None,
                Err(failure) => Some(Err(failure)),
            };
        };
        let config = match ClusterConfig::read(file) {
            Ok(config) => config,
            Err(problem) => return Some(Err(failure(problem))),
        };
        match config.known(name).map(|node| node.id) {
            Ok(me) => supervise::supervise(&config, me, dir),
            Err(problem) => Some(Err(failure(problem))),
        }
    }

    /// What the directory says, if it is a node's that has joined a cluster.
    fn home(&self) -> Result<Option<(Home, NodeConfig)>, Failure> {
        let Some(dir) = self.dir.as_deref() else {
            return Ok(None);
        };
        let Some(home) = Home::open(dir).map_err(failure)? else {
            return Ok(None);
        };
        let shown = dir.display();
        if home.is_witness {
            return Err(Failure::usage(format!(
                "{shown} is a witness's: `ashlar witness --dir {shown}` starts it"
            )));
        }
        let me = home.node().cloned().ok_or_else(|| {
            Failure::environment(format!(
                "{shown}: node {} is not among the nodes of its cluster",
                home.name
            ))
        })?;
        Ok(Some((home, me)))
    }

    /// Where hosts connect, as the cluster says.
    fn portal(&self) -> Result<Option<SocketAddr>, Failure> {
        match self.cluster {
            Some(_) => Ok(None),
            None => Ok(self.home()?.and_then(|(_, me)| me.portal)),
        }
    }

    /// The node's cluster, joined.
    fn cluster(&self, daemon: &Daemon, newest: Option<u16>) -> Result<Option<Cluster>, Failure> {
        let (config, name) = match (&self.cluster, &self.name) {
            (Some(file), Some(name)) => (ClusterConfig::read(file).map_err(failure)?, name.clone()),
            _ => match self.home()? {
                Some((home, me)) => (home.config, me.name),
                None => return Ok(None),
            },
        };
        let config = config.speaking_at_most(newest).map_err(failure)?;
        let remembered = Remembered::read(daemon.path()).map_err(failure)?;
        let cluster = Cluster::start_as(config, &name, &remembered).map_err(failure)?;
        for volume in cluster.settle_recovery(daemon.path()).map_err(failure)? {
            tracing::warn!(%volume, "volume {volume}: the quorum was recovered, and it is in doubt: `volume show`");
        }
        let now = cluster.remembered(supervise::run_id());
        now.write(daemon.path()).map_err(failure)?;
        Ok(Some(cluster))
    }
}

pub(super) fn failure(problem: Problem) -> Failure {
    match problem.kind {
        Kind::Usage | Kind::Refused => Failure::usage(problem.message),
        Kind::Internal => Failure::check(problem.message),
        _ => Failure::environment(problem.message),
    }
}

/// Serves until SIGINT or SIGTERM; as a node of a cluster, in a child of this process. `assemble` imports the pools and begins to serve their volumes;
/// it comes after the directory is locked and before anything can be asked.
pub(crate) fn run(
    arguments: &NodeArguments,
    assemble: impl FnOnce(&Daemon, Option<Cluster>) -> Result<Arc<dyn Control>, Failure>,
) -> Result<(), Failure> {
    if let Some(ended) = arguments.supervise() {
        return ended;
    }
    let config = match &arguments.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    let config = config.overridden(arguments.listen, arguments.api);
    let config = config.spinning(arguments.spin).reading(arguments.reads);
    let config = config.speaking_at_most(arguments.protocol_at_most);
    let mut config = match arguments.portal()? {
        Some(portal) => config.listening_at(portal),
        None => config,
    };
    config.host = machine_host().map(|host| host.nqn);
    let dir = arguments.dir.as_deref();
    let dir = dir.ok_or_else(|| Failure::usage("a node has --dir"))?;
    let newest = config.protocol_at_most();
    let daemon = Daemon::open(dir, config)?;
    fence_left_behind(daemon.path())?;
    let cluster = arguments.cluster(&daemon, newest)?;
    let control = assemble(&daemon, cluster)?;
    let services = Services::open(daemon.path(), control.clone().ownership())?;
    control.keep_services(&services);
    let daemon = daemon.with_services(services.clone());
    // A closed standard output is no reason to stop serving; it is one not to start.
    let mut closed = None;
    let result = daemon.run(control, |ready| {
        services.set_api(ready.api);
        print(&format!("{ready}\n")).map_err(|failure| {
            closed = Some(failure);
            ControlError::environment("standard output is closed")
        })
    });
    match closed {
        Some(failure) => Err(failure),
        None => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use ashlar_node::testing::FakeControl;
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        node: NodeArguments,
    }

    fn parse(words: &[&str]) -> NodeArguments {
        Line::try_parse_from([&["node"], words].concat())
            .map(|line| line.node)
            .expect("valid")
    }

    #[test]
    fn the_command_line_counts_more_than_the_file() {
        let dir = tempfile::tempdir().expect("directory");
        let file = dir.path().join("ashlar.toml");
        std::fs::write(&file, "listen = '127.0.0.1:1'\ncores = [0]\n").expect("file");
        let (path, file) = (dir.path().to_str(), file.to_str());
        let (path, file) = (path.expect("text"), file.expect("text"));
        let arguments = parse(&["--dir", path, "--config", file, "--listen", "127.0.0.1:2"]);
        let mut seen = None;
        let result = run(&arguments, |daemon, _| {
            seen = Some((
                daemon.config().listen().port(),
                daemon.config().cores.clone(),
            ));
            Err(Failure::environment("a drive is missing"))
        });
        assert_eq!(seen, Some((2, vec![0])));
        let code = result.err().map(Failure::report);
        assert_eq!(code, Some(ExitCode::from(crate::exit::ENVIRONMENT)));
    }

    #[test]
    fn the_death_of_a_part_is_exit_code_one() {
        let dir = tempfile::tempdir().expect("directory");
        let arguments = parse(&["--dir", dir.path().to_str().expect("text")]);
        let control = Arc::new(FakeControl::new());
        let result = run(&arguments, |daemon, _| {
            daemon.alarm().raise("core 1 has died");
            Ok(control.clone())
        });
        let code = result.err().map(Failure::report);
        assert_eq!(code, Some(ExitCode::from(crate::exit::CHECK)));
        assert_eq!(control.stops(), 1, "what was assembled is stopped");
    }
}
