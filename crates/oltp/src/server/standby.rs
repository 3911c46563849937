//! A synchronous standby: seeded by `pg_basebackup`, and promoted when the primary is gone.

use std::time::{Duration, Instant};

use ashlar_lab::LabError;
use serde::{Deserialize, Serialize};

use super::{OWNER, Server, ServerStatus, Settings};

/// What a primary waits for before it acknowledges a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Commit {
    /// The standby has it durably (`synchronous_commit=on`).
    #[default]
    On,
    /// The standby shows it to readers (`remote_apply`).
    RemoteApply,
    /// Nothing (`local`): what is lost with the primary is lost. For a test that must find that.
    Local,
}

impl Commit {
    /// PostgreSQL's word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::RemoteApply => "remote_apply",
            Self::Local => "local",
        }
    }
}

/// How long the standby may take to catch up.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(60);
pub(super) const NAME: &str = "ashlar_standby";

impl Server {
    /// Gives this server, which runs, a synchronous standby in another directory, and waits until
    /// commits wait for it.
    ///
    /// # Errors
    /// It does not run; the standby's directory holds something; PostgreSQL's own complaints.
    pub fn add_standby(
        &self,
        standby: &Self,
        settings: Settings,
        commit: Commit,
    ) -> Result<ServerStatus, LabError> {
        if self.pid().is_none() {
            let dir = self.room.dir.display();
            return Err(LabError::usage(format!(
                "{dir}: a primary must run to be copied"
            )));
        }
        standby.claim()?;
        let (data, run) = (standby.data(), self.socket_dir());
        let (data, run) = (data.display().to_string(), run.display().to_string());
        let port = super::doors::port(&self.room).to_string();
        let words = [
            "-D", &data, "-h", &run, "-p", &port, "-U", OWNER, "-R", "-X", "stream", "-c", "fast",
        ];
        standby.engine.run("pg_basebackup", &words)?;
        // By this name the primary knows it.
        let mut settings = settings;
        settings.set.push(format!("cluster_name={NAME}"));
        standby.keep(&settings)?;
        standby.start_made(None)?;
        self.wait_for_commits(commit)?;
        standby.status()
    }

    fn wait_for_commits(&self, commit: Commit) -> Result<(), LabError> {
        for sql in [
            format!("alter system set synchronous_standby_names = '{NAME}'"),
            format!("alter system set synchronous_commit = '{}'", commit.word()),
            "select pg_reload_conf()".to_owned(),
        ] {
            self.sql("postgres", &sql)?;
        }
        self.await_standby()
    }

    /// Waits until commits wait for the standby.
    pub(super) fn await_standby(&self) -> Result<(), LabError> {
        let state = "select count(*) from pg_stat_replication where sync_state = 'sync'";
        let patience = Instant::now() + CATCH_UP_TIMEOUT;
        while self.sql("postgres", state)? != "1" {
            if Instant::now() > patience {
                let dir = self.room.dir.display();
                return Err(LabError::environment(format!(
                    "{dir}: the standby is not synchronous after {CATCH_UP_TIMEOUT:?}"
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Cuts a standby off from its primary: it receives nothing from now on, whatever the primary does.
    ///
    /// # Errors
    /// It does not run, or does not let go.
    pub fn cut_off(&self) -> Result<(), LabError> {
        self.ours()?;
        self.sql("postgres", "alter system set primary_conninfo = ''")?;
        self.sql("postgres", "select pg_reload_conf()")?;
        let patience = Instant::now() + CATCH_UP_TIMEOUT;
        while self.sql("postgres", "select count(*) from pg_stat_wal_receiver")? != "0" {
            if Instant::now() > patience {
                let dir = self.room.dir.display();
                return Err(LabError::environment(format!(
                    "{dir}: the standby is not cut off after {CATCH_UP_TIMEOUT:?}"
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Makes a standby the primary, which waits for no standby from then on.
    ///
    /// # Errors
    /// It does not run, or is no standby.
    pub fn promote(&self) -> Result<ServerStatus, LabError> {
        self.ours()?;
        if self.pid().is_none() || self.sql("postgres", "select pg_is_in_recovery()")? != "t" {
            let dir = self.room.dir.display();
            return Err(LabError::usage(format!(
                "{dir}: there is no running standby in it"
            )));
        }
        let data = self.data().display().to_string();
        self.engine
            .run("pg_ctl", &["-D", &data, "-w", "-t", "300", "promote"])?;
        self.sql(
            "postgres",
            "alter system set synchronous_standby_names = ''",
        )?;
        self.sql("postgres", "select pg_reload_conf()")?;
        self.status()
    }
}
