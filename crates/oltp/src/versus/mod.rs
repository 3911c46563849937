//! One instance on a replicated volume against a group of two on drives of their own: several scenarios on the same
//! storage, told together, with what every drive of it did meanwhile and what was published.

mod file;
mod meter;
mod part;
mod report;

pub use file::VersusFile;
pub use meter::{Meter, Moved, Sample};
pub use part::{Part, Published, Rate, Row};

use ashlar_lab::{LabError, Machine, ResultFile};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The scenario that ships: name and text.
pub const SHIPPED: [(&str, &str); 1] = [(
    "fci-vs-bag",
    include_str!("../../../../scenarios/fci-vs-bag.toml"),
)];

/// What came of it: `result.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VersusResult {
    /// `ashlar-versus-1`.
    pub schema: String,
    /// Title of the run.
    pub title: String,
    /// What is asked.
    pub about: String,
    /// The machine.
    pub machine: Machine,
    /// The scale.
    pub scale: f64,
    /// What both sides lie on, in words.
    pub storage: Vec<String>,
    /// Each scenario.
    pub parts: Vec<Part>,
    /// What a reader must know before quoting a figure.
    pub flags: Vec<String>,
    /// It did not reach its end.
    pub partial: bool,
    /// What went wrong.
    pub problems: Vec<String>,
}

impl ResultFile for VersusResult {
    const SCHEMA: &str = "ashlar-versus-1";
}

impl VersusResult {
    /// An empty one.
    pub fn begun(file: &VersusFile, scale: f64, storage: Vec<String>) -> Self {
        Self {
            schema: Self::SCHEMA.into(),
            title: file.title.clone(),
            about: file.about.trim().to_owned(),
            machine: Machine::here(),
            scale,
            storage,
            ..Self::default()
        }
    }

    /// What was better at what, a sentence for each part.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            text.push_str(&format!("{}\n", part.sentence));
        }
        for problem in &self.problems {
            text.push_str(&format!("{problem}\n"));
        }
        text
    }

    /// Writes `report.html` into `dir`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_report(&self, dir: &Path) -> Result<(), LabError> {
        crate::report::write(&dir.join("report.html"), &report::html(self))
    }
}
