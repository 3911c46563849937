//! `ashlar lab sweep` of two devices in turn.

use ashlar_lab::ResultFile;
use ashlar_lab::result::{CellResult, RunResult};

use super::Bench;
use crate::child::{Program, words};
use crate::failure::Failure;

/// What is swept.
pub(super) struct Sweep<'a> {
    /// Whose it is: names of files begin with that.
    pub(super) part: &'a str,
    pub(super) pattern: &'a str,
    /// As the lab takes them.
    pub(super) blocks: &'a str,
    pub(super) depths: &'a str,
    /// Names and devices.
    pub(super) sides: [(&'a str, &'a str); 2],
}

/// What came of it.
pub(super) struct Swept {
    /// Each cell on both devices.
    pub(super) pairs: Vec<(CellResult, CellResult)>,
    /// What the lab says about them.
    pub(super) notes: Vec<String>,
}

impl Sweep<'_> {
    pub(super) fn measure(&self, bench: &Bench<'_>) -> Result<Swept, Failure> {
        let Self { part, pattern, .. } = self;
        let logs = &bench.options.out;
        let dir = logs.join(format!("{part}-{pattern}"));
        if dir.exists() {
            std::fs::remove_dir_all(&dir).map_err(Failure::doing(dir.display()))?;
        }
        let mut args = words(["lab", "sweep", "--pattern", pattern, "--destroy-data"]);
        args.extend(words(["--block", self.blocks, "--depth", self.depths]));
        for (name, device) in self.sides {
            args.extend(words(["--on", &format!("{name}={device}")]));
        }
        args.extend(words([
            "--seconds",
            &bench.length.as_secs_f64().to_string(),
        ]));
        args.extend(words(["--repeat", &bench.options.rounds.to_string()]));
        args.extend(words(["--out".as_ref(), dir.as_os_str()]));
        let program = Program {
            name: format!("ashlar lab sweep ({pattern})"),
            path: bench.options.ashlar.clone(),
            args,
            core: None,
            log: logs.join(format!("{part}-{pattern}.log")),
            output: Some(logs.join(format!("{part}-{pattern}.txt"))),
        };
        program.start()?.finish()?;
        let mut result = RunResult::load(&dir).map_err(Failure::environment)?;
        let [first, second] = &mut result.configurations[..] else {
            return Err(Failure::environment("the lab's result has not two sides"));
        };
        let (first, second) = (first.cells.drain(..), second.cells.drain(..));
        let pairs = first.zip(second).collect();
        let said = grouped(&result.head.flags)
            .into_iter()
            .chain(result.head.problems);
        let notes = said.map(|note| format!("{part}, {pattern}: {note}"));
        Ok(Swept {
            pairs,
            notes: notes.collect(),
        })
    }
}

/// The same remark about many cells, once: the lab says `cell: remark`.
fn grouped(flags: &[String]) -> Vec<String> {
    let mut remarks: Vec<(&str, u32)> = Vec::new();
    for flag in flags {
        let remark = flag
            .split_once(": ")
            .map_or(flag.as_str(), |(_, remark)| remark);
        match remarks.iter_mut().find(|(known, _)| *known == remark) {
            Some((_, count)) => *count += 1,
            None => remarks.push((remark, 1)),
        }
    }
    let words = |(remark, count)| format!("{remark} ({count} of the figures)");
    remarks.into_iter().map(words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remark_about_many_cells_is_said_once() {
        let flags = ["a b: not steady", "slow", "c: not steady"].map(String::from);
        let expected = ["not steady (2 of the figures)", "slow (1 of the figures)"];
        assert_eq!(grouped(&flags), expected);
    }
}
