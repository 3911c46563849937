//! The result as text: a table that reads on a terminal and in a README alike.

use std::fmt::Write;

use crate::plan::is_label;
use crate::result::{CellResult, RunResult};
use crate::stats::median;
use crate::units::grouped;

impl RunResult {
    /// A Markdown table of all cells, then the verdicts, the checks, and how many flags there are.
    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_text(&mut out);
        out
    }

    fn write_text(&self, out: &mut String) -> std::fmt::Result {
        self.write_table(out)?;
        writeln!(out)?;
        for one in self.configurations.iter().filter(|one| is_label(&one.name)) {
            writeln!(out, "{} is {}", one.name, one.spec)?;
        }
        for (one, of) in
            (self.configurations.iter()).filter_map(|one| Some((one, one.capacity.as_ref()?)))
        {
            writeln!(
                out,
                "{}: {:.1} % of the drives' bytes can be data, with reserves ({:.0} % by the layout)",
                one.name, of.with_reserves_pct, of.layout_pct
            )?;
        }
        for verdict in self.verdicts() {
            writeln!(out, "{verdict}")?;
        }
        for check in &self.head.checks {
            let how = if check.passed { "holds " } else { "FAILED" };
            writeln!(out, "{how} {}: {}", check.name, check.text)?;
        }
        for finding in &self.findings {
            writeln!(out, "{}: {}", finding.name, finding.text)?;
        }
        self.head.write_end(out)
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        let Some(first) = self.configurations.first() else {
            return Ok(());
        };
        let published = self.configurations.iter().skip(1).any(|configuration| {
            configuration
                .cells
                .iter()
                .any(|cell| published_share(cell).is_some())
        });
        let mut head = "| cell |".to_owned();
        let mut rule = "|---|".to_owned();
        for (index, configuration) in self.configurations.iter().enumerate() {
            write!(head, " {} IOPS | mean us |", configuration.name)?;
            rule += "---:|---:|";
            if index > 0 {
                head += " % |";
                rule += "---:|";
                if published {
                    head += " published |";
                    rule += "---:|";
                }
            }
        }
        writeln!(out, "{head}\n{rule}")?;
        for cell in &first.cells {
            write!(out, "| {} |", cell.spec().slug())?;
            for (index, configuration) in self.configurations.iter().enumerate() {
                let found = configuration.cells.iter().find(|c| c.spec() == cell.spec());
                write_cell(out, found, index > 0, published)?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    /// How each configuration compares with the first, over all cells.
    fn verdicts(&self) -> impl Iterator<Item = String> {
        let first = self.configurations.first().map_or("", |c| c.name.as_str());
        self.configurations
            .iter()
            .skip(1)
            .filter_map(move |configuration| {
                let known: Vec<_> = configuration
                    .cells
                    .iter()
                    .filter_map(|c| c.versus_first.as_ref())
                    .collect();
                if let [only] = known[..] {
                    return Some(only.words(&configuration.name, first));
                }
                let ratios: Vec<f64> = known.iter().map(|ratio| ratio.ratio).collect();
                let least = ratios.iter().copied().reduce(f64::min)?;
                let most = ratios.iter().copied().reduce(f64::max)?;
                let differ = known.iter().filter(|ratio| ratio.differs).count();
                Some(format!(
                    "{} is {:.2} x {first} in IOPS (median of {} cells, {least:.2}-{most:.2}); \
                 {differ} of them differ beyond the noise",
                    configuration.name,
                    median(&ratios),
                    ratios.len()
                ))
            })
    }
}

fn write_cell(
    out: &mut String,
    cell: Option<&CellResult>,
    share: bool,
    published: bool,
) -> std::fmt::Result {
    let Some(cell) = cell else {
        let columns = 2 + usize::from(share) + usize::from(share && published);
        return write!(out, "{}", " - |".repeat(columns));
    };
    write!(
        out,
        " {} | {:.1} |",
        grouped(cell.iops),
        cell.latency_us.mean
    )?;
    let percent = |share: Option<f64>| share.map_or("-".to_owned(), |s| format!("{s:.0} %"));
    if share {
        write!(
            out,
            " {} |",
            percent(cell.versus_first.as_ref().map(|r| 100.0 * r.ratio))
        )?;
        if published {
            write!(out, " {} |", percent(published_share(cell)))?;
        }
    }
    Ok(())
}

fn published_share(cell: &CellResult) -> Option<f64> {
    cell.published
        .as_ref()
        .and_then(|published| published.pct_of_first)
}
