//! `--pool CONFIGURATION=LAYOUT[,KEY=VALUE…]`: another pool than the scenario's under a configuration; `--nodes N`: a copy
//! on each of so many nodes.

use toml::{Table, Value};

use super::overrides::parse;
use crate::LabError;

/// Keys of a pool besides its layout: those that are numbers, and those that are words.
const NUMBERS: [&str; 5] = ["drives", "fast", "full_pct", "hot_share", "nodes"];
const WORDS: [&str; 3] = ["media", "hot", "place"];

/// A scenario's text with these pools under its configurations: what is not named of a pool stays as it is, a key
/// without a value goes, and a stack that was measured instead goes as well.
///
/// # Errors
/// A usage error that names the option, with the configurations or the keys that there are.
pub fn with_pools(text: &str, pools: &[String]) -> Result<String, LabError> {
    if pools.is_empty() {
        return Ok(text.to_owned());
    }
    let mut table = parse(text)?;
    for option in pools {
        let usage = |why: String| LabError::usage(format!("--pool {option}: {why}"));
        put(&mut table, option).map_err(usage)?;
    }
    toml::to_string(&table).map_err(|error| LabError::caused("--pool", error))
}

/// A scenario's text with all pools on so many nodes, each with a copy.
///
/// # Errors
/// A usage error that names a configuration without a pool.
pub fn with_nodes(text: &str, nodes: Option<usize>) -> Result<String, LabError> {
    let Some(nodes) = nodes else {
        return Ok(text.to_owned());
    };
    let mut table = parse(text)?;
    let usage = |why: String| LabError::usage(format!("--nodes {nodes}: {why}"));
    let count = i64::try_from(nodes).map_err(|error| usage(error.to_string()))?;
    let all = table.get_mut("configuration").and_then(Value::as_array_mut);
    for of in all.into_iter().flatten() {
        let name = of.get("name").and_then(Value::as_str).map(str::to_owned);
        let has_stack = of.get("stack").is_some();
        let pool = of.get_mut("pool").and_then(Value::as_table_mut);
        let Some(pool) = pool.filter(|_| !has_stack) else {
            let name = name.unwrap_or_default();
            return Err(usage(format!(
                "configuration {name:?} has no pool: give it one, --pool '{name}=mirror:1,drives=1'"
            )));
        };
        pool.insert("nodes".to_owned(), Value::Integer(count));
    }
    toml::to_string(&table).map_err(|error| LabError::caused("--nodes", error))
}

fn put(table: &mut Table, option: &str) -> Result<(), String> {
    let (name, shape) = option
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or("must be CONFIGURATION=LAYOUT[,KEY=VALUE…]")?;
    let all = table.get_mut("configuration").and_then(Value::as_array_mut);
    let all: &mut [Value] = all.map_or(&mut [], |all| &mut all[..]);
    let name_of = |of: &Value| of.get("name").and_then(Value::as_str).map(str::to_owned);
    let names: Vec<String> = all.iter().filter_map(name_of).collect();
    let at = all
        .iter()
        .position(|of| name_of(of).as_deref() == Some(name));
    let section = at.and_then(|at| all[at].as_table_mut());
    let section = section.ok_or_else(|| {
        let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
        format!(
            "there is no configuration {name:?}; there are {}",
            names.join(", ")
        )
    })?;
    // What a stack was measured with is nothing of a pool's.
    section.remove("stack");
    section.remove("remote");
    let pool = section
        .entry("pool")
        .or_insert_with(|| Value::Table(Table::new()));
    let pool = pool.as_table_mut().ok_or("its pool is no table")?;
    change(pool, shape)?;
    match pool.contains_key("drives") {
        true => Ok(()),
        false => Err(format!(
            "{name:?} had no pool: how many drives? say drives=N"
        )),
    }
}

/// A pool's layout, and what follows it.
fn change(pool: &mut Table, shape: &str) -> Result<(), String> {
    let mut parts = parts(shape).into_iter();
    let layout = parts.next().filter(|layout| !layout.is_empty());
    let layout = layout.ok_or("a layout must come first, such as mirror:2 or parity:4+1")?;
    if layout.contains('=') {
        return Err(format!("{layout}: a layout must come first"));
    }
    pool.insert("layout".to_owned(), Value::String(layout));
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((&part, ""));
        if value.is_empty() && part.ends_with('=') && key != "drives" && is_key(key) {
            pool.remove(key);
            continue;
        }
        let value = match key {
            _ if value.is_empty() || !is_key(key) => {
                return Err(format!(
                    "{part}: must be KEY=VALUE with a key of {}, {}",
                    NUMBERS.join(", "),
                    WORDS.join(", ")
                ));
            }
            _ if NUMBERS.contains(&key) => Value::Integer(
                value
                    .parse()
                    .map_err(|_| format!("{part}: must be a number"))?,
            ),
            _ => Value::String(value.to_owned()),
        };
        pool.insert(key.to_owned(), value);
    }
    Ok(())
}

fn is_key(key: &str) -> bool {
    NUMBERS.contains(&key) || WORDS.contains(&key)
}

/// Parts between commas; a media model has commas of its own (`hdd:model=10k,raid=5`).
fn parts(shape: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for part in shape.split(',') {
        let key = part.split_once('=').map_or(part, |(key, _)| key);
        match parts.last_mut() {
            Some(last) if last.starts_with("media=") && !is_key(key) => {
                last.push(',');
                last.push_str(part);
            }
            _ => parts.push(part.to_owned()),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::super::ScenarioFile;
    use super::*;
    use crate::Pool;

    const TEXT: &str = "name = 'x'\n[measure]\nsize = '1GiB'\nseconds = 1\n\
                        [[configuration]]\nname = 'parity 4+1'\n\
                        pool = { layout = 'parity:4+1', drives = 5, hot = 'mirror:2', hot_share = 20 }\n\
                        [[configuration]]\nname = 'plain'\nstack = 'file:/x'\nremote = true\n\
                        [[matrix]]\npattern = 'randread'\nblock = ['4k']\nthreads = [1]\ndepth = [1]\n";

    fn pools(options: &[&str]) -> Result<Vec<Option<Pool>>, LabError> {
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let file = ScenarioFile::parse(&with_pools(TEXT, &options)?)?;
        file.plan()?;
        let all = file.configuration.into_iter();
        Ok(all
            .filter(|of| of.stack.is_empty())
            .map(|of| of.pool)
            .collect())
    }

    #[test]
    fn what_is_named_of_a_pool_is_changed_and_nothing_else() {
        let found =
            pools(&["parity 4+1=mirror:3,media=hdd:model=10k,raid=5,fast=2,hot_share=,hot="]);
        let wanted = Pool {
            layout: "mirror:3".into(),
            drives: 5,
            media: Some("hdd:model=10k,raid=5".into()),
            fast: 2,
            ..Pool::default()
        };
        assert_eq!(found.expect("sound"), [Some(wanted)]);
        let found = pools(&["plain=mirror:2,drives=4"]).expect("sound");
        assert_eq!(
            found[0].as_ref().and_then(|pool| pool.hot.as_deref()),
            Some("mirror:2")
        );
        let wanted = Pool {
            layout: "mirror:2".into(),
            drives: 4,
            ..Pool::default()
        };
        assert_eq!(found[1], Some(wanted), "in the place of its stack");
        assert_eq!(with_pools(TEXT, &[]).as_deref(), Ok(TEXT), "comments stay");
    }

    #[test]
    fn all_pools_are_on_as_many_nodes_and_what_is_none_is_named() {
        let nodes = |text: &str, count| {
            let file = ScenarioFile::parse(&with_nodes(text, Some(count))?)?;
            file.plan()
        };
        let options = ["plain=mirror:2,drives=2,place=other".to_owned()];
        let text = with_pools(TEXT, &options).expect("sound");
        let plan = nodes(&text, 2).expect("a plan");
        let usable = |at: usize| plan.configurations[at].pool.as_ref()?.usable_pct();
        // Of 1.4 bytes for a byte, twice.
        assert!(usable(0).is_some_and(|pct| (pct - 50.0 / 1.4).abs() < 0.1));
        assert_eq!(usable(1), Some(25.0));
        let words = |at: usize| {
            let pool = plan.configurations[at].pool.as_ref();
            pool.expect("a pool").words(1 << 30)
        };
        assert!(
            words(0).contains("5 drives of each of 2 nodes, a copy on each, clients at the owner")
        );
        assert!(
            words(1).contains("another node, which forwards"),
            "{}",
            words(1)
        );
        for (text, count, says) in [
            (TEXT, 2, "\"plain\" has no pool"),
            (&*text, 4, "nodes = 4: must be 1 to 3"),
            (&*text, 0, "nodes = 0: must be 1 to 3"),
            (&*text, 1, "place: at which"),
        ] {
            let error = nodes(text, count).expect_err(says);
            let told = error.to_string();
            assert!(error.exit_code() == 2 && told.contains(says), "{told}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_there_is() {
        for (wrong, says) in [
            ("parity=mirror:2", "there are \"parity 4+1\", \"plain\""),
            ("mirror:2", "CONFIGURATION=LAYOUT"),
            ("plain=mirror:2", "drives=N"),
            ("plain=", "a layout must come first"),
            ("plain=drives=4", "a layout must come first"),
            ("plain=mirror:2,drives=four", "must be a number"),
            ("plain=mirror:2,drives=", "a key of drives, fast"),
            ("plain=mirror:2,speed=4", "a key of drives, fast"),
            ("plain=mirror:2,drives=4,hot", "hot: must be KEY=VALUE"),
            ("plain=mirror:2,drives=4,full_pct=99", "must be 1 to 90"),
        ] {
            let error = pools(&[wrong]).expect_err(wrong);
            assert!(
                error.exit_code() == 2 && error.to_string().contains(says),
                "{wrong}: {error}"
            );
        }
    }
}
