//! A page for a directory of runs: what each is, when it was, whether it came to its end, a link to its report.

use std::path::Path;

use maud::{Markup, html};
use serde_json::Value;

use super::page;
use crate::stats::median;
use crate::units::{grouped, moment};
use crate::{LabError, write_whole};

/// Lines about a run's outcome, at most.
const MOST_LINES: usize = 4;

/// A run, as far as results of every kind tell of it.
struct Entry {
    folder: String,
    result: Value,
}

/// Writes `index.html` of a directory whose folders are runs, of any kind; the newest first.
///
/// # Errors
/// The directory cannot be read or written; a usage error if there is no run in it.
pub fn render_index(dir: &Path) -> Result<(), LabError> {
    let caused = |error: std::io::Error| LabError::caused(dir.display(), error);
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(caused)? {
        let path = entry.map_err(caused)?.path();
        let Ok(text) = std::fs::read_to_string(path.join("result.json")) else {
            continue;
        };
        let folder = path.file_name().map(|name| name.display().to_string());
        let result = serde_json::from_str(&text);
        let result = result.map_err(|error| LabError::caused(path.display(), error))?;
        all.push(Entry {
            folder: folder.unwrap_or_default(),
            result,
        });
    }
    if all.is_empty() {
        return Err(LabError::usage(format!(
            "{}: is no directory of a run, and has none in it: there is no result.json",
            dir.display()
        )));
    }
    all.sort_by_key(|entry| (std::cmp::Reverse(entry.began()), entry.folder.clone()));
    write_whole(&dir.join("index.html"), &html(dir, &all))
}

impl Entry {
    fn began(&self) -> u64 {
        let began = &self.result["machine"]["started_unix_s"];
        began.as_u64().unwrap_or(0)
    }

    fn text(&self, key: &str) -> &str {
        self.result[key].as_str().unwrap_or_default()
    }

    /// What it measured, of any version.
    fn kind(&self) -> &str {
        match self.text("kind") {
            "" => self.text("schema"),
            kind => kind,
        }
    }

    fn count(&self, key: &str) -> usize {
        self.result[key].as_array().map_or(0, Vec::len)
    }

    fn failed_checks(&self) -> usize {
        let checks = self.result["checks"].as_array();
        let failed = |check: &&Value| check["passed"] == false;
        checks.map_or(0, |all| all.iter().filter(failed).count())
    }

    /// What came of it, in a few lines.
    fn lines(&self) -> Vec<String> {
        let all = |key: &str| self.result[key].as_array().into_iter().flatten();
        let text = |of: &Value, key: &str| of[key].as_str().map(str::to_owned);
        let shares = all("configurations").skip(1).filter_map(|of| {
            let first = self.result["configurations"][0]["name"].as_str()?;
            let cells = of["cells"].as_array().into_iter().flatten();
            let ratios = cells.filter_map(|cell| cell["versus_first"]["ratio"].as_f64());
            let ratios: Vec<f64> = ratios.collect();
            let name = of["name"].as_str()?;
            (!ratios.is_empty()).then(|| format!("{name} {:.2} x {first}", median(&ratios)))
        });
        let orders = all("summary").filter_map(|of| {
            let (users, nopm) = (of["users"].as_u64()?, of["nopm"].as_f64()?);
            Some(format!("{users} users: {} NOPM", grouped(nopm)))
        });
        let kept = all("steps").filter_map(|of| {
            let share =
                of["tps"].as_f64()? / of["offered_tps"].as_f64().filter(|&tps| tps > 0.0)?;
            let percent = of["percent"].as_u64()?;
            Some(format!(
                "{percent} % of the streams: {:.1} % of what was asked for",
                100.0 * share
            ))
        });
        let lost = self.result["missing"].as_u64();
        let lost = lost.or(self.result["lost"].as_u64());
        let lines = shares
            .chain(all("comparisons").filter_map(|of| text(of, "text")))
            .chain(all("parts").filter_map(|of| text(of, "sentence")))
            .chain(orders)
            .chain(kept)
            .chain(lost.map(|lost| format!("{lost} acknowledged transactions missing")));
        let lines: Vec<String> = lines.collect();
        match lines.len().checked_sub(MOST_LINES).filter(|&more| more > 0) {
            Some(more) => {
                let some = lines.into_iter().take(MOST_LINES);
                some.chain([format!("and {more} more")]).collect()
            }
            None => lines,
        }
    }

    /// What it compares, by the names in it.
    fn configurations(&self) -> String {
        let all = self.result["configurations"].as_array();
        let names = all
            .into_iter()
            .flatten()
            .filter_map(|of| of["name"].as_str());
        names.collect::<Vec<_>>().join(", ")
    }
}

fn html(dir: &Path, all: &[Entry]) -> String {
    let body = html! {
        header {
            p.kicker { "Ashlar lab" }
            h1 { "Runs" }
            p.sub { (dir.display()) }
        }
        div.scroll {
            table.figures {
                thead {
                    tr {
                        th.text { "run" } th.text { "title" } th.text { "compares" } th.text { "what came of it" } th.text { "kind" } th { "began (UTC)" }
                        th.text { "machine" } th { "flags" } th.text { "" }
                    }
                }
                tbody { @for entry in all { (row(entry)) } }
            }
        }
    };
    page::page("Runs", &body)
}

fn row(entry: &Entry) -> Markup {
    let machine = &entry.result["machine"];
    let failed = entry.failed_checks();
    html! {
        tr {
            td.text { a href={ (entry.folder) "/report.html" } { (entry.folder) } }
            td.text { (entry.text("title")) }
            td.text { (entry.configurations()) }
            td.text { @for line in entry.lines() { (line) br; } }
            td.text { (entry.kind()) }
            td { (&moment(entry.began())[..16]) }
            td.text { (machine["cores"].as_u64().unwrap_or(0)) " cores, " (machine["kernel"].as_str().unwrap_or("")) }
            td { (entry.count("flags")) }
            td.text {
                @if failed > 0 { span.fail { (failed) " checks failed" } }
                @if entry.result["partial"] == true { span.fail { "partial" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_every_kind_are_listed_the_newest_first() {
        let dir = tempfile::tempdir().expect("folder");
        let run = |name: &str, began: u64, rest: &str| {
            let folder = dir.path().join(name);
            std::fs::create_dir(&folder).expect("made");
            let text = format!(
                "{{\"schema\":\"s-{name}\",\"machine\":{{\"started_unix_s\":{began}}}{rest}}}"
            );
            std::fs::write(folder.join("result.json"), text).expect("written");
        };
        let error = render_index(dir.path()).expect_err("no run");
        assert!(
            error.exit_code() == 2 && error.to_string().contains("no result.json"),
            "{error}"
        );
        run("old", 1, ",\"partial\":true");
        run(
            "new",
            86_400,
            ",\"title\":\"a <b>\",\"checks\":[{\"passed\":false}],\"configurations\":[{\"name\":\"local\"},\
             {\"name\":\"remote\",\"cells\":[{\"versus_first\":{\"ratio\":0.5}},{\"versus_first\":{\"ratio\":0.7}}]}]",
        );
        std::fs::create_dir(dir.path().join("other")).expect("made");
        render_index(dir.path()).expect("written");
        let page = std::fs::read_to_string(dir.path().join("index.html")).expect("there");
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
        assert!(at("new/report.html") < at("old/report.html"));
        assert!(at("a &lt;b&gt;") < at("1 checks failed") && at("s-old") < at("partial</span>"));
        assert!(at("remote 0.60 x local") < at("old/report.html"));
        assert!(!page.contains("other"));
    }
}
