use std::future::pending;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener as UnixListenerOfStd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::api::{ApiSocket, ApiTcp, Context, router, serve};
use crate::model::ControlError;
use crate::service::Services;
use crate::{Alarm, Config, Control, NodeDir, StateFile, Token};

/// How long requests under way may take when the daemon ends.
const LAST_CALLS: Duration = Duration::from_secs(60);

/// Signals that come so soon after the first are the same wish: what manages services signals parent and child, and the
/// parent passes its own on.
const SAME_WISH: Duration = Duration::from_secs(1);

/// What everything listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Where hosts connect.
    pub address: SocketAddr,
    /// The API's socket.
    pub socket: PathBuf,
    /// Where the API listens on TCP, if it does.
    pub api: Option<SocketAddr>,
}

impl std::fmt::Display for Ready {
    /// The line that says that hosts and orders can come.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ready {} {}", self.address, self.socket.display())?;
        match self.api {
            Some(api) => write!(f, " http://{api}"),
            None => Ok(()),
        }
    }
}

/// A daemon, from the lock on its directory to its orderly end.
///
/// ```text
/// open:  lock, state, token, signals ─▶ (pools are imported, hosts served: a Control) ─▶ run
/// run:   listen ─▶ ready ─▶ SIGTERM, SIGINT or alarm ─▶ API ends ─▶ calls end ─▶ Control::stop
/// ```
pub struct Daemon {
    dir: NodeDir,
    state: Arc<StateFile>,
    token: Option<Token>,
    config: Config,
    alarm: Alarm,
    heard: UnboundedReceiver<String>,
    signals: Signals,
    runtime: Runtime,
    services: Option<Arc<Services>>,
}

/// Where attachments are taken; the socket's file goes when this is dropped.
pub struct AttachSocket {
    listener: UnixListenerOfStd,
    _file: ApiSocket,
}

impl AttachSocket {
    /// It listens.
    pub fn listener(&self) -> &UnixListenerOfStd {
        &self.listener
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    async fn next(&mut self) {
        tokio::select! {
            Some(()) = self.terminate.recv() => {}
            Some(()) = self.interrupt.recv() => {}
            else => pending().await,
        }
    }

    /// One that is a wish of its own, after one that has just come.
    async fn another(&mut self) {
        let first = Instant::now();
        loop {
            self.next().await;
            if first.elapsed() >= SAME_WISH {
                return;
            }
        }
    }
}

impl Daemon {
    /// Locks the directory and reads what is in it. From here on SIGTERM and SIGINT wait for
    /// [`run`](Self::run).
    ///
    /// # Errors
    /// Conflict: another daemon has the directory. Environment: something in it cannot be used.
    pub fn open(dir: &Path, config: Config) -> Result<Self, ControlError> {
        let cannot =
            |error: std::io::Error| ControlError::environment(format!("cannot start: {error}"));
        let dir = NodeDir::lock(dir)?;
        let state = Arc::new(StateFile::open(&dir.state())?);
        let token = config.api.map(|_| Token::open(&dir.token())).transpose()?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .thread_name("control")
            .build()
            .map_err(cannot)?;
        let signals = {
            let _inside = runtime.enter();
            Signals {
                terminate: signal(SignalKind::terminate()).map_err(cannot)?,
                interrupt: signal(SignalKind::interrupt()).map_err(cannot)?,
            }
        };
        let (alarm, heard) = Alarm::new();
        Ok(Self {
            dir,
            state,
            token,
            config,
            alarm,
            heard,
            signals,
            runtime,
            services: None,
        })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Keeps these services, too: the API tells of them.
    pub fn with_services(mut self, services: Arc<Services>) -> Self {
        self.services = Some(services);
        self
    }

    /// What is remembered.
    pub fn state(&self) -> Arc<StateFile> {
        self.state.clone()
    }

    /// What the operator has set.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Listens where attachments are taken; the caller serves them. As private as the API's socket.
    ///
    /// # Errors
    /// Conflict: something else has the name. Environment: the rest.
    pub fn attach_socket(&self) -> Result<AttachSocket, ControlError> {
        let (_file, listener) = ApiSocket::listen(&self.dir.attach_socket())?;
        Ok(AttachSocket { listener, _file })
    }

    /// What every part of the daemon raises when it dies.
    pub fn alarm(&self) -> Alarm {
        self.alarm.clone()
    }

    /// Serves the API, says `ready`, and ends in order when it is told to.
    ///
    /// # Errors
    /// Whatever keeps it from listening, or what `ready` refuses; then `control` is stopped, too.
    /// Internal: a part has died, or the end was not an orderly one.
    pub fn run(
        self,
        control: Arc<dyn Control>,
        ready: impl FnOnce(&Ready) -> Result<(), ControlError>,
    ) -> Result<(), ControlError> {
        let Self {
            dir,
            token,
            config,
            alarm,
            heard,
            signals,
            runtime,
            services,
            ..
        } = self;
        let context = Context::new(control.clone(), alarm, dir.path().into(), services.clone())?;
        let mut running = Running {
            context,
            heard,
            signals,
        };
        let result = runtime.block_on(async {
            let result = running.serve(&dir, &config, token, ready).await;
            if let Some(services) = services {
                services.leave();
            }
            let ended = running.end(control).await;
            result.and(ended)
        });
        // A call that did not end in time must not keep the process.
        runtime.shutdown_background();
        result
    }
}

struct Running {
    context: Context,
    heard: UnboundedReceiver<String>,
    signals: Signals,
}

impl Running {
    /// From listening to the end of the last connection.
    async fn serve(
        &mut self,
        dir: &NodeDir,
        config: &Config,
        token: Option<Token>,
        ready: impl FnOnce(&Ready) -> Result<(), ControlError>,
    ) -> Result<(), ControlError> {
        let cannot =
            |error: std::io::Error| ControlError::environment(format!("cannot listen: {error}"));
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let tcp = config.api.map(ApiTcp::listen).transpose()?;
        let api = tcp.as_ref().map(|tcp| tcp.address);
        // Dropped, and so removed, when no connection is left.
        let (_socket, unix) = ApiSocket::listen(&dir.socket())?;
        let unix = UnixListener::from_std(unix).map_err(cannot)?;
        let router = router(self.context.clone());
        tasks.spawn(serve(unix, router.clone(), None, stopped.clone()));
        if let (Some(tcp), Some(token)) = (tcp, token) {
            let tcp = TcpListener::from_std(tcp.listener).map_err(cannot)?;
            tasks.spawn(serve(tcp, router, Some(token), stopped));
        }
        let address = self
            .context
            .calls()
            .call(|control| Ok(control.address()))
            .await?;
        // A daemon that is dying already does not say that it is ready.
        if let Ok(why) = self.heard.try_recv() {
            return Err(ControlError::internal(why));
        }
        dir.keep();
        ready(&Ready {
            address,
            socket: dir.socket(),
            api,
        })?;
        let result = self.wait(&mut tasks).await;
        // There is no receiver when both tasks have died.
        let _ = stop.send(true);
        while tasks.join_next().await.is_some() {}
        result
    }

    /// Waits for a reason to end: a signal, or a death.
    async fn wait(&mut self, tasks: &mut JoinSet<Result<(), String>>) -> Result<(), ControlError> {
        let why = tokio::select! {
            () = self.signals.next() => return Ok(()),
            Some(why) = self.heard.recv() => why,
            Some(ended) = tasks.join_next() => match ended {
                Ok(Ok(())) => "the API has ended by itself".to_owned(),
                Ok(Err(why)) => format!("the API has died: {why}"),
                Err(error) => format!("the API has died: {error}"),
            },
        };
        Err(ControlError::internal(why))
    }

    /// Lets the last calls end, and stops what is behind them. A second signal breaks this off.
    async fn end(mut self, control: Arc<dyn Control>) -> Result<(), ControlError> {
        let Self {
            context, signals, ..
        } = &mut self;
        let end = async {
            if !context.calls().end(LAST_CALLS).await {
                return Err(ControlError::internal(format!(
                    "a request has not ended within {} s: stopping without it",
                    LAST_CALLS.as_secs()
                )));
            }
            match tokio::task::spawn_blocking(move || control.stop()).await {
                Ok(result) => result,
                Err(error) => Err(ControlError::internal(format!("the end has died: {error}"))),
            }
        };
        tokio::select! {
            result = end => result,
            () = signals.another() => {
                Err(ControlError::internal("a second signal: ended without settling"))
            }
        }
    }
}
