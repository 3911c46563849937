//! The examples in docs/api.md are what the program says and reads.

use ashlar_node::Config;
use ashlar_node::model::{ClusterView, PoolStatus, ReplicationStatus, VolumeStats, VolumeStatus};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const TEXT: &str = include_str!("../../../docs/api.md");

/// The block that follows the comment with this name.
fn example(name: &str) -> &'static str {
    let (_, rest) = TEXT
        .split_once(&format!("<!-- {name} -->\n```"))
        .expect(name);
    let (_, rest) = rest.split_once('\n').expect("a block");
    rest.split_once("\n```").expect("its end").0
}

fn is_whole<T: Serialize + DeserializeOwned>(name: &str) {
    let documented: Value = serde_json::from_str(example(name)).expect(name);
    let read: T = serde_json::from_value(documented.clone()).expect(name);
    let written = serde_json::to_value(read).expect(name);
    // As text, so that the order of the fields counts, too.
    assert_eq!(documented.to_string(), written.to_string(), "{name}");
}

#[test]
fn examples_are_what_the_api_says() {
    is_whole::<PoolStatus>("PoolStatus");
    is_whole::<VolumeStatus>("VolumeStatus");
    is_whole::<VolumeStats>("VolumeStats");
    is_whole::<ReplicationStatus>("ReplicationStatus");
    is_whole::<ClusterView>("ClusterView");
}

/// The keys of a schema's own properties, and of those that it consists of.
fn keys(schema: &Value) -> Vec<&str> {
    let own = schema["properties"].as_object();
    let own = own.into_iter().flat_map(|keys| keys.keys());
    let parts = schema["allOf"].as_array().into_iter().flatten();
    own.map(String::as_str)
        .chain(parts.flat_map(keys))
        .collect()
}

/// Examples leave out what is not there always.
#[test]
fn the_keys_of_copies_and_of_the_cluster_are_named() {
    let openapi = serde_json::to_value(ashlar_node::api::description()).expect("json");
    let schemas = &openapi["components"]["schemas"];
    for (section, names) in [
        (
            "### Copies on several nodes",
            &[
                "ReplicationStatus",
                "ReplicaStatus",
                "FailoverStatus",
                "ProofStatus",
                "CopyProof",
                "DifferentRange",
            ][..],
        ),
        (
            "### The cluster",
            &[
                "ClusterView",
                "NodeOfCluster",
                "QuorumOfCluster",
                "MemberOfQuorum",
                "ProtocolOfCluster",
                "VolumeOfCluster",
            ],
        ),
    ] {
        let (_, text) = TEXT.split_once(section).expect(section);
        let text = text.split("\n## ").next().expect("a section");
        let text = text.split("\n### ").next().expect("a section");
        for name in names {
            let all = keys(&schemas[name]);
            assert!(!all.is_empty(), "{name} is no schema");
            for key in all {
                let is_named = text.contains(&format!("`{key}`"));
                assert!(
                    is_named,
                    "{name}: {key} is not in \"{section}\" of docs/api.md"
                );
            }
        }
    }
}

#[test]
fn the_settings_are_what_the_daemon_reads() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("ashlar.toml");
    std::fs::write(&path, example("Config")).expect("file");
    let config = Config::read(&path).expect("valid");
    assert_eq!(config.listen().to_string(), "0.0.0.0:4420");
    assert_eq!((config.cores.len(), config.pools.len()), (2, 1));
}

#[test]
fn every_path_is_in_the_table() {
    let openapi = serde_json::to_value(ashlar_node::api::description()).expect("json");
    for (path, item) in openapi["paths"].as_object().expect("paths") {
        for method in item.as_object().expect("methods").keys() {
            let row = format!("`{} {path}", method.to_uppercase());
            assert!(TEXT.contains(&row), "{row} is not in docs/api.md");
        }
    }
}
