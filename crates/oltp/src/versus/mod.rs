//! One instance on a replicated volume against a group of two on drives of their own: several scenarios on the same
//! storage, told together, with what every drive of it did meanwhile and what was published.

mod compare;
mod file;
mod meter;
mod meters;
mod part;
mod report;
mod run;

pub use compare::compare;
pub use file::{PartFile, VersusFile};
pub use meter::{Meter, Moved, Sample};
pub use meters::{Counters, Source};
pub use part::{Part, Published, Rate, Row};
pub use run::{Ground, VersusRun, run_versus};

use ashlar_lab::result::ScenarioNote;
use ashlar_lab::short::Short;
use ashlar_lab::{Head, Kind, LabError, ResultFile};
use serde::{Deserialize, Serialize};

/// The scenario that ships: name and text.
pub const SHIPPED: [(&str, &str); 1] = [(
    "fci-vs-bag",
    include_str!("../../../../scenarios/fci-vs-bag.toml"),
)];

/// What came of it: `result.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VersusResult {
    /// What all results have.
    #[serde(flatten)]
    pub head: Head,
    /// What is asked.
    pub about: String,
    pub scale: f64,
    /// What both sides lie on, in words.
    pub storage: Vec<String>,
    /// Each scenario.
    pub parts: Vec<Part>,
}

impl ResultFile for VersusResult {
    const KIND: Kind = Kind::Versus;

    fn head(&self) -> &Head {
        &self.head
    }

    fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    /// What was better at what, a sentence for each part.
    fn text(&self) -> String {
        let sentences = self.parts.iter().map(|part| &part.sentence);
        let lines = sentences.chain(&self.head.problems);
        lines.map(|line| format!("{line}\n")).collect()
    }

    fn short(&self) -> Vec<Short> {
        crate::report::short::of_versus(self)
    }

    fn html(&self) -> Result<String, LabError> {
        Ok(report::html(self))
    }
}

impl VersusResult {
    /// An empty one.
    pub fn begun(
        file: &VersusFile,
        scale: f64,
        storage: Vec<String>,
        changed: Vec<String>,
    ) -> Self {
        let about = file.about.trim().to_owned();
        let scenario = ScenarioNote {
            name: file.name.clone(),
            about: about.clone(),
            scale,
            scaled: format!("which is {}", file.parts.join(" and ")),
            source: String::new(),
            changed,
        };
        Self {
            head: Head {
                scenario: Some(scenario),
                ..Head::new(Kind::Versus, &file.title)
            },
            about,
            scale,
            storage,
            ..Self::default()
        }
    }
}
