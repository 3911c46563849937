//! The rules inside of `store`: who owns what of the engine, which floor stands on which, and what is not passed
//! over in silence. Numbers are of what is left to be done: they only go down.

use std::collections::BTreeSet;

use super::{code_lines, sources};

const STORE: &str = "crates/store/src/";

/// The files of `store` but its tests, without comments.
fn files() -> Vec<(String, String)> {
    let code = |source: &str| {
        let lines = code_lines(source).map(|(_, line)| line);
        lines.collect::<Vec<_>>().join("\n")
    };
    let files = sources().into_iter();
    let files = files.filter_map(|(path, source)| {
        let path = path.strip_prefix(STORE)?;
        (!path.contains("/tests/")).then(|| (path.to_owned(), code(&source)))
    });
    files.collect()
}

/// The ways to go on in silence when something is not there, and how many of each are in the engine, and in what
/// else reads drives. Each is one where that may be: what cannot be is an `invariant!`, or an error.
const SILENCE: &[(&str, usize, usize)] = &[
    ("else {return;}", 20, 0),
    ("else {return false;}", 17, 0),
    ("else {return None;}", 3, 0),
    ("else {return Vec::new();}", 3, 0),
    ("else {continue;}", 10, 10),
    ("else {break;}", 8, 0),
    (".unwrap_or_default()", 16, 4),
    (".unwrap_or(0)", 19, 3),
    (".map_or(0,", 24, 0),
];

#[test]
fn what_cannot_be_is_not_passed_over() {
    let lines = |(path, code): (String, String)| {
        // A block on one line is a block.
        let code = code.replace("else { ", "else {").replace(" }", ";}");
        let code: String = code.lines().map(str::trim).collect();
        (path, code.replace(";;", ";"))
    };
    let files: Vec<(String, String)> = files().into_iter().map(lines).collect();
    let count = |form: &str, folders: &[&str]| -> usize {
        let here = files.iter();
        let here = here.filter(|(path, _)| folders.iter().any(|folder| path.starts_with(folder)));
        here.map(|(_, code)| code.matches(form).count()).sum()
    };
    let found = SILENCE.iter().map(|&(form, ..)| {
        let (of_engine, of_others) = (
            count(form, &["engine/"]),
            count(form, &["recover/", "ring/"]),
        );
        (form, of_engine, of_others)
    });
    let found: Vec<(&str, usize, usize)> = found.collect();
    let mut both = found.iter().zip(SILENCE);
    assert!(
        both.all(|(now, before)| now.1 <= before.1 && now.2 <= before.2),
        "{found:#?}, more than there were: is the state possible? If not, `invariant!`"
    );
}

/// Parts of the engine that own their fields: none can be reached from outside of its module.
const OWNERS: &[(&str, &str)] = &[
    ("access", "Access"),
    ("add_log_copies", "AddLogCopies"),
    ("waiting/admission", "Admission"),
    ("checkpoint", "Checkpoint"),
    ("clear", "Clears"),
    ("destage/mod", "Destage"),
    ("upkeep/discard", "Discards"),
    ("drive_io", "DriveIo"),
    ("drives", "Drives"),
    ("extents", "Extents"),
    ("features", "FeatureRoots"),
    ("drive_io/flights", "Flights"),
    ("access/guard", "Guards"),
    ("identity", "Identity"),
    ("journal", "Journal"),
    ("access/locks", "Locks"),
    ("journal/logs", "Logs"),
    ("map", "Map"),
    ("map/evict", "Clock"),
    ("memory", "Memory"),
    ("mending", "Mending"),
    ("metadata", "Metadata"),
    ("raw/mod", "Raw"),
    ("read", "Reads"),
    ("rebuild", "Rebuild"),
    ("rebuild/readmit", "Returns"),
    ("rebuild/renew", "Renewal"),
    ("rebuild/scrub", "Scrub"),
    ("record", "DriveRecord"),
    ("base", "Failure"),
    ("upkeep/release", "Release"),
    ("replica/mod", "Replicas"),
    ("reservations", "Reservations"),
    ("upkeep/reserve", "Kept"),
    ("segment_table", "SegmentTable"),
    ("space/recount", "Recount"),
    ("space/segments", "Segment"),
    ("space/segments", "Segments"),
    ("space/segments", "SegmentIds"),
    ("tier/mod", "Tiers"),
    ("upkeep", "Upkeep"),
    ("volumes", "VolumeTable"),
    ("waiting", "Waiting"),
    ("drive_io/waits", "Waits"),
    ("write", "Writes"),
];

#[test]
fn what_owns_its_fields_shows_none() {
    let files = files();
    for (module, name) in OWNERS {
        let path = format!("engine/{module}.rs");
        let (_, code) = files.iter().find(|(at, _)| *at == path).expect(&path);
        let head = format!("struct {name}");
        let after = code.split(&head).skip(1);
        let mut bodies = after.filter(|rest| rest.starts_with([' ', '<']));
        let body = bodies.next().expect(name).split("\n}").next();
        let fields = body.expect("its end").lines().skip(1);
        for field in fields {
            let field = field.trim_start();
            assert!(
                !field.starts_with("pub ") && !field.starts_with("pub("),
                "{path}: {name} owns its fields, but shows `{}`",
                field.trim_end()
            );
        }
    }
}

/// A module sees the private fields of the one that it lies in: steps of the engine that lie below an owner ask it all
/// the same.
#[test]
fn what_lies_below_an_owner_asks_it_by_its_methods() {
    let files = files();
    for owner in ["access", "drive_io", "journal", "upkeep", "waiting"] {
        let (folder, field) = (format!("engine/{owner}/"), format!("self.{owner}."));
        let below: Vec<_> = files
            .iter()
            .filter(|(path, _)| path.starts_with(&folder))
            .collect();
        assert!(!below.is_empty(), "{folder}");
        for (path, code) in below {
            let code: String = code.split_whitespace().collect();
            for asked in code.split(&field).skip(1) {
                let rest = asked.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
                let word = &asked[..asked.len() - rest.len()];
                assert!(rest.starts_with('('), "{path}: {field}{word} is a field");
            }
        }
    }
}

/// Files whose steps are their part's own, with all parts of the engine that each names: it does not know the engine, and
/// is handed what it may use, which the part's `Around` names for all its files. What follows from a step for the rest is
/// a value that it returns, or queues until the step is over.
const STEPS: &[(&str, &[&str])] = &[
    ("add_log_copies", &["roots", "space", "volumes"]),
    (
        "base",
        &["drive_io", "drives", "journal", "memory", "state"],
    ),
    (
        "checkpoint",
        &[
            "access",
            "base",
            "destage",
            "identity",
            "invariant",
            "journal",
            "map",
            "space",
            "state",
        ],
    ),
    (
        "clear",
        &[
            "access",
            "base",
            "destage",
            "invariant",
            "journal",
            "map",
            "reservations",
            "space",
            "volumes",
            "write",
        ],
    ),
    (
        "destage/around",
        &[
            "access",
            "base",
            "class",
            "identity",
            "invariant",
            "journal",
            "map",
            "mending",
            "rebuild",
            "reservations",
            "space",
            "tier",
            "volumes",
        ],
    ),
    ("destage/choose", &["access"]),
    (
        "destage/mod",
        &[
            "access",
            "invariant",
            "journal",
            "map",
            "parity",
            "space",
            "tier",
        ],
    ),
    ("destage/moves", &["rebuild", "space", "state", "tier"]),
    (
        "destage/whole",
        &[
            "access",
            "invariant",
            "journal",
            "map",
            "parity",
            "space",
            "state",
            "tier",
        ],
    ),
    ("drive_io/deadline", &["base"]),
    ("drives", &["extents", "record", "state"]),
    ("drives/media", &["manage"]),
    (
        "journal/append",
        &[
            "base",
            "identity",
            "invariant",
            "map",
            "space",
            "tier",
            "waiting",
        ],
    ),
    (
        "journal/publish",
        &[
            "access",
            "base",
            "destage",
            "map",
            "replica",
            "reservations",
            "space",
            "state",
            "volumes",
            "waiting",
        ],
    ),
    ("journal/relog", &["identity", "map"]),
    ("journal/tails", &["identity", "map"]),
    ("map/load", &["base", "identity", "journal", "space"]),
    (
        "members/holding",
        &["class", "journal", "raw", "rebuild", "space", "volumes"],
    ),
    (
        "mending",
        &[
            "access",
            "base",
            "identity",
            "invariant",
            "journal",
            "map",
            "parity",
            "rebuild",
            "salvage",
            "space",
        ],
    ),
    (
        "parity/gather",
        &[
            "access",
            "class",
            "invariant",
            "mending",
            "salvage",
            "space",
        ],
    ),
    (
        "parity/mod",
        &[
            "class",
            "invariant",
            "mending",
            "rebuild",
            "segment_table",
            "space",
            "state",
        ],
    ),
    ("raw/io", &["invariant", "space"]),
    ("raw/make", &["invariant", "journal", "manage", "map"]),
    (
        "raw/mod",
        &["base", "drives", "identity", "journal", "space", "volumes"],
    ),
    ("read", &["access", "invariant", "parity", "space"]),
    (
        "read/columns",
        &["class", "invariant", "segment_table", "space"],
    ),
    ("read/mend", &["access"]),
    (
        "read/places",
        &[
            "access",
            "base",
            "class",
            "identity",
            "journal",
            "map",
            "mending",
            "segment_table",
            "space",
            "tier",
            "volumes",
        ],
    ),
    ("read/slow", &["space"]),
    (
        "rebuild",
        &[
            "access",
            "base",
            "class",
            "destage",
            "identity",
            "invariant",
            "journal",
            "manage",
            "map",
            "parity",
            "roots",
            "salvage",
            "segment_table",
            "space",
            "state",
            "upkeep",
            "volumes",
            "waiting",
        ],
    ),
    (
        "rebuild/columns",
        &["class", "drives", "segment_table", "space", "state"],
    ),
    ("rebuild/pace", &[]),
    (
        "rebuild/readmit",
        &["extents", "identity", "journal", "map", "raw", "space"],
    ),
    ("rebuild/renew", &["map", "space"]),
    ("rebuild/scrub", &["base", "roots"]),
    (
        "rebuild/slot",
        &["access", "base", "invariant", "parity", "salvage", "space"],
    ),
    (
        "replica/mod",
        &["base", "identity", "invariant", "journal", "manage", "map"],
    ),
    (
        "reservations/reserving",
        &[
            "access",
            "base",
            "destage",
            "invariant",
            "journal",
            "map",
            "space",
            "volumes",
        ],
    ),
    (
        "root_budget",
        &[
            "checkpoint",
            "manage",
            "map",
            "metadata",
            "replica",
            "volumes",
        ],
    ),
    (
        "roots",
        &[
            "add_log_copies",
            "base",
            "drives",
            "features",
            "identity",
            "invariant",
            "journal",
            "rebuild",
            "space",
        ],
    ),
    ("salvage", &["invariant", "mending", "space"]),
    (
        "space",
        &[
            "class",
            "drives",
            "identity",
            "metadata",
            "reservations",
            "segment_table",
            "state",
            "upkeep",
        ],
    ),
    (
        "space/growth",
        &["class", "extents", "journal", "manage", "volumes"],
    ),
    ("space/places", &["access", "checkpoint", "map", "state"]),
    ("space/recount", &["base", "extents", "invariant"]),
    ("status", &["class", "map", "space", "volumes"]),
    (
        "stop",
        &[
            "class",
            "manage",
            "rebuild",
            "segment_table",
            "space",
            "volumes",
        ],
    ),
    (
        "tier/mod",
        &[
            "access", "base", "class", "drives", "journal", "manage", "map", "space", "volumes",
        ],
    ),
    ("tier/walk", &["class", "invariant", "map", "rebuild"]),
    ("upkeep/discard", &["base", "identity", "space"]),
    (
        "upkeep/release",
        &[
            "base",
            "class",
            "identity",
            "invariant",
            "journal",
            "manage",
            "rebuild",
            "space",
            "volumes",
        ],
    ),
    ("upkeep/reserve", &["rebuild", "space", "volumes"]),
    ("volumes/entries", &["journal", "manage", "map"]),
    (
        "write",
        &[
            "access",
            "base",
            "identity",
            "invariant",
            "journal",
            "map",
            "mending",
            "rebuild",
            "reservations",
            "space",
            "tier",
            "volumes",
            "waiting",
        ],
    ),
    (
        "write/admit",
        &[
            "access",
            "checkpoint",
            "class",
            "clear",
            "drives",
            "invariant",
            "space",
            "state",
            "volumes",
            "waiting",
        ],
    ),
    (
        "write/bypass",
        &[
            "access",
            "class",
            "invariant",
            "journal",
            "map",
            "parity",
            "space",
            "state",
        ],
    ),
];

/// The parts of the engine that a file of it names, but for those that it lies in or that lie in it.
fn parts_named(module: &str, code: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let depth = module.trim_end_matches("/mod").matches('/').count();
    let heads = ["crate::engine::".to_owned(), "super::".repeat(depth + 1)];
    let own = module.split('/').next().expect("a part");
    let mut found = BTreeSet::new();
    for head in &heads {
        for rest in code.split(&**head).skip(1) {
            let name: String = rest.chars().take_while(|c| is_name(*c)).collect();
            let is_part = name.starts_with(char::is_lowercase) && name != "super";
            if is_part && name != own {
                found.insert(name);
            }
        }
    }
    found
}

#[test]
fn a_step_of_a_part_is_handed_what_it_may_use() {
    let files = files();
    let source = |module: &str| {
        let path = format!("engine/{module}.rs");
        let found = files.iter().find(|(at, _)| *at == path);
        found.map(|(_, code)| &code[..]).expect(module)
    };
    for (module, may) in STEPS {
        let code = source(module).split("\nmod tests {").next().expect("code");
        let engine = code
            .match_indices("Engine")
            .map(|(at, word)| (&code[..at], &code[at + word.len()..]));
        let mut engine = engine.filter(|(before, after)| {
            !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric)
        });
        assert!(
            engine.next().is_none(),
            "engine/{module}.rs knows the engine, but its steps are handed what they may use"
        );
        let named = parts_named(module, code);
        let may: BTreeSet<String> = may.iter().map(|&part| part.to_owned()).collect();
        assert_eq!(
            named, may,
            "engine/{module}.rs: the parts that it knows, and those that it may"
        );
    }
}

/// Ways to break a pool are for tests: no build that serves has them.
#[test]
fn nothing_of_the_store_is_hidden_from_its_documentation() {
    for (path, code) in files() {
        assert!(
            !code.contains("doc(hidden)"),
            "{path}: what only tests may do is in builds with canaries only"
        );
    }
    let manifest = std::fs::read_to_string(super::root().join("crates/store/Cargo.toml"));
    let manifest: toml::Table = manifest.expect("it").parse().expect("a manifest");
    assert!(manifest["features"].get("default").is_none());
}

/// Fields of the engine, files in which it has methods, and how many those are. Parts that own their fields, and steps
/// that are theirs, come out of it: these only go down.
const ENGINE_FIELDS: usize = 17;
const ENGINE_FILES: usize = 10;
const ENGINE_METHODS: usize = 169;

/// Methods of the engine in a source.
fn methods_of_the_engine(source: &str) -> usize {
    let source: Vec<&str> = code_lines(source).map(|(_, line)| line).collect();
    let source = source.join("\n");
    let blocks = source.split("\nimpl Engine {\n").skip(1);
    let methods = blocks.map(|block| {
        let block = block.split("\n}").next().expect("its end");
        let heads = block.lines().filter(|line| {
            let line = line.strip_prefix("    ").unwrap_or("");
            line.starts_with("fn ") || line.starts_with("pub") && line.contains(" fn ")
        });
        heads.count()
    });
    methods.sum()
}

#[test]
fn the_engine_does_not_grow() {
    let sources = sources();
    let mut store = sources
        .iter()
        .filter(|(path, _)| path.starts_with("crates/store/src/"));
    let has_methods = |source: &str| code_lines(source).any(|(_, line)| line == "impl Engine {");
    let files = store
        .clone()
        .filter(|(_, source)| has_methods(source))
        .count();
    assert!(
        files <= ENGINE_FILES,
        "{files} files have methods of the engine, {ENGINE_FILES} before"
    );
    let methods: usize = store
        .clone()
        .map(|(_, source)| methods_of_the_engine(source))
        .sum();
    assert!(
        methods <= ENGINE_METHODS,
        "the engine has {methods} methods, {ENGINE_METHODS} before"
    );
    let state = store.find(|(path, _)| path.ends_with("engine/state.rs"));
    let (_, state) = state.expect("the engine's state");
    let fields = state
        .split("pub struct Engine {")
        .nth(1)
        .expect("its fields");
    let fields = fields.split("\n}").next().expect("their end");
    let fields = fields.matches("    pub(super) ").count();
    assert!(
        fields <= ENGINE_FIELDS,
        "the engine has {fields} fields, {ENGINE_FIELDS} before"
    );
}

/// The floors of the house: each stands on those before it.
const FLOORS: &[&str] = &[
    "sizes",
    "layout",
    "canary",
    "replica",
    "tier",
    "format",
    "error",
    "membership",
    "ring",
    "drives",
    "drive_table",
    "comeback",
    "manage",
    "engine",
    "recover",
    "create",
];

/// The modules of the crate that a source names: by their own names, or by those that the crate gives to what
/// is in them.
fn known<'a>(code: &'a str, given: &[(&'a str, &'a str)]) -> Vec<&'a str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let name = |text: &'a str| text.split(|c| !is_name(c)).next().unwrap_or("");
    let mut names = Vec::new();
    for (at, word) in code.match_indices("crate::") {
        let rest = &code[at + word.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            names.push(name(rest));
            continue;
        };
        let mut depth = 0;
        let end = group.find(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth < 0
        });
        let mut depth = 0;
        let parts = group[..end.expect("it is closed")].split(|c| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            depth == 0 && c == ','
        });
        names.extend(parts.map(|part| name(part.trim_start())));
    }
    let module = |name: &'a str| {
        let is_given = |&&(item, _): &&(&str, &str)| item == name && !FLOORS.contains(&name);
        let found = given.iter().find(is_given);
        found.map_or(name, |&(_, module)| module)
    };
    names.into_iter().map(module).collect()
}

#[test]
fn no_floor_of_the_store_knows_a_higher_one() {
    let files = files();
    let (_, lib) = files.iter().find(|(path, _)| path == "lib.rs").expect("it");
    let mut given = Vec::new();
    for line in lib
        .split(';')
        .filter_map(|line| line.trim().strip_prefix("pub use "))
    {
        let (module, items) = line.split_once("::").expect("a path");
        let items = items.split(|c: char| !c.is_alphanumeric() && c != '_');
        given.extend(items.map(|item| (item, module)));
    }
    let floor = |module: &str| FLOORS.iter().position(|floor| *floor == module);
    let mut found = BTreeSet::new();
    for (path, code) in &files {
        let own = path.split(['/', '.']).next().expect("a module");
        if own == "lib" {
            continue;
        }
        let own = floor(own).unwrap_or_else(|| panic!("{path} is on no floor"));
        for module in known(code, &given) {
            if floor(module).is_some_and(|floor| floor > own) {
                found.insert((path, module));
            }
        }
    }
    assert_eq!(found, BTreeSet::new(), "floors that know a higher one");
}

/// The names behind `Canary::` or `Self::` in a source.
fn canaries_in(code: &str, of: &str) -> BTreeSet<String> {
    let code: String = code_lines(code).map(|(_, line)| line).collect();
    let names = code.split(of).skip(1);
    let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric()).collect();
    names
        .map(name)
        .filter(|name: &String| !name.is_empty())
        .collect()
}

#[test]
fn every_canary_has_a_test_of_the_simulator() {
    let sources = sources();
    let source = |at: &str| {
        let found = sources.iter().find(|(path, _)| path == at);
        found.map(|(_, source)| source.as_str()).expect(at)
    };
    let canaries = source("crates/store/src/canary.rs");
    let part = |from: &str, to: &str| {
        let behind = canaries.split(from).nth(1).expect(from);
        behind.split(to).next().expect(to)
    };
    let all = part("pub enum Canary {", "}").replace("    ", "Self::");
    let all = canaries_in(&all, "Self::");
    assert!(all.len() > 30, "{all:?}");
    // Of these a test goes through the whole list.
    let worlds = source("crates/sim/tests/cluster.rs");
    assert!(worlds.contains("Canary::REPLICATED"));
    let of_clusters = canaries_in(part("REPLICATED: [Self; 5] = [", "];"), "Self::");
    let caches = source("crates/sim/tests/caches.rs");
    let named = canaries_in(source("crates/sim/tests/engine.rs"), "Canary::");
    let named = &named | &canaries_in(caches, "Canary::");
    let unnamed = &(&all - &of_clusters) - &named;
    assert!(
        unnamed.is_empty(),
        "no test shows that these are noticed: {unnamed:?}"
    );
    let defects = source("crates/cache/src/cache/mod.rs");
    let defects = defects.split("pub enum Defect {").nth(1).expect("defects");
    let defects = defects.split("\n}").next().expect("its end");
    let defects = canaries_in(&defects.replace("    ", "Self::"), "Self::");
    let unnamed = &defects - &canaries_in(caches, "Defect::");
    assert!(
        defects.len() > 10 && unnamed.is_empty(),
        "no world shows that these are noticed: {unnamed:?} of {defects:?}"
    );
}
