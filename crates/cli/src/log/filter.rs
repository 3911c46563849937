use std::fmt;
use std::str::FromStr;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// What every part of the program that logs is called first.
const PARTS: &str = "ashlar";

/// Which levels of which parts are logged.
#[derive(Clone, Debug)]
pub(crate) struct LogFilter {
    text: String,
    targets: Targets,
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let level = |word: &str| match word.parse::<LevelFilter>() {
            Ok(level) if !word.is_empty() => Ok(level),
            _ => Err(format!(
                "`{word}` is no level: there are error, warn, info, debug, trace and off"
            )),
        };
        let mut targets = Targets::new();
        for directive in text.split(',') {
            targets = match directive.trim().split_once('=') {
                None => targets.with_default(level(directive.trim())?),
                Some((part, word)) if part.starts_with(PARTS) => {
                    targets.with_target(part, level(word)?)
                }
                Some((part, _)) => {
                    return Err(format!(
                        "`{part}` is no part of this program: they are called ashlar_node, ashlar_store, \
                         ashlar_nvme_target, ashlar_attach …"
                    ));
                }
            };
        }
        Ok(Self {
            text: text.to_owned(),
            targets,
        })
    }
}

impl LogFilter {
    pub fn into_targets(self) -> Targets {
        self.targets
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    fn filter(text: &str) -> Targets {
        text.parse::<LogFilter>().expect(text).targets
    }

    #[test]
    fn a_filter_is_a_level_and_exceptions_by_part() {
        let some = filter("warn, ashlar_store=debug,ashlar_store::engine=off");
        assert!(some.would_enable("ashlar_node::manager", &Level::WARN));
        assert!(!some.would_enable("ashlar_node::manager", &Level::INFO));
        assert!(some.would_enable("ashlar_store::ring", &Level::DEBUG));
        assert!(!some.would_enable("ashlar_store::engine::append", &Level::ERROR));
        assert!(!filter("off").would_enable("ashlar_node", &Level::ERROR));
        assert!(filter("TRACE").would_enable("ashlar_node", &Level::TRACE));
    }

    #[test]
    fn a_word_that_means_nothing_is_named() {
        for (text, word) in [
            ("", "``"),
            ("inof", "`inof`"),
            ("info,ashlar_store=loud", "`loud`"),
            ("info,ashlar_store=", "``"),
            ("info,hyper=debug", "`hyper`"),
            ("info,,debug", "``"),
        ] {
            let why = text.parse::<LogFilter>().expect_err(text);
            assert!(why.contains(word), "{text}: {why}");
        }
    }
}
