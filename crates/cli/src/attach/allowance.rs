//! This host on a volume's list of those that may connect, as long as that is of use.

use std::time::{Duration, Instant};

use ashlar_node::model::{AllowHosts, DenyHosts, ErrorKind, VolumeName, VolumeStatus};

use crate::args::ApiOptions;
use crate::exit::Failure;
use crate::node::Api;

/// How long a daemon may take to notice that this host's last connection is gone.
pub(super) const GONE: Duration = Duration::from_secs(2);

/// A host that was allowed on a volume for an attachment that is being made.
pub(super) struct Allowance {
    api: Api,
    volume: VolumeName,
    host: String,
}

impl Allowance {
    /// Lets a host connect, if it may not; nothing is to be taken back if it might already.
    pub(super) fn give(
        options: &ApiOptions,
        volume: &VolumeStatus,
        (name, host): (&VolumeName, &str),
    ) -> Result<Option<Self>, Failure> {
        if volume.allow_any_host || volume.allow_hosts.iter().any(|other| other == host) {
            return Ok(None);
        }
        let allowance = Self {
            api: Api::new(options)?,
            volume: name.clone(),
            host: host.to_owned(),
        };
        let request = AllowHosts {
            hosts: vec![allowance.host.clone()],
            any_host: false,
        };
        allowance.api.client.allow_hosts(name, &request)?;
        eprintln!("ashlar: {name} lets this host connect from now on: {host}");
        Ok(Some(allowance))
    }

    /// Takes it back after the attachment was refused, unless the host is connected by then: another attachment
    /// would lose the volume.
    pub(super) fn take_back(self) {
        let (volume, host) = (&self.volume, &self.host);
        let told = match self.try_take_back() {
            Ok(true) => format!("{volume} does not let this host connect any more: {host}"),
            Ok(false) => {
                format!("{volume} goes on letting this host connect, since it is connected: {host}")
            }
            Err(failure) => format!(
                "{volume} goes on letting this host connect, {host}: {}",
                failure.message()
            ),
        };
        eprintln!("ashlar: {told}");
    }

    fn try_take_back(&self) -> Result<bool, Failure> {
        let until = Instant::now() + GONE;
        let request = DenyHosts {
            hosts: vec![self.host.clone()],
            ..DenyHosts::default()
        };
        loop {
            match self.api.client.deny_hosts(&self.volume, &request) {
                Ok(_) => return Ok(true),
                // It is connected.
                Err(error) if error.kind == ErrorKind::Refused => {}
                Err(error) => return Err(error.into()),
            }
            if Instant::now() > until {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
