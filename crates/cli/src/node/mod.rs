//! `ashlar pool` and `ashlar volume`: a client of a daemon's API. And the frame of `ashlar node`.

mod assemble;
mod cache;
mod cache_rule;
mod cluster;
mod daemon;
mod events;
mod local;
mod membership;
mod pool;
mod pool_text;
mod quorum;
mod replace;
mod replication;
mod service;
mod supervise;
mod table;
mod volume;

use std::time::Duration;

use ashlar_device::parse_size;
use ashlar_node::Token;
use ashlar_node::client::{Client, Endpoint};
use ashlar_node::model::ControlError;
use serde::Serialize;

use crate::args::ApiOptions;
use crate::exit::Failure;
use crate::output::print;

pub(crate) use cache::run as cache;
pub(crate) use cluster::run as cluster;
pub(crate) use daemon::NodeArguments;
pub(crate) use events::run as events;
pub(crate) use membership::witness;
pub(crate) use pool::run as pool;
pub(crate) use table::{bytes, table, word};

/// What a daemon may take to come up: `ashlar node &` and the first order are often one script.
const START: Duration = Duration::from_secs(2);

/// `ashlar node`.
pub(crate) fn daemon(arguments: &NodeArguments) -> Result<(), Failure> {
    match &arguments.command {
        Some(command) => cluster::node(command),
        None => daemon::run(arguments, assemble::assemble),
    }
}

pub(crate) use service::{guard as service_guard, run as service};
pub(crate) use volume::run as volume;

/// The daemon that the options name.
pub(crate) struct Api {
    pub(crate) client: Client,
    endpoint: Endpoint,
    json: bool,
}

impl Api {
    pub(crate) fn new(options: &ApiOptions) -> Result<Self, Failure> {
        let text = options.api.as_deref().unwrap_or(Endpoint::DEFAULT);
        let endpoint: Endpoint = text.parse()?;
        let token = options.token_file.as_deref().map(Token::read).transpose()?;
        Ok(Self {
            client: Client::new(endpoint.clone(), token)?.with_patience(START),
            endpoint,
            json: options.json,
        })
    }

    /// Prints an answer: as JSON, or as people read it.
    fn show<T: Serialize>(
        &self,
        answer: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        if !self.json {
            return print(&text(answer));
        }
        let json = serde_json::to_string_pretty(answer);
        let json = json.map_err(|error| Failure::environment(format!("the answer: {error}")))?;
        print(&format!("{json}\n"))
    }

    /// A device as the daemon must be told: it has another working directory.
    fn device(&self, text: &str) -> Result<String, Failure> {
        let path = text.strip_prefix("file:").unwrap_or(text);
        let relative = match text.strip_prefix("file:") {
            Some(path) => !path.starts_with('/'),
            None => text.starts_with('.'),
        };
        if !relative || path.is_empty() {
            return Ok(text.into());
        }
        if let Endpoint::Tcp(_) = self.endpoint {
            return Err(Failure::usage(format!(
                "drive {text}: name it by its whole path; the daemon is elsewhere"
            )));
        }
        let (path, options) = match path.split_once('?') {
            Some((path, options)) => (path, format!("?{options}")),
            None => (path, String::new()),
        };
        let absolute = std::path::absolute(path)
            .map_err(|error| Failure::environment(format!("drive {text}: {error}")))?;
        Ok(format!("file:{}{options}", absolute.display()))
    }

    fn devices(&self, texts: &[String]) -> Result<Vec<String>, Failure> {
        texts.iter().map(|text| self.device(text)).collect()
    }
}

fn size(text: &str) -> Result<u64, Failure> {
    Ok(parse_size(text)?)
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        match error.kind.exit_code() {
            crate::exit::CHECK => Self::check(error),
            crate::exit::USAGE => Self::usage(error),
            _ => Self::environment(error),
        }
    }
}
