//! The loss of a primary: nothing that was acknowledged is missing, and a loss would be seen.

use crate::rig::{all_hold, is_left_empty, lab, places, result};

#[test]
fn no_acknowledged_order_is_lost_with_the_primary() {
    let Some(room) = places(&["a", "b"]) else {
        return;
    };
    let dir = room.path();
    let words = "failover --dir a --standby b --users 3 --before 2s --after 1s --commit remote-apply --out out";
    let (code, text) = lab(dir, words);
    assert_eq!(code, 0, "{text}");
    let result = result(dir, "out");
    let acknowledged = result["acknowledged"].as_u64().expect("a count");
    assert!(
        acknowledged > 20 && text.contains(&format!("none of {acknowledged} acknowledged")),
        "{text}"
    );
    assert_eq!(result["missing"], 0);
    assert_eq!(
        result["database"]["settings"]["synchronous_commit"],
        "remote_apply"
    );
    // It died in the middle: all users were lost, and nothing stopped in order.
    assert_eq!(
        (
            &result["before"]["lost_users"],
            &result["before"]["partial"]
        ),
        (&3.into(), &true.into())
    );
    for kind in ["new_order", "payment", "delivery"] {
        let count = |of: &serde_json::Value, key| of[kind][key].as_u64().expect("a count");
        let told = count(&result["kinds"], "acknowledged");
        let counted = count(&result["before"]["transactions"], "count");
        // Counting begins with the last user, the ledger with the first; a delivery may find nothing to deliver.
        let least = if kind == "delivery" {
            1
        } else {
            counted / 10 * 9
        };
        assert!(
            counted > 0 && told >= least.max(1),
            "{kind}: {counted} counted, {told} told"
        );
        assert_eq!(count(&result["kinds"], "missing"), 0, "{kind}");
    }
    for conditions in [&result["consistency"], &result["after"]["consistency"]] {
        assert!(all_hold(conditions), "{result}");
    }
    assert!(
        result["after"]["nopm"].as_f64() > Some(0.0),
        "the promoted server takes orders"
    );
    let report = std::fs::read_to_string(dir.join("out/report.html")).expect("a report");
    assert!(
        report.contains("Every acknowledged new order, payment and delivery is there")
            && !report.contains("FAILED")
    );
    is_left_empty(&dir.join("a"));
    is_left_empty(&dir.join("b"));
}

/// The control: with commits that do not wait for the standby, what it has not received is lost, and is found
/// missing; with commits that wait for it, the same loss of the standby costs nothing.
#[test]
fn what_is_lost_is_found_missing() {
    let Some(room) = places(&["a", "b"]) else {
        return;
    };
    let dir = room.path();
    let words =
        "failover --dir a --standby b --users 3 --before 1s --after 1s --commit local --out local";
    let (code, text) = lab(dir, words);
    assert_eq!(code, 1, "{text}");
    let lost = result(dir, "local");
    let count = |of: &serde_json::Value, key: &str| of[key].as_u64().expect("a count");
    let only_there = count(&lost, "acknowledged_cut_off");
    assert!(
        only_there >= 10 && count(&lost, "missing") >= only_there,
        "{text}"
    );
    assert!(
        count(&lost, "acknowledged") > count(&lost, "missing"),
        "{text}"
    );
    assert!(
        text.contains("acknowledged transactions are MISSING"),
        "{text}"
    );
    for kind in ["new_order", "payment"] {
        assert!(count(&lost["kinds"][kind], "missing") > 0, "{text}");
    }
    // What the standby has is a database that is whole, if an older one.
    assert!(all_hold(&lost["consistency"]), "{lost}");
    assert_eq!(lost["partial"], false);
    let report = std::fs::read_to_string(dir.join("local/report.html")).expect("a report");
    assert!(report.contains("FAILED") && report.contains("expected to be missing"));

    let words =
        "failover --dir a --standby b --users 3 --before 1s --cut-off 1s --after 1s --out on";
    let (code, text) = lab(dir, words);
    assert_eq!(code, 0, "{text}");
    let kept = result(dir, "on");
    assert!(kept["cut_off_s"].as_f64() > Some(0.9), "{kept}");
    // A transaction that the standby had may be told a moment later, one for each user.
    assert!(count(&kept, "acknowledged_cut_off") <= 3, "{text}");
    assert_eq!(count(&kept, "missing"), 0, "{text}");
    is_left_empty(&dir.join("a"));
    is_left_empty(&dir.join("b"));
}
