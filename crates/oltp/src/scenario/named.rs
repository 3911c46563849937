//! Configurations that a scenario names, which of them stand against each other, and where their servers are.

use std::path::{Path, PathBuf};

use ashlar_lab::{LabError, OwnFolder};
use serde::{Deserialize, Serialize};

use super::file::{OltpScenario, PublishedTable};
use super::{Place, check_places};
use crate::server::Topology;

/// `[[configuration]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedSection {
    /// Its name in tables and in `compare`.
    pub name: String,
    /// The place (`--place NAME=DIR`) of its server; of a group, of the primary.
    pub place: String,
    /// One server, or two.
    #[serde(default = "standalone")]
    pub topology: Topology,
    /// The place of a group's standby; the primary's if absent.
    #[serde(default)]
    pub standby: Option<String>,
    /// Which of what was published it stands for.
    #[serde(default)]
    pub published: Option<PublishedSide>,
}

fn standalone() -> Topology {
    Topology::Standalone
}

/// Behind a place's name: where the standby of its group is.
const STANDBY: &str = ".standby";

/// One side of a published comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PublishedSide {
    /// `fci_vs_basic_ag.csv`: one instance on replicated storage.
    Fci,
    /// `fci_vs_basic_ag.csv`: a group on local drives.
    Bag,
    /// `nvmeof_hammerdb.csv`: local drives.
    Local,
    /// `nvmeof_hammerdb.csv`: the same over NVMe-oF.
    Remote,
    /// `flash_cache.csv`: disks alone.
    Uncached,
    /// `flash_cache.csv`: everything on them is cached.
    Everything,
    /// `flash_cache.csv`: the data is; log and system are kept out by hand.
    Data,
}

impl PublishedSide {
    const fn word(self) -> &'static str {
        match self {
            Self::Fci => "fci",
            Self::Bag => "bag",
            Self::Local => "local",
            Self::Remote => "remote",
            Self::Uncached => "uncached",
            Self::Everything => "everything",
            Self::Data => "data",
        }
    }

    /// Whether a table has this side, of such servers.
    fn is_of(self, table: PublishedTable, topology: Topology) -> bool {
        match self {
            Self::Fci => table == PublishedTable::Cluster && topology == Topology::Standalone,
            Self::Bag => {
                table == PublishedTable::Cluster && topology == Topology::AvailabilityGroup
            }
            Self::Local | Self::Remote => table == PublishedTable::HammerDb,
            Self::Uncached | Self::Everything | Self::Data => {
                table == PublishedTable::FlashCache && topology == Topology::Standalone
            }
        }
    }
}

impl NamedSection {
    /// The place of its standby, if it has one.
    pub(super) fn standby(&self) -> Option<&str> {
        let has_one = self.topology == Topology::AvailabilityGroup;
        has_one.then(|| self.standby.as_deref().unwrap_or(&self.place))
    }

    fn check(&self, table: PublishedTable) -> Result<(), String> {
        let name = &self.name;
        if name.is_empty() || self.place.is_empty() {
            return Err(format!(
                "[[configuration]] {name:?}: name and place must be there"
            ));
        }
        if self.standby.is_some() && self.topology == Topology::Standalone {
            return Err(format!(
                "[[configuration]] {name}: standby: of topology = \"availability-group\" only"
            ));
        }
        match self.published {
            Some(side) if !side.is_of(table, self.topology) => Err(format!(
                "[[configuration]] {name}: published = {:?}: fci (standalone) and bag (availability-group) are \
                 of fci_vs_basic_ag.csv, local and remote of nvmeof_hammerdb.csv, uncached, everything and data \
                 (standalone) of flash_cache.csv",
                side.word()
            )),
            _ => Ok(()),
        }
    }
}

impl OltpScenario {
    /// Whether `[[configuration]]` and `compare` make sense.
    pub(super) fn check_named(&self) -> Result<(), String> {
        let all = &self.configuration;
        if all.is_empty() {
            return match self.compare.first() {
                Some([base, ours]) => Err(format!(
                    "compare {base:?}, {ours:?}: these must be names of [[configuration]], and there is none"
                )),
                None => Ok(()),
            };
        }
        let table = self.published().map_err(|error| error.to_string())?;
        for (index, of) in all.iter().enumerate() {
            of.check(table)?;
            if all[..index].iter().any(|other| other.name == of.name) {
                return Err(format!("[[configuration]] {}: twice", of.name));
            }
        }
        let axis = self.oltp.as_ref().map(|oltp| &oltp.topology[..]);
        if axis.is_some_and(|axis| axis != [Topology::Standalone]) {
            return Err(
                "topology: each [[configuration]] has its own; leave it out of [oltp]".into(),
            );
        }
        if self.self_test {
            return Err(
                "self_test: compares a place with itself; without [[configuration]]".into(),
            );
        }
        for (index, [base, ours]) in self.compare.iter().enumerate() {
            let is_unknown = |name: &&String| !all.iter().any(|of| of.name == **name);
            if let Some(name) = [base, ours].into_iter().find(is_unknown) {
                return Err(format!("compare: there is no [[configuration]] {name:?}"));
            }
            if base == ours || self.compare[..index].contains(&self.compare[index]) {
                return Err(format!("compare {base:?}, {ours:?}: with itself, or twice"));
            }
        }
        Ok(())
    }

    /// Pairs of names, the 100 % first: as written, or all with the first one.
    pub(super) fn asked_pairs(&self) -> Vec<[&str; 2]> {
        if !self.compare.is_empty() {
            let pairs = self.compare.iter();
            return pairs.map(|[base, ours]| [&**base, &**ours]).collect();
        }
        let names = || self.configuration.iter().map(|of| &*of.name);
        let Some(first) = names().next() else {
            return Vec::new();
        };
        names().skip(1).map(|ours| [first, ours]).collect()
    }

    /// The places that `[[configuration]]` names, in the order in which it does.
    fn wanted_places(&self) -> Vec<&str> {
        let mut wanted: Vec<&str> = Vec::new();
        for of in &self.configuration {
            for place in [Some(&*of.place), of.standby()].into_iter().flatten() {
                if !wanted.contains(&place) {
                    wanted.push(place);
                }
            }
        }
        wanted
    }

    /// Whether each place of a standby is that of a group's.
    fn check_standbys(&self, given: &[Place]) -> Result<(), LabError> {
        let axis = self.oltp.as_ref().map(|oltp| &oltp.topology[..]);
        let in_group = axis.is_some_and(|axis| axis.contains(&Topology::AvailabilityGroup));
        for of in given {
            let Some(primary) = of.name.strip_suffix(STANDBY) else {
                continue;
            };
            let why = match (in_group, given.iter().any(|other| other.name == primary)) {
                (true, true) => continue,
                (false, _) => "the scenario has no group, whose standby could be there".to_owned(),
                (true, false) => format!("its primary needs --place {primary}=DIR"),
            };
            return Err(LabError::usage(format!("--place {}: {why}", of.name)));
        }
        Ok(())
    }

    /// The places of a run: those given, which must be those that the scenario names if it names any; without any,
    /// all of them in one directory. And what to know about them.
    pub(super) fn places(
        &self,
        given: &[Place],
        dir: &Path,
    ) -> Result<(Vec<Place>, Option<String>), LabError> {
        let wanted = self.wanted_places();
        if wanted.is_empty() {
            self.check_standbys(given)?;
            return Ok((or_here(given, dir)?, None));
        }
        if given.is_empty() {
            let at = |name: &&str| Place {
                name: (*name).to_owned(),
                dir: dir.to_owned(),
            };
            let flag = (wanted.len() > 1).then(|| {
                let names = wanted.join(", ");
                format!("the places {names} are all on one storage: without --place they say nothing of each other")
            });
            return Ok((wanted.iter().map(at).collect(), flag));
        }
        check_places(given)?;
        if let Some(other) = given.iter().find(|of| !wanted.contains(&&*of.name)) {
            return Err(LabError::usage(format!(
                "--place {}: the scenario has the places {}",
                other.name,
                wanted.join(", ")
            )));
        }
        let find = |name: &&str| {
            let found = given.iter().find(|of| of.name == **name);
            found.cloned().ok_or_else(|| {
                LabError::usage(format!("--place {name}=DIR: the scenario needs it"))
            })
        };
        let places: Result<Vec<Place>, LabError> = wanted.iter().map(find).collect();
        Ok((places?, None))
    }
}

/// The places given, or the one directory.
pub(crate) fn or_here(given: &[Place], dir: &Path) -> Result<Vec<Place>, LabError> {
    if given.is_empty() {
        return Ok(vec![Place {
            name: "here".into(),
            dir: dir.to_owned(),
        }]);
    }
    check_places(given)?;
    Ok(given.to_vec())
}

/// Where servers are. Topologies of a place share its servers, put back as one or two; a named configuration has its
/// own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Home {
    /// Index of the primary's place.
    pub(super) place: usize,
    /// Index of the standby's, if there is one.
    pub(super) standby: Option<usize>,
}

/// What is measured at a home.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    /// Its name in the scenario, if that names configurations.
    pub(super) named: Option<NamedSection>,
    pub(super) topology: Topology,
    /// Index of its home.
    pub(super) home: usize,
}

impl Home {
    /// Folders of primary and standby, the latter needed or not, in those of the places.
    pub(super) fn folders(&self, number: usize, places: &[OwnFolder]) -> [PathBuf; 2] {
        let standby = self.standby.unwrap_or(self.place);
        let at = |place: usize, letter: char| {
            let name = match number {
                0 => letter.to_string(),
                more => format!("{letter}{more}"),
            };
            places[place].path().join(name)
        };
        [at(self.place, 'a'), at(standby, 'b')]
    }
}

/// Homes, and for each topology what is measured at them, neighbours differing in the place: the named configurations
/// as they are, or every place with every topology.
pub(super) fn homes(file: &OltpScenario, places: &[Place]) -> (Vec<Home>, Vec<Asked>) {
    let axis = file.oltp.as_ref().map(|oltp| oltp.topology.clone());
    let axis = axis.unwrap_or_else(|| vec![standalone()]);
    if file.configuration.is_empty() {
        let in_groups = axis.contains(&Topology::AvailabilityGroup);
        let index = |name: &str| places.iter().position(|of| of.name == name);
        let standby = |of: &Place| index(&(of.name.clone() + STANDBY));
        let primaries = places.iter().enumerate();
        let primaries = primaries.filter(|(_, of)| !of.name.ends_with(STANDBY));
        let home = |(place, of): (usize, &Place)| Home {
            place,
            standby: in_groups.then(|| standby(of).unwrap_or(place)),
        };
        let homes: Vec<Home> = primaries.map(home).collect();
        let asked = axis.iter().flat_map(|&topology| {
            (0..homes.len()).map(move |home| Asked {
                named: None,
                topology,
                home,
            })
        });
        let asked = asked.collect();
        return (homes, asked);
    }
    let index = |name: &str| places.iter().position(|of| of.name == name);
    let home = |of: &NamedSection| Home {
        place: index(&of.place).unwrap_or_default(),
        standby: of.standby().and_then(index),
    };
    let all = &file.configuration;
    let asked = all.iter().enumerate().map(|(home, of)| Asked {
        named: Some(of.clone()),
        topology: of.topology,
        home,
    });
    (all.iter().map(home).collect(), asked.collect())
}

#[cfg(test)]
mod tests;
