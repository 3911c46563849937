//! Scans of configurations in turns: blocks that go through all of them in an order that is drawn, and back, until it
//! is known how they compare. The two scans of a block are a step.

use ashlar_lab::{Journal, LabError, Turn};

use super::file::TurnsSection;
use super::scans::{Kept, Scans};
use super::turns::{block_of, is_known, looks, order_of};

/// Runs them, for each number of readers; a block that the journal has is not measured again.
pub(super) fn run(
    scans: &mut Scans<'_>,
    turns: &TurnsSection,
    readers: &[usize],
    journal: &mut Journal,
) -> Result<(), LabError> {
    let stage = scans.stage;
    let most = stage.file.measure.repeat;
    stage.progress.start(readers.len() as u64 * u64::from(most));
    let looks = looks(most);
    for &readers in readers {
        let mut order: Vec<usize> = (0..scans.count()).collect();
        let mut rng = order_of(stage, readers);
        for block in 1..=most {
            rng.shuffle(&mut order);
            let turn = block_of(readers, block);
            let all = match journal.outcome::<Vec<Kept>>(&turn)? {
                Some(all) => all,
                None => {
                    stage
                        .progress
                        .doing(&format!("{readers} readers, block {block}"));
                    let all = self::block(scans, &order, &turn)?;
                    journal.keep(&turn, &all)?;
                    all
                }
            };
            let line = line(scans, &all, &turn);
            for (configuration, kept) in all.into_iter().enumerate() {
                scans.add(configuration, kept);
            }
            stage.progress.step(&line);
            let all = &scans.result.configurations;
            if looks.is_at(block as usize) && is_known(stage, turns, all, readers) {
                break;
            }
        }
    }
    stage.progress.finish();
    Ok(())
}

/// One block: a step of each configuration, in their order.
fn block(scans: &mut Scans<'_>, order: &[usize], turn: &Turn) -> Result<Vec<Kept>, LabError> {
    let mut seen: Vec<Option<Kept>> = (0..scans.count()).map(|_| None).collect();
    for &configuration in order.iter().chain(order.iter().rev()) {
        let own = Turn {
            configuration,
            ..turn.clone()
        };
        let kept = scans.told_step(&own)?;
        let place = &mut seen[configuration];
        *place = Some(match place.take() {
            Some(first) => together(first, kept),
            None => kept,
        });
    }
    Ok(seen.into_iter().flatten().collect())
}

/// Both scans of a block; what was to be flagged of either is flagged once.
fn together(first: Kept, second: Kept) -> Kept {
    let mut flags = first.flags;
    for flag in second.flags {
        if !flags.contains(&flag) {
            flags.push(flag);
        }
    }
    Kept {
        step: first.step.with(&second.step),
        flags,
    }
}

/// What every configuration did in a block.
fn line(scans: &Scans<'_>, all: &[Kept], turn: &Turn) -> String {
    let names = scans.result.configurations.iter().map(|of| &of.name);
    let told = names
        .zip(all)
        .map(|(name, kept)| format!("{name} {:.2} s", kept.step.run_time_s));
    let told: Vec<String> = told.collect();
    format!(
        "{} readers, block {}: {}",
        turn.cell,
        turn.repeat,
        told.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::ScanStep;
    use crate::usage::DeviceBytes;

    fn scan(run_time_s: f64, read: u64, flags: &[&str]) -> Kept {
        Kept {
            step: ScanStep {
                readers: 2,
                repeat: 3,
                began_unix_s: run_time_s,
                run_time_s,
                quickest_s: run_time_s / 2.0,
                mb_s: 600.0 / run_time_s,
                server_cpu_s: Some(run_time_s),
                client_cpu_s: 0.5,
                clients: Vec::new(),
                machine_cpu_pct: None,
                device: DeviceBytes {
                    read_bytes: Some(read),
                    ..DeviceBytes::default()
                },
            },
            flags: flags.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn two_scans_of_a_block_are_one_step_of_their_means() {
        let Kept { step, flags } = together(scan(2.0, 10, &["x"]), scan(4.0, 20, &["x", "y"]));
        assert_eq!((step.run_time_s, step.quickest_s), (3.0, 1.5));
        assert!((step.mb_s - 200.0).abs() < 1e-9, "600 MB in 3 s");
        assert_eq!((step.server_cpu_s, step.machine_cpu_pct), (Some(3.0), None));
        assert_eq!((step.began_unix_s, step.device.read_bytes), (2.0, Some(15)));
        assert_eq!(flags, ["x", "y"]);
    }
}
