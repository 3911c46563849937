use super::*;

#[test]
fn layouts_are_texts() {
    for text in [
        "mirror:1",
        "mirror:4",
        "parity:4+1",
        "parity:7+1",
        "parity:6+2",
        "stripe",
        "stripe:8",
    ] {
        let layout: LayoutSpec = text.parse().expect(text);
        assert_eq!(layout.to_string(), text);
        let json = serde_json::to_string(&layout).expect("json");
        assert_eq!(json, format!("\"{text}\""));
        assert_eq!(
            serde_json::from_str::<LayoutSpec>(&json).expect("back"),
            layout
        );
    }
}

#[test]
fn what_is_no_layout_is_refused_by_name() {
    for text in [
        "",
        "mirror",
        "mirror:",
        "mirror:0",
        "mirror:5",
        "mirror:+2",
        "mirror:2 ",
        "parity",
        "parity:4",
        "parity:1+1",
        "parity:4+3",
        "parity:8+1",
        "parity:7+2",
        "parity:4+1+1",
        "stripe:0",
        "stripe:9",
        "raid5",
        "mirror:256",
        "Mirror:2",
    ] {
        let error = text.parse::<LayoutSpec>().expect_err(text);
        assert_eq!(error.kind, ErrorKind::Usage, "{text}");
        assert!(error.message.contains(&format!("`{text}`")), "{error}");
    }
}

#[test]
fn survival_follows_from_redundancy() {
    let of = |text: &str| Survives::by(text.parse().expect(text));
    assert_eq!(of("mirror:3").drive_losses, 2);
    assert_eq!(of("parity:6+2").noise, Outcome::Survives);
    assert_eq!(of("mirror:1").noise, Outcome::Detected);
    assert_eq!(of("mirror:1").power_loss, Outcome::Survives);
    assert_eq!(of("stripe").power_loss, Outcome::Unprotected);
}

#[test]
fn names_are_plain() {
    for name in ["a", "tank", "db-1_x.y", &"x".repeat(64)] {
        check_name("pool", name).expect(name);
    }
    for name in ["", ".", "..", "a/b", "a b", "ä", &"x".repeat(65), "a\n"] {
        assert!(check_name("pool", name).is_err(), "{name:?}");
    }
    assert_eq!(
        "tank/db".parse::<VolumeName>().expect("name").to_string(),
        "tank/db"
    );
    for name in ["tank", "tank/", "/db", "tank/db/x"] {
        assert!(name.parse::<VolumeName>().is_err(), "{name}");
    }
}

#[test]
fn requests_are_checked() {
    let pool = |drives: &[&str], reserve: Option<u32>| CreatePool {
        name: "tank".into(),
        drives: drives.iter().map(ToString::to_string).collect(),
        reserve: reserve.map_or(ReserveSpec::Auto, ReserveSpec::Drives),
        ..CreatePool::default()
    };
    pool(&["/a", "/b"], Some(1)).check().expect("plain");
    for (bad, word) in [
        (pool(&[], None), "at least one drive"),
        (pool(&["/a", "/a"], None), "twice"),
        (pool(&["/a", "/b"], Some(2)), "reserve"),
        (pool(&["/a\n"], None), "control"),
        (pool(&[""], None), "1 to"),
    ] {
        let error = bad.check().expect_err(word);
        assert!(error.message.contains(word), "{error}");
    }
    let volume = |bytes, grain, hosts: &[&str], any| CreateVolume {
        grain_bytes: grain,
        allow_hosts: hosts.iter().map(ToString::to_string).collect(),
        allow_any_host: any,
        ..CreateVolume::new(
            &"tank/db".parse().expect("name"),
            bytes,
            LayoutSpec::Mirror { copies: 2 },
        )
    };
    volume(4096, Some(8192), &["nqn.2014-08.org.nvmexpress:x"], false)
        .check()
        .expect("plain");
    for bad in [
        volume(0, None, &[], true),
        volume(4097, None, &[], true),
        volume(4096, Some(4096), &[], true),
        volume(4096, None, &["x"], true),
    ] {
        assert_eq!(
            bad.check().expect_err("bad").kind,
            ErrorKind::Usage,
            "{bad:?}"
        );
    }
}

#[test]
fn hosts_are_named_by_nqns() {
    let long = format!("nqn.2024-01.com.example:{}", "x".repeat(199));
    for good in [
        "nqn.2014-08.org.nvmexpress:uuid:2cd2c43b-a90a-45c1-a8cd-86b33ab273b5",
        "nqn.2016-06.io.spdk:host1",
        "nqn.2014-08.lab:nvme:esx-1",
        &long,
    ] {
        let request = AllowHosts {
            hosts: vec![good.into()],
            any_host: false,
        };
        request.check().expect(good);
    }
    let longer = format!("{long}x");
    for bad in [
        "",
        "foo",
        "nqn.mine",
        "nqn.2024-13.com.example:x",
        "nqn.2014-08.org.nvmexpress:uuid:1",
        "nqn.2024-01.com.example:a b",
        "nqn.2024-01.com.example:\u{1b}[31m",
        "nqn.2024-01.com.example:\u{fc}",
        &longer,
    ] {
        let request = AllowHosts {
            hosts: vec![bad.into()],
            any_host: false,
        };
        let error = request.check().expect_err(bad);
        assert_eq!(error.kind, ErrorKind::Usage, "{bad}");
        assert!(error.message.contains(&format!("{bad:?}")), "{error}");
        assert!(!error.message.contains('\u{1b}'), "it reaches a terminal");
    }
    // What an earlier version let in can be taken out.
    let old = DenyHosts {
        hosts: vec!["foo".into()],
        ..DenyHosts::default()
    };
    old.check().expect("printable");
}

#[test]
fn requests_refuse_what_they_do_not_know() {
    let error = serde_json::from_str::<CreatePool>(r#"{"name":"a","drives":[],"destroy":true}"#)
        .expect_err("unknown field");
    assert!(error.to_string().contains("destroy"), "{error}");
}

#[test]
fn every_kind_has_its_status_and_exit_code() {
    let mut statuses: Vec<u16> = ErrorKind::ALL
        .iter()
        .map(|kind| kind.http_status())
        .collect();
    statuses.dedup();
    assert_eq!(
        statuses.len(),
        ErrorKind::ALL.len(),
        "statuses tell kinds apart"
    );
    assert!(
        ErrorKind::ALL
            .iter()
            .all(|kind| (1..=3).contains(&kind.exit_code()))
    );
}

#[test]
fn a_share_of_nothing_is_still_a_number() {
    let fill = LogFill {
        data_ring: f64::NAN,
        map_log: f64::INFINITY,
    };
    let json = serde_json::to_string(&fill).expect("json");
    assert_eq!(json, r#"{"data_ring":0.0,"map_log":0.0}"#);
}
