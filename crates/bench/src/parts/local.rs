//! Remote against local, on one file: `ashlar lab sweep` measures the file itself, and the same file
//! behind `ashlar serve` on another core, in turn.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use ashlar_lab::Pattern;
use ashlar_lab::result::CellResult;
use serde::Serialize;

use super::Bench;
use super::sweep::Sweep;
use crate::failure::Failure;
use crate::figures::Spread;
use crate::serve::{self, NQN};
use crate::signals::Temporary;

const BLOCKS: &str = "4k,8k,64k,256k,1m";
const DEPTHS: &str = "1,8,32";
/// Writes first: they give the file system its extents.
const PATTERNS: [&str; 2] = ["randwrite", "randread"];

/// A cell, remote against local.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Remote {
    pub(crate) pattern: Pattern,
    /// Bytes of an access.
    pub(crate) block_bytes: u32,
    /// Accesses in flight.
    pub(crate) depth: u32,
    /// IOPS, remote / local, pair by pair, in percent.
    pub(crate) remote_pct_of_local: Spread,
    /// What it is hoped to reach.
    pub(crate) goal_pct: f64,
    /// Accesses a second.
    pub(crate) local_iops: Spread,
    pub(crate) remote_iops: Spread,
    /// Median processor time in use on the whole machine, 0 to 100, the server's included.
    pub(crate) local_machine_cpu_pct: Option<f64>,
    pub(crate) remote_machine_cpu_pct: Option<f64>,
}

impl Remote {
    fn of(local: &CellResult, remote: &CellResult) -> Self {
        let (l, r) = local.pairs(remote);
        let percent: Vec<f64> = r.iter().map(|iops| 100.0 * iops).collect();
        Self {
            pattern: local.pattern,
            block_bytes: local.block_bytes,
            depth: local.depth,
            remote_pct_of_local: Spread::of_ratios(&percent, &l),
            goal_pct: goal_pct(local.block_bytes, local.depth),
            local_iops: Spread::of(&l),
            remote_iops: Spread::of(&r),
            local_machine_cpu_pct: local.cpu_pct,
            remote_machine_cpu_pct: remote.cpu_pct,
        }
    }
}

fn goal_pct(block_bytes: u32, depth: u32) -> f64 {
    match (block_bytes, depth) {
        // What a database sends most of: ours.
        (8_192, ..8) => 70.0,
        (8_192, _) => 80.0,
        (_, ..8) => 75.0,
        (..=65_536, _) => 95.0,
        _ => 90.0,
    }
}

/// The cells, and what the lab says about them.
pub(super) fn measure(bench: &Bench<'_>) -> Result<(Vec<Remote>, Vec<String>), Failure> {
    let out = &bench.options.out;
    let out = out.canonicalize().map_err(Failure::doing(out.display()))?;
    let file = Temporary::new(out.join(format!("local-{}.img", std::process::id())));
    make_file(file.path(), bench.options.file_mib)?;
    let device = format!("file:{}", file.path().display());
    // The lab's load runs on the first core, so the server gets the second.
    let server = serve::ashlar(bench.options, "local-target", &device, &[bench.client_core])?;
    let url = format!("nvme-tcp://{}/{NQN}?ns=1", server.address);
    let (mut cells, mut notes) = (Vec::new(), Vec::new());
    for pattern in PATTERNS {
        let sweep = Sweep {
            part: "local",
            pattern,
            blocks: BLOCKS,
            depths: DEPTHS,
            sides: [("local", &device), ("remote", &url)],
        };
        let swept = sweep.measure(bench)?;
        let pairs = swept.pairs.iter();
        cells.extend(pairs.map(|(local, remote)| Remote::of(local, remote)));
        notes.extend(swept.notes);
    }
    Ok((cells, notes))
}

/// A file of random data: space that was never written is read faster.
fn make_file(path: &Path, mib: u64) -> Result<(), Failure> {
    let doing = || Failure::doing(path.display());
    let mut file = File::create_new(path).map_err(doing())?;
    let mut piece = vec![0; 1 << 20];
    let mut random = fastrand::Rng::with_seed(2);
    for _ in 0..mib {
        random.fill(&mut piece);
        file.write_all(&piece).map_err(doing())?;
    }
    file.sync_all().map_err(doing())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_the_published_ones_and_ours() {
        assert_eq!(goal_pct(4096, 1), 75.0);
        assert_eq!(goal_pct(8192, 1), 70.0);
        assert_eq!(goal_pct(8192, 32), 80.0);
        assert_eq!(goal_pct(1 << 20, 1), 75.0);
        assert_eq!(goal_pct(65_536, 8), 95.0);
        assert_eq!(goal_pct(262_144, 8), 90.0);
        assert_eq!(goal_pct(4096, 32), 95.0);
    }

    #[test]
    fn a_temporary_file_goes_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let file = Temporary::new(path.clone());
        make_file(file.path(), 1).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
        drop(file);
        assert!(!path.exists());
    }
}
