//! A pool as people read it.

use ashlar_node::model::{
    DriveStatus, LayoutStatus, LostRange, Outcome, PoolStatus, Survives, WorkKind, WorkState,
    WorkStatus,
};

use super::table::{bytes, duration, lines, percent, table, word};

/// What the columns of the layouts mean.
const LEGEND: &str = "\
net, gross: share of raw space that holds data, with reserves kept back and without
losses: drives that may die at once; survives: nothing acknowledged is lost, every read is right
detected: an error, never wrong data, for the blocks affected; where a page of the pool's own tables or a
batch of its logs has no other copy, for the pool, which stops; -: as the drive does it
";

/// The pools, one a line.
pub(super) fn list(pools: &[PoolStatus]) -> String {
    if pools.is_empty() {
        return "there are no pools\n".into();
    }
    let row = |pool: &PoolStatus| {
        vec![
            pool.name.clone(),
            word(pool.state),
            pool.drives.len().to_string(),
            bytes(pool.space.advertised_bytes),
            bytes(pool.space.used_bytes),
            bytes(pool.space.provisioned_bytes),
            pool.work.len().to_string(),
        ]
    };
    let head = [
        "pool",
        "state",
        "drives",
        "advertised",
        "used",
        "provisioned",
        "work",
    ];
    table(&head, &pools.iter().map(row).collect::<Vec<_>>())
}

/// Everything about a pool.
pub(super) fn status(pool: &PoolStatus) -> String {
    let mut out = lines(&head(pool));
    for warning in &pool.warnings {
        out.push_str(&format!("warning: {warning}\n"));
    }
    out.push('\n');
    out.push_str(&drives(&pool.drives));
    out.push('\n');
    out.push_str(&layouts(&pool.layouts));
    out.push_str(LEGEND);
    if !pool.work.is_empty() {
        out.push('\n');
        out.push_str(&work(&pool.work));
    }
    if !pool.lost.is_empty() {
        out.push('\n');
        out.push_str(&lost(&pool.lost));
    }
    out
}

fn lost(lost: &[LostRange]) -> String {
    let row = |one: &LostRange| {
        vec![
            one.volume.clone(),
            one.offset_bytes.to_string(),
            one.bytes.to_string(),
            one.lost_bytes.to_string(),
        ]
    };
    let head = ["lost of volume", "from byte", "bytes", "lost bytes"];
    table(&head, &lost.iter().map(row).collect::<Vec<_>>())
}

fn with_reason(state: String, reason: Option<&String>) -> String {
    match reason {
        Some(reason) => format!("{state}: {reason}"),
        None => state,
    }
}

fn head(pool: &PoolStatus) -> Vec<(&'static str, String)> {
    let space = &pool.space;
    let reserves: Vec<String> = space
        .reserves
        .iter()
        .filter(|reserve| reserve.bytes > 0)
        .map(|reserve| format!("{} {}", reserve.purpose, bytes(reserve.bytes)))
        .collect();
    let reserved = match reserves.is_empty() {
        true => bytes(space.reserved_bytes),
        false => format!("{} ({})", bytes(space.reserved_bytes), reserves.join(", ")),
    };
    let counters = &pool.counters;
    let mut pairs = vec![
        ("pool", pool.name.clone()),
        ("id", pool.id.to_string()),
        ("state", with_reason(word(pool.state), pool.reason.as_ref())),
        ("raw", bytes(space.raw_bytes)),
        ("advertised", bytes(space.advertised_bytes)),
        ("used", bytes(space.used_bytes)),
        ("provisioned", bytes(space.provisioned_bytes)),
        ("reserved", reserved),
        (
            "efficiency",
            format!(
                "{} with reserves, {} without",
                percent(space.efficiency_with_reserves),
                percent(space.efficiency_without_reserves)
            ),
        ),
        (
            "logs",
            format!(
                "data ring {} full, map log {}",
                percent(pool.log_fill.data_ring),
                percent(pool.log_fill.map_log)
            ),
        ),
    ];
    if !pool.features.is_empty() {
        pairs.push(("features", pool.features.join(", ")));
    }
    if counters.bad_copy_bytes > 0 {
        let text = format!(
            "{} found, {} repaired, {} lost",
            bytes(counters.bad_copy_bytes),
            bytes(counters.repaired_bytes),
            bytes(counters.lost_bytes)
        );
        pairs.push(("bad copies", text));
    }
    pairs
}

fn drives(drives: &[DriveStatus]) -> String {
    let row = |drive: &DriveStatus| {
        vec![
            match drive.spec.is_empty() {
                true => "-".to_owned(),
                false => drive.spec.clone(),
            },
            drive.id.to_string(),
            drive.class.map(word).unwrap_or_default(),
            bytes(drive.bytes),
            bytes(drive.used_bytes),
            drive.errors.read.to_string(),
            drive.errors.write.to_string(),
            drive.errors.checksum.to_string(),
            drive.slow_requests.to_string(),
            with_reason(word(drive.state), drive.reason.as_ref()),
        ]
    };
    let head = [
        "drive", "id", "class", "size", "used", "read", "write", "checksum", "slow", "state",
    ];
    table(&head, &drives.iter().map(row).collect::<Vec<_>>())
}

fn layouts(layouts: &[LayoutStatus]) -> String {
    let row = |layout: &LayoutStatus| {
        let Survives {
            drive_losses,
            node_crash,
            power_loss,
            torn_write,
            noise,
            misdirected_write,
            phantom_write,
        } = layout.survives;
        let mut row = vec![
            layout.layout.to_string(),
            layout
                .class
                .map_or("any".to_owned(), |class| class.to_string()),
            match layout.grain_bytes {
                0 => "none".to_owned(),
                grain => bytes(grain.into()),
            },
            bytes(layout.advertised_bytes),
            bytes(layout.free_bytes),
            percent(layout.efficiency_with_reserves),
            percent(layout.efficiency_without_reserves),
            drive_losses.to_string(),
        ];
        let outcomes = [
            node_crash,
            power_loss,
            torn_write,
            noise,
            misdirected_write,
            phantom_write,
        ];
        row.extend(outcomes.map(outcome));
        row
    };
    let head = [
        "layout",
        "class",
        "grain",
        "advertised",
        "free",
        "net",
        "gross",
        "losses",
        "crash",
        "power",
        "torn",
        "noise",
        "misdirected",
        "phantom",
    ];
    table(&head, &layouts.iter().map(row).collect::<Vec<_>>())
}

fn outcome(outcome: Outcome) -> String {
    match outcome {
        Outcome::Survives => "survives".into(),
        Outcome::Detected => "detected".into(),
        Outcome::Unprotected => "-".into(),
    }
}

fn work(work: &[WorkStatus]) -> String {
    let name = |what| match what {
        WorkKind::Reclaim => "reclaim space".to_owned(),
        other => word(other),
    };
    let row = |work: &WorkStatus| {
        let eta = match (work.state, work.eta_seconds) {
            (WorkState::Running, Some(seconds)) => duration(seconds),
            (WorkState::Waiting, Some(seconds)) => format!("starts within {}", duration(seconds)),
            _ => "-".into(),
        };
        vec![
            name(work.what),
            work.subject.clone().unwrap_or_default(),
            percent(work.progress),
            eta,
            with_reason(word(work.state), work.reason.as_ref()),
        ]
    };
    let head = ["work", "on", "done", "eta", "state"];
    table(&head, &work.iter().map(row).collect::<Vec<_>>())
}
