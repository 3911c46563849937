//! `ashlar cache rule`.

use ashlar_node::model::{CacheRule, PutRule, RemoveRule, VolumeName};
use ashlar_node::rules::{RENEW_EVERY, look_up, this_host};

use super::Api;
use super::table::{bytes, table};
use crate::args::RuleCommand;
use crate::exit::Failure;
use crate::output::print;

pub(super) fn run(command: &RuleCommand) -> Result<(), Failure> {
    match command {
        RuleCommand::Add {
            volume,
            exclude,
            api,
        } => {
            let api = Api::new(api)?;
            let rule = put(&api, volume, (exclude, false))?;
            api.show(&rule, |rule| {
                let (files, size) = (rule.files, bytes(rule.bytes));
                format!("{exclude}: {files} files, {size} of {volume}, are kept out of its cache\n")
            })
        }
        RuleCommand::List { volume, api } => {
            let api = Api::new(api)?;
            let rules = api.client.cache_rules(volume)?;
            api.show(&rules, |rules| listed(rules))
        }
        RuleCommand::Remove {
            volume,
            exclude,
            api,
        } => {
            let api = Api::new(api)?;
            let request = RemoveRule {
                exclude: exclude.clone(),
            };
            api.client.remove_cache_rule(volume, &request)?;
            print(&format!("{exclude}: is kept out of {volume} no more\n"))
        }
        RuleCommand::Renew { volume, api } => renew(&Api::new(api)?, volume),
    }
}

/// Tells the daemon where the files of a rule lie.
fn put(
    api: &Api,
    volume: &VolumeName,
    (exclude, renews): (&str, bool),
) -> Result<CacheRule, Failure> {
    let status = api.client.volume(volume)?;
    if status.cache.is_none() {
        return Err(Failure::environment(format!(
            "volume {volume} caches nothing"
        )));
    }
    let extents = look_up(exclude, &status)?;
    if extents.files == 0 && !renews {
        return Err(Failure::usage(format!("{exclude}: matches no file")));
    }
    let request = PutRule {
        exclude: exclude.to_owned(),
        host: this_host(),
        renews,
        extents,
    };
    Ok(api.client.put_cache_rule(volume, &request)?)
}

/// Until it is interrupted. What goes wrong is said, and tried again.
fn renew(api: &Api, volume: &VolumeName) -> Result<(), Failure> {
    let host = this_host();
    loop {
        let rules = api.client.cache_rules(volume)?;
        for rule in rules.iter().filter(|rule| rule.host == host) {
            if let Err(error) = put(api, volume, (&rule.exclude, true)) {
                eprintln!("ashlar: {}", error.message());
            }
        }
        std::thread::sleep(RENEW_EVERY);
    }
}

fn listed(rules: &[CacheRule]) -> String {
    if rules.is_empty() {
        return "nothing is kept out by hand\n".to_owned();
    }
    let head = [
        "EXCLUDE", "HOST", "FILES", "SIZE", "RENEWED", "READS", "WRITES",
    ];
    let rows = rules.iter().map(|rule| {
        let renewed = rule.renewed_s;
        vec![
            rule.exclude.clone(),
            rule.host.clone(),
            rule.files.to_string(),
            bytes(rule.bytes),
            renewed.map_or_else(
                || "never".to_owned(),
                |seconds| format!("{seconds:.0} s ago"),
            ),
            rule.reads.to_string(),
            rule.writes.to_string(),
        ]
    });
    let mut text = table(&head, &rows.collect::<Vec<_>>());
    for rule in rules {
        if let Some(why) = &rule.warning {
            text.push_str(&format!("warning: {}: {why}\n", rule.exclude));
        }
    }
    text
}
