use super::*;

const FILE: &str = "
    name = 'x'
    published = 'fci_vs_basic_ag.csv'
    compare = [['fci', 'bag'], ['bag', 'one']]
    [oltp]
    warehouses = 1
    users = [1]
    memory_pct = [38, 19]
    [[configuration]]
    name = 'fci'
    place = 'shared'
    published = 'fci'
    [[configuration]]
    name = 'bag'
    place = 'own'
    standby = 'other'
    topology = 'availability-group'
    published = 'bag'
    [[configuration]]
    name = 'one'
    place = 'own'
";

fn file() -> OltpScenario {
    OltpScenario::parse(FILE).expect("sound")
}

fn place(name: &str) -> Place {
    Place {
        name: name.into(),
        dir: Path::new("/x").join(name),
    }
}

#[test]
fn places_are_those_that_are_named_and_homes_are_theirs() {
    let file = file();
    let dir = Path::new("/here");
    let given = ["own", "other", "shared"].map(place);
    let (places, flag) = file.places(&given, dir).expect("places");
    let names: Vec<&str> = places.iter().map(|of| &*of.name).collect();
    assert_eq!((names, flag), (vec!["shared", "own", "other"], None));
    let (homes, asked) = homes(&file, &places);
    let told: Vec<(usize, Option<usize>)> = homes.iter().map(|of| (of.place, of.standby)).collect();
    assert_eq!(told, [(0, None), (1, Some(2)), (1, None)]);
    let told: Vec<usize> = asked.iter().map(|of| of.home).collect();
    assert_eq!(told, [0, 1, 2]);
    // Without any they are all in one directory, which is told.
    let (places, flag) = file.places(&[], dir).expect("places");
    assert!(places.len() == 3 && places.iter().all(|of| of.dir == dir));
    assert!(flag.is_some_and(|text| text.contains("shared, own, other")));
    for (given, wrong) in [
        (&["own", "shared"][..], "--place other=DIR"),
        (&["own", "shared", "other", "more"], "--place more"),
        (&["own", "own"], "twice"),
    ] {
        let given: Vec<Place> = given.iter().map(|name| place(name)).collect();
        let error = file.places(&given, dir).expect_err(wrong);
        assert!(
            error.exit_code() == 2 && error.to_string().contains(wrong),
            "{error}"
        );
    }
}

#[test]
fn a_group_of_a_place_may_have_its_standby_on_another() {
    let text = "name = 'x'\n[oltp]\nwarehouses = 1\nusers = [1]\ngroup = 'patroni'\n\
                topology = ['standalone', 'availability-group']\n";
    let file = OltpScenario::parse(text).expect("sound");
    let given = ["near", "far", "far.standby"].map(place);
    let (places, _) = file.places(&given, Path::new("/here")).expect("places");
    let (homes, asked) = homes(&file, &places);
    let told: Vec<(usize, Option<usize>)> = homes.iter().map(|of| (of.place, of.standby)).collect();
    assert_eq!(told, [(0, Some(0)), (1, Some(2))]);
    assert_eq!(asked.len(), 4);
    let refused = |text: &str, places: &[&str]| {
        let given: Vec<Place> = places.iter().map(|name| place(name)).collect();
        let file = OltpScenario::parse(text)?;
        file.places(&given, Path::new("/here")).map(drop)
    };
    let alone = text.replace(", 'availability-group'", "");
    let plain = alone.replace("group = 'patroni'\n", "");
    let local = text.replace("group = ", "commit = 'local'\ngroup = ");
    for (text, places, wrong) in [
        (text, &["near", "far.standby"][..], "--place far=DIR"),
        (&plain, &["far", "far.standby"], "no group"),
        (&alone, &["far"], "of what?"),
        (&local, &["far"], "commit \"on\""),
        (&format!("{text}[turns]\n"), &["far"], "turns"),
    ] {
        let error = refused(text, places).expect_err(wrong);
        let told = error.to_string();
        assert!(error.exit_code() == 2 && told.contains(wrong), "{told}");
    }
}

#[test]
fn pairs_are_those_that_are_asked_for() {
    let mut file = file();
    assert_eq!(file.asked_pairs(), [["fci", "bag"], ["bag", "one"]]);
    file.compare.clear();
    assert_eq!(file.asked_pairs(), [["fci", "bag"], ["fci", "one"]]);
}

#[test]
fn what_cannot_be_is_named() {
    for (from, to, wrong) in [
        (
            "'bag', 'one'",
            "'bag', 'two'",
            "no [[configuration]] \"two\"",
        ),
        ("'bag', 'one'", "'bag', 'bag'", "with itself"),
        ("'bag', 'one'", "'fci', 'bag'", "or twice"),
        ("name = 'one'", "name = 'bag'", "bag: twice"),
        ("name = 'one'", "name = ''", "name and place"),
        (
            "published = 'fci'",
            "published = 'bag'",
            "fci: published = \"bag\"",
        ),
        (
            "published = 'fci'",
            "published = 'local'",
            "published = \"local\"",
        ),
        (
            "published = 'fci'\n",
            "standby = 'x'\n",
            "standby: of topology",
        ),
        (
            "users = [1]",
            "users = [1]\ntopology = ['availability-group']",
            "has its own",
        ),
        ("name = 'x'", "name = 'x'\nself_test = true", "self_test"),
    ] {
        let text = FILE.replacen(from, to, 1);
        assert_ne!(text, FILE);
        let error = OltpScenario::parse(&text).expect_err(wrong);
        assert!(
            error.exit_code() == 2 && error.to_string().contains(wrong),
            "{error}"
        );
    }
    let text = "name = 'x'\ncompare = [['a', 'b']]\n[scan]\nrows = 1\nreaders = [1]";
    let error = OltpScenario::parse(text).expect_err("no names");
    assert!(error.to_string().contains("there is none"), "{error}");
}

#[test]
fn a_place_that_is_not_there_is_refused_by_name_and_not_made() {
    let dir = tempfile::tempdir().expect("a folder");
    let (here, missing) = (dir.path().display(), dir.path().join("missing"));
    let given = |texts: &[String]| Place::given(texts).map_err(|error| error.to_string());
    let (good, bad) = (format!("a={here}"), format!("b={}", missing.display()));
    let places = given(std::slice::from_ref(&good)).expect("it is there");
    assert_eq!((&*places[0].name, &*places[0].dir), ("a", dir.path()));
    for (texts, says) in [
        ([good.clone(), bad.clone()], format!("--place {bad}")),
        ([good.clone(), good], "--place a: twice".to_owned()),
        (
            ["a".to_owned(), bad],
            "--place a: must be NAME=DIR".to_owned(),
        ),
    ] {
        let refused = given(&texts).expect_err("it is wrong");
        assert!(refused.contains(&says), "{refused}");
    }
    assert!(!missing.exists());
}
