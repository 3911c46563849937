//! Published OLTP figures (`published/*.csv` at the root of the tree). Absolute ones belong to the
//! hardware that they were taken on: reports compare ratios.

use ashlar_lab::LabError;
use serde::Deserialize;

const HAMMERDB: &str = include_str!("../../../published/nvmeof_hammerdb.csv");
const FLASH_CACHE: &str = include_str!("../../../published/flash_cache.csv");
const FAILOVER: &str = include_str!("../../../published/fci_vs_basic_ag.csv");

/// `nvmeof_hammerdb.csv`: HammerDB's TPROC-C, local against remote storage.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct HammerDb {
    /// Memory of the server: 256 is 38 % of the database, 128 is 19 %, 64 is 9.5 %.
    pub server_ram_gb: u32,
    /// `nopm` or `tpm`.
    pub metric: String,
    /// Virtual users.
    pub virtual_users: usize,
    /// `standalone` or `availability_group`.
    pub topology: String,
    /// On local drives.
    pub local: f64,
    /// On the same over NVMe-oF.
    pub remote: f64,
}

/// Gigabytes of the published database.
const HAMMERDB_GB: f64 = 670.0;

impl HammerDb {
    /// All rows.
    ///
    /// # Errors
    /// The table is damaged.
    pub fn rows() -> Result<Vec<Self>, LabError> {
        rows(HAMMERDB)
    }

    /// The memory as a share of the database, in percent.
    pub fn memory_pct(&self) -> f64 {
        100.0 * f64::from(self.server_ram_gb) / HAMMERDB_GB
    }

    /// Median of published TPM a NOPM, of all rows that have both.
    ///
    /// # Errors
    /// The table is damaged.
    pub fn tpm_each_nopm() -> Result<f64, LabError> {
        let rows = Self::rows()?;
        let ratios: Vec<f64> = rows
            .iter()
            .filter(|row| row.metric == "nopm")
            .filter_map(|row| {
                let is_partner = |other: &&Self| {
                    other.metric == "tpm"
                        && (other.server_ram_gb, other.virtual_users, &other.topology)
                            == (row.server_ram_gb, row.virtual_users, &row.topology)
                };
                Some(rows.iter().find(is_partner)?.local / row.local)
            })
            .collect();
        Ok(ashlar_lab::stats::median(&ratios))
    }
}

/// `fci_vs_basic_ag.csv`: a failover cluster instance on shared storage against an availability group.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Cluster {
    /// `read_1m_rows` or `hammerdb_50000_tx_per_user`.
    pub test: String,
    /// Readers, or users.
    pub concurrency: usize,
    /// Run time of the failover cluster instance.
    pub fci_run_time: f64,
    /// MB/s of its shared storage.
    pub fci_ha_image_mbps: Option<f64>,
    /// Run time of the availability group.
    pub bag_run_time: f64,
    /// MB/s of its drive.
    pub bag_ssd_mbps: Option<f64>,
}

impl Cluster {
    /// The rows of the concurrent scan.
    ///
    /// # Errors
    /// The table is damaged.
    pub fn scans() -> Result<Vec<Self>, LabError> {
        Self::of("read_1m_rows")
    }

    /// The rows of 50,000 transactions a user.
    ///
    /// # Errors
    /// The table is damaged.
    pub fn fixed_work() -> Result<Vec<Self>, LabError> {
        Self::of("hammerdb_50000_tx_per_user")
    }

    fn of(test: &str) -> Result<Vec<Self>, LabError> {
        let rows: Vec<Self> = rows(FAILOVER)?;
        Ok(rows.into_iter().filter(|row| row.test == test).collect())
    }
}

/// `flash_cache.csv`: a server with a write-back cache of flash in front of its disks.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct FlashCache {
    /// `bare_metal` or `virtual_machine`.
    pub platform: String,
    /// What is cached: `none`, `data`, `os+log+data`.
    pub cached_files: String,
    /// Transactions a minute, as HammerDB counts them.
    pub tpm: f64,
}

impl FlashCache {
    /// The rows of the virtual machine, whose log and system are on the same disks.
    ///
    /// # Errors
    /// The table is damaged.
    pub fn of_one_disk() -> Result<Vec<Self>, LabError> {
        let mut all: Vec<Self> = rows(FLASH_CACHE)?;
        all.retain(|row| row.platform == "virtual_machine");
        Ok(all)
    }
}

fn rows<T: for<'a> Deserialize<'a>>(text: &str) -> Result<Vec<T>, LabError> {
    csv::Reader::from_reader(text.as_bytes())
        .deserialize()
        .collect::<Result<_, _>>()
        .map_err(|error| LabError::caused("published figures", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_read() {
        let rows = HammerDb::rows().expect("a table");
        assert_eq!(rows.len(), HAMMERDB.lines().count() - 1);
        let first = &rows[0];
        assert_eq!((first.virtual_users, first.local), (100, 1_929_194.0));
        assert!((first.memory_pct() - 38.2).abs() < 0.1);
        let ratio = HammerDb::tpm_each_nopm().expect("a table");
        assert!((2.2..2.4).contains(&ratio), "{ratio}");
        let scans = Cluster::scans().expect("a table");
        assert_eq!((scans.len(), scans[5].fci_run_time), (6, 17.69));
        let fixed = Cluster::fixed_work().expect("a table");
        assert_eq!((fixed.len(), fixed[0].bag_run_time), (6, 9.0));
    }
}
