//! Text in columns.

pub(crate) use ashlar_node::model::readable_bytes as bytes;
use ashlar_nvme::escape;

/// Columns are padded to so much at most: a format refuses more than 65,535, and a reason may be any text.
const WIDEST: usize = 4096;

/// A table whose columns are as wide as what is in them; numbers stand to the right. What cells say may have
/// come from anywhere, and is shown as what it is.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let escaped = |row: &Vec<String>| row.iter().map(|cell| escape(cell)).collect();
    let rows: &[Vec<String>] = &rows.iter().map(escaped).collect::<Vec<_>>();
    let head: Vec<String> = head.iter().map(|cell| cell.to_uppercase()).collect();
    let width = |column: usize| {
        let cells = rows.iter().chain([&head]).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len())
        .map(|column| width(column).min(WIDEST))
        .collect();
    let right: Vec<bool> = (0..head.len())
        .map(|column| is_number(rows, column))
        .collect();
    let mut out = String::new();
    for row in [&head].into_iter().chain(rows) {
        let cells = row
            .iter()
            .zip(&widths)
            .zip(&right)
            .map(|((cell, width), right)| match right {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
        let line = cells.collect::<Vec<_>>().join("  ");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

fn is_number(rows: &[Vec<String>], column: usize) -> bool {
    let starts = |row: &Vec<String>| row.get(column).and_then(|cell| cell.chars().next());
    !rows.is_empty()
        && rows
            .iter()
            .all(|row| starts(row).is_some_and(|c| c.is_ascii_digit()))
}

/// `key: value` lines, the values one under another.
pub(super) fn lines(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(key, _)| key.len()).max().unwrap_or(0) + 1;
    let line = |(key, value): &(&str, String)| {
        let key = format!("{key}:");
        format!("{key:<width$} {}\n", escape(value))
    };
    pairs.iter().map(line).collect()
}

/// A share as people read it.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Seconds as people read them.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// The word that stands for a value in JSON.
pub(crate) fn word(value: impl serde::Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_calls_itself_does_not_reach_the_terminal() {
        let name = "nqn.x:\x1b[2J\u{202e}".to_owned();
        let shown = [
            lines(&[("host", name.clone())]),
            table(&["host"], &[vec![name]]),
        ];
        for text in shown {
            assert!(text.contains(r"nqn.x:\u{1b}[2J\u{202e}"), "{text:?}");
        }
    }

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let rows = [
            vec!["a".into(), "5 B".into()],
            vec!["long".into(), "100 B".into()],
        ];
        assert_eq!(
            table(&["name", "size"], &rows),
            "NAME   SIZE\na       5 B\nlong  100 B\n"
        );
        assert_eq!(table(&["name"], &[]), "NAME\n");
        let long = "x".repeat(70_000);
        let shown = table(&["reason"], &[vec![long.clone()]]);
        assert_eq!(shown.lines().nth(1), Some(&*long));
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(percent(0.357), "35.7 %");
        assert_eq!(
            [duration(59), duration(90), duration(7260), duration(90000)],
            ["59 s", "1 min 30 s", "2 h 1 min", "1 d 1 h"]
        );
    }
}
