//! One instance on a replicated volume against a group of two on drives of their own: several scenarios on the same
//! storage, told together, with what every drive of it did meanwhile and what was published.

mod file;
mod meter;
mod part;
mod report;

pub use file::{PartFile, VersusFile};
pub use meter::{Meter, Moved, Sample};
pub use part::{Part, Published, Rate, Row};

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
    /// The scale.
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

    fn html(&self) -> Result<String, LabError> {
        Ok(report::html(self))
    }
}

impl VersusResult {
    /// An empty one.
    pub fn begun(file: &VersusFile, scale: f64, storage: Vec<String>) -> Self {
        Self {
            head: Head::new(Kind::Versus, &file.title),
            about: file.about.trim().to_owned(),
            scale,
            storage,
            ..Self::default()
        }
    }
}
