use ashlar_lab::result::ScenarioNote;

use ashlar_lab::{Comparison, LabError, ResultFile};

use super::*;
use crate::result::OltpResult;
use crate::scenario::{OltpScenario, SHIPPED};
use crate::server::Topology::{self, AvailabilityGroup, Standalone};

fn of(place: &str, topology: Topology, memory: f64, nopm: f64) -> ConfigurationResult {
    let mut run = OltpResult::sample(2, &[1.0, 2.0, 3.0].map(|more| nopm + more));
    let four = OltpResult::sample(4, &[1.0, 2.0, 3.0].map(|more| 2.0 * nopm + more));
    run.steps.extend(four.steps);
    ConfigurationResult {
        name: format!("{place}, {topology}, {memory} % memory"),
        place: place.into(),
        topology: Some(topology),
        memory_pct: Some(memory),
        oltp: Some(run),
        ..ConfigurationResult::default()
    }
}

/// Two places, two topologies, two memories, two numbers of users.
fn result(far: f64) -> ScenarioResult {
    let mut file = OltpScenario::parse(SHIPPED[0].1).expect("sound");
    if let Some(oltp) = &mut file.oltp {
        oltp.users = vec![2, 4];
    }
    let note = ScenarioNote {
        name: "x".into(),
        about: String::new(),
        scale: 1.0,
        scaled: String::new(),
        source: String::new(),
        changed: Vec::new(),
    };
    let mut result = ScenarioResult::new("x", note);
    for (topology, by) in [(Standalone, 1.0), (AvailabilityGroup, 0.5)] {
        for memory in [38.0, 9.5] {
            for (place, far) in [("near", 1.0), ("far", far)] {
                let nopm = 1000.0 * by * far;
                result
                    .configurations
                    .push(of(place, topology, memory, nopm));
            }
        }
    }
    result.sum_up(&file, &[100, 800]).expect("summed up");
    result
}

#[test]
fn comparisons_of_the_same_two_things_are_one_table() {
    let groups = Group::of(&result(0.81));
    let headings: Vec<String> = groups.iter().map(Group::heading).collect();
    assert_eq!(
        headings,
        [
            "Storage place: far against near",
            "Topology: availability group against standalone",
            "Memory: 9.5 % against 38 % of the database",
        ]
    );
    let text = groups[0].text();
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| {
            line.split("  ")
                .filter(|word| !word.is_empty())
                .map(str::trim)
                .collect()
        })
        .collect();
    assert_eq!(lines[0], ["Storage place: far against near (NOPM)"]);
    let names = ["topology", "memory", "users", "NOPM near", "NOPM far"];
    assert_eq!(lines[1][..5], names);
    // Topologies together, in them memories, in them users.
    let keys: Vec<String> = lines[2..].iter().map(|line| line[..3].join("|")).collect();
    assert_eq!(
        keys[..3],
        [
            "standalone|38 %|2",
            "standalone|38 %|4",
            "standalone|9.5 %|2"
        ]
    );
    assert_eq!(keys[7], "availability group|9.5 %|4");
    let first = [
        "1,002",
        "812",
        "0.81",
        "0.81-0.81",
        "3",
        "75 %",
        "19 % less",
        "0.81",
        "100",
    ];
    assert_eq!(lines[2][3..], first);
    assert!(groups[0].begins_block(2) && !groups[0].begins_block(1));
    // What differs is no column.
    assert!(
        !groups[1].text().contains("topology  "),
        "{}",
        groups[1].text()
    );
    assert!(groups[1].text().contains("place"));
}

#[test]
fn every_block_is_a_question_at_the_top() {
    let result = result(0.81);
    let short: Vec<_> = Group::of(&result).iter().flat_map(Group::short).collect();
    let first = &short[0];
    assert_eq!(
        (&*first.question, &*first.configurations),
        ("NOPM with 2, 4 users, standalone, 38 %", "far against near")
    );
    assert_eq!(first.ratio, "0.81 (0.81 to 0.81 of 2 steps)");
    assert_eq!(first.verdict, "less in all 2");
    // Two topologies of two memories; two of each other.
    assert_eq!(short.len(), 4 + 4 + 4);
    let html = result.html().expect("a report");
    let (_, table) = html.split_once("In short").expect("a table");
    let (table, _) = table.split_once("</table>").expect("its end");
    assert_eq!(table.matches("<tr>").count(), 1 + short.len());
}

#[test]
fn a_hint_says_what_gives_tighter_ranges_only_where_they_are_wide() {
    let mut result = result(0.81);
    assert_eq!(hint(&result, &Group::of(&result)), None);
    let wide = &mut result.comparisons[0].ratio;
    (wide.low, wide.high) = (wide.ratio * 0.8, wide.ratio * 1.2);
    let text = hint(&result, &Group::of(&result)).expect("a hint");
    assert!(
        text.contains("1 of 24") && text.contains("[turns]"),
        "{text}"
    );
    assert!(result.text().contains("hint: 1 of 24"));
    for of in &mut result.configurations {
        if let Some(run) = &mut of.oltp {
            run.method.in_turns = true;
        }
    }
    assert_eq!(hint(&result, &Group::of(&result)), None);
}

fn compared(a: &ScenarioResult, b: &ScenarioResult) -> String {
    Comparison::of(a, b).expect("compared").to_string()
}

#[test]
fn two_runs_are_compared_in_one_table() {
    let (a, b) = (result(0.81), result(0.5));
    let text = compared(&a, &b);
    assert!(
        text.contains("NOPM 2") && text.contains("availability group"),
        "{text}"
    );
    assert!(
        text.contains("is 0.62 x") && text.contains("no difference"),
        "{text}"
    );
    let mut other = b;
    other.configurations.clear();
    assert_eq!(
        Comparison::of(&a, &other).expect_err("nothing").exit_code(),
        2
    );
}

#[test]
fn a_run_that_goes_on_or_was_killed_is_told_as_such() {
    let whole = result(0.81);
    let killed = whole.so_far();
    assert!(killed.head.partial && killed.text().contains("has not reached its end"));
    let note = "note: a run is partial";
    let text = compared(&whole, &killed);
    assert_eq!(text.matches(note).count(), 1, "{text}");
    let text = compared(&whole, &whole);
    assert!(!text.contains(note), "{text}");
}

#[test]
fn a_check_that_ended_a_run_is_its_complaint() {
    let mut ended = result(0.81);
    assert_eq!(ended.complaint(), None);
    let error = LabError::environment("gone");
    super::super::told(&mut ended, "near", &error);
    assert!(ended.head.partial && ended.complaint().is_none());
    let error = LabError::check("3 rows are others");
    super::super::told(&mut ended, "far, 2 readers", &error);
    assert_eq!(
        ended.complaint().as_deref(),
        Some("far, 2 readers: 3 rows are others")
    );
}
