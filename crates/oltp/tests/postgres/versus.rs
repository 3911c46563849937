//! A run of scenarios on storage that is no more than two folders.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ashlar_lab::{Journal, LabError, Machine, Origin, Progress, ResultFile};
use ashlar_oltp::scenario::Place;
use ashlar_oltp::versus::{
    Ground, Moved, PartFile, SHIPPED, Source, VersusFile, VersusResult, VersusRun, run_versus,
};

use crate::cluster::programs;

struct Folders {
    places: Vec<Place>,
    looked: Arc<AtomicU64>,
}

impl Ground for Folders {
    fn places(&self) -> Vec<Place> {
        self.places.clone()
    }

    fn group(&self) -> Option<&Path> {
        None
    }

    fn sources(&self) -> Result<Vec<Source>, LabError> {
        let looked = Arc::clone(&self.looked);
        let counters = move || {
            let count = looked.fetch_add(1, Ordering::SeqCst);
            Some((count * 1_000_000, 0))
        };
        Ok(vec![Source {
            name: "a drive".into(),
            side: Moved::Fci,
            counters: Box::new(counters),
        }])
    }
}

fn part(name: &str, rows: u32) -> PartFile {
    let text = format!(
        "name = '{name}'\nmeasure = {{ repeat = 2 }}\ncompare = [['one', 'other']]\n\
         [scan]\nrows = {rows}\nreaders = [1]\nset = ['fsync=off']\n\
         [[configuration]]\nname = 'one'\nplace = 'shared'\n\
         [[configuration]]\nname = 'other'\nplace = 'own'\n"
    );
    PartFile {
        name: name.into(),
        text,
    }
}

#[test]
fn parts_run_on_the_same_ground_and_are_told_together() {
    if programs().is_none() {
        eprintln!("SKIPPED: there is no PostgreSQL");
        return;
    }
    let room = tempfile::tempdir().expect("a folder");
    // A server that runs as another user must get in.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(room.path(), open).expect("opened");
    let place = |name: &str| Place {
        name: name.into(),
        dir: room.path().join(name),
    };
    let ground = Folders {
        places: vec![place("shared"), place("own")],
        looked: Arc::default(),
    };
    let (_, text) = SHIPPED[0];
    let (file, _) = VersusFile::parse(text, &[], &[]).expect("sound");
    let changed = vec!["--set measure.repeat=2".to_owned()];
    let mut result = VersusResult::begun(&file, 1.0, Vec::new(), changed.clone());
    let parts = [part("first", 2000), part("second", 3000)];
    let out = room.path().join("out");
    std::fs::create_dir(&out).expect("made");
    let progress = Progress::silent();
    let origin = Origin {
        machine: Machine::here(),
        ..Origin::default()
    };
    let mut journal = Journal::begin(&out, &origin).expect("begun");
    let run = VersusRun {
        name: &file.name,
        parts: &parts,
        scale: "1",
        changed: &changed,
        dir: room.path(),
        out: &out,
        progress: &progress,
    };
    run_versus(&run, &ground, &mut result, &mut journal).expect("it runs");
    let kept = VersusResult::load(&out).expect("kept after each part");
    let names: Vec<&str> = kept.parts.iter().map(|part| &*part.name).collect();
    assert_eq!(names, ["first", "second"]);
    assert!(kept.parts.iter().all(|part| part.rows.len() == 1));
    assert!(
        ground.looked.load(Ordering::SeqCst) >= 4,
        "looked at before and after each"
    );
    let scenario = kept.head.scenario.as_ref().expect("it was one");
    assert_eq!(scenario.changed, changed);
    for part in &parts {
        assert!(out.join(&part.name).join("report.html").exists());
    }
    // A part that cannot run ends it, and what was measured before stays.
    let wrong = [part("third", 2000), part("fourth", 0)];
    let run = VersusRun {
        parts: &wrong,
        ..run
    };
    let error = run_versus(&run, &ground, &mut result, &mut journal).expect_err("no rows");
    assert!(error.to_string().contains("--rows 0"), "{error}");
    let kept = VersusResult::load(&out).expect("kept");
    assert!(kept.parts.len() == 3 && kept.head.partial);
    // It goes on: what has ended is told, and not run again.
    drop(journal);
    let (mut journal, _) = Journal::resume(&out, &Machine::here()).expect("goes on");
    let looked = ground.looked.load(Ordering::SeqCst);
    let mut again = VersusResult::begun(&file, 1.0, Vec::new(), Vec::new());
    let run = VersusRun {
        parts: &parts,
        ..run
    };
    run_versus(&run, &ground, &mut again, &mut journal).expect("all is there");
    assert_eq!(again.parts, kept.parts[..2]);
    assert_eq!(ground.looked.load(Ordering::SeqCst), looked);
}
