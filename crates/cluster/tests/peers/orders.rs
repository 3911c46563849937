use std::time::Duration;

use ashlar_cluster::{Kind, Memory, OrderError};
use ashlar_replica::NodeId;
use serde_json::json;

use crate::rig::{A, B, Heard, LONG, config, ear, start};

#[test]
fn orders_are_carried_out_and_refusals_keep_their_kind() {
    let config = config(&Memory::default(), &["a", "b"]);
    let (a, b) = (start(&config, "a"), start(&config, "b"));
    let early = a.order(B, &json!({}), LONG);
    let Err(OrderError::Unreachable(why)) = early else {
        panic!("{early:?}");
    };
    assert!(why.contains("is starting"), "{why}");
    let (local, heard) = ear();
    b.serve(local);
    // More than is read at once.
    let long = "x".repeat(300_000);
    let echo = a.order(B, &json!({ "do": "echo", "what": long }), LONG);
    assert_eq!(echo, Ok(json!({ "said": long })));
    assert!(matches!(heard.recv_timeout(LONG), Ok(Heard::Ordered(A))));
    let refused = a.order(B, &json!({ "do": "refuse" }), LONG);
    let expected = OrderError::Refused {
        kind: Kind::NotFound,
        message: "there is no such thing".into(),
    };
    assert_eq!(refused, Err(expected));
    let died = a.order(B, &json!({}), LONG);
    let Err(OrderError::Refused { kind, .. }) = died else {
        panic!("{died:?}");
    };
    assert_eq!(kind, Kind::Internal);
    a.order(B, &json!({ "do": "echo" }), LONG)
        .expect("it lives");
    let huge = json!({ "do": "echo", "what": "x".repeat(17 << 20) });
    let refused = a.order(B, &huge, LONG);
    assert!(matches!(
        refused,
        Err(OrderError::Refused {
            kind: Kind::Usage,
            ..
        })
    ));
}

#[test]
fn no_answer_in_time_or_no_node_is_unreachable() {
    let config = config(&Memory::default(), &["a", "b"]);
    let (a, b) = (start(&config, "a"), start(&config, "b"));
    let (local, heard) = ear();
    b.serve(local);
    let late = a.order(B, &json!({ "do": "sleep" }), Duration::from_millis(700));
    assert!(matches!(late, Err(OrderError::Unreachable(_))), "{late:?}");
    assert!(
        matches!(heard.recv_timeout(LONG), Ok(Heard::Ordered(A))),
        "carried out"
    );
    for (node, word) in [(NodeId(9), "node 9"), (A, "is this node")] {
        let nowhere = a.order(node, &json!({}), LONG);
        let Err(OrderError::Unreachable(why)) = nowhere else {
            panic!("{nowhere:?}");
        };
        assert!(why.contains(word), "{why}");
    }
    b.stop();
    let gone = a.order(B, &json!({}), LONG);
    let Err(OrderError::Unreachable(why)) = gone else {
        panic!("{gone:?}");
    };
    let at = config.nodes[1].replication.to_string();
    assert!(why.contains("node b at") && why.contains(&at), "{why}");
    a.stop();
    let stopped = a.order(B, &json!({}), LONG);
    assert!(
        matches!(stopped, Err(OrderError::Unreachable(_))),
        "{stopped:?}"
    );
}
