//! What a second copy costs, in tables.

use super::{Report, Table, load_name, mark, print, range};
use crate::failure::Failure;
use crate::parts::{Copies, WriteCost};

impl Report {
    /// Two copies against one.
    pub(crate) fn replicas(
        &mut self,
        cells: Vec<Copies>,
        notes: Vec<String>,
    ) -> Result<(), Failure> {
        self.results.flags.extend(notes);
        let name = |cell: &Copies| load_name(cell.pattern.name(), cell.block_bytes, cell.depth);
        let mut table = Table::new(&["load", "at the owner", "goal", "at the other", "at both"]);
        let mut times = Table::new(&["load", "one", "owner", "other", "both"]);
        for cell in &cells {
            let goal = match cell.goal_at_least {
                Some(goal) => format!("≥ {goal}{}", mark(cell.owner.ratio.median >= goal)),
                None => "-".into(),
            };
            table.row([
                name(cell),
                range(&cell.owner.ratio, 2),
                goal,
                range(&cell.other.ratio, 2),
                range(&cell.spread.ratio, 2),
            ]);
            let latency = |us: f64| format!("{us:.0}");
            times.row([
                name(cell),
                latency(cell.owner.one_us),
                latency(cell.owner.two_us),
                latency(cell.other.two_us),
                latency(cell.spread.two_us),
            ]);
        }
        print(&table.text("Two copies / one, by where hosts are (IOPS)"))?;
        print(&times.text("Mean latency, us"))?;
        let mut table = Table::new(&["one write", "one", "trip", "append", "two", "of", "goal"]);
        for cell in &cells {
            let Some(rule) = &cell.one_at_a_time else {
                continue;
            };
            table.row([
                name(cell),
                format!("{:.0}", cell.owner.one_us),
                format!("{:.0}", rule.round_trip_us),
                format!("{:.0}", rule.append_us),
                format!("{:.0}", cell.owner.two_us),
                format!("{:.2}", rule.ratio),
                format!(
                    "≤ {}{}",
                    rule.goal_at_most,
                    mark(rule.ratio <= rule.goal_at_most)
                ),
            ]);
        }
        print(&table.text("One write at a time, of what it is made of (us)"))?;
        self.results.replicas = Some(cells);
        self.save()
    }

    /// What a write costs, of two copies and of one.
    pub(crate) fn replica_cost(
        &mut self,
        cells: Vec<WriteCost>,
        notes: Vec<String>,
    ) -> Result<(), Failure> {
        self.results.flags.extend(notes);
        let mut table = Table::new(&["load", "one, us", "two, us", "two / one"]);
        let mut bytes = Table::new(&["load", "between nodes", "one", "owner", "other"]);
        for cell in &cells {
            let case = &cell.case;
            let name = || load_name(case.pattern, case.block_bytes, case.depth);
            table.row([
                name(),
                range(&cell.one.cpu_us, 1),
                range(&cell.two.cpu_us, 1),
                range(&cell.cpu_ratio, 2),
            ]);
            bytes.row([
                name(),
                range(&cell.two.wire_bytes, 0),
                range(&cell.one.owner_device_bytes, 2),
                range(&cell.two.owner_device_bytes, 2),
                range(&cell.two.other_device_bytes, 2),
            ]);
        }
        print(&table.text("Processor time a write, of the daemons of both nodes"))?;
        print(&bytes.text("Bytes a write between nodes; bytes on each node's drives a user byte"))?;
        self.results.replica_cost = Some(cells);
        self.save()
    }
}
