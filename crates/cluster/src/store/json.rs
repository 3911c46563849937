//! etcd's transactions as its JSON gateway has them: bytes in base64, 64-bit numbers as text, what is zero or empty left
//! out. Each asks whether the store is this cluster's in the same step, so that one that was emptied, or is another's, is
//! neither believed nor changed.

use ashlar_replica::Revision;
use ashlar_replica::quorum::Held;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Identity, Swap, SwapAll};

/// Characters of a foreign message that are quoted.
const QUOTED: usize = 200;

/// What is asked of the store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish<'a> {
    Read,
    Swap {
        revision: Revision,
        value: &'a [u8],
    },
    /// All of them, or none.
    SwapAll(&'a [KeySwap<'a>]),
    /// At this revision only, if it is named.
    Delete {
        at: Option<Revision>,
    },
    /// All keys that begin like this one.
    List,
}

/// One of several swaps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeySwap<'a> {
    pub(crate) key: &'a str,
    pub(crate) revision: Revision,
    pub(crate) value: &'a [u8],
    /// It is not made while there is this key.
    pub(crate) unless: Option<&'a str>,
}

impl KeySwap<'_> {
    fn conditions(&self) -> impl Iterator<Item = Value> {
        let absent = self.unless.map(|key| (key, Revision(0)));
        let all = std::iter::once((self.key, self.revision)).chain(absent);
        all.map(|(key, revision)| is_still(&STANDARD.encode(key), revision))
    }

    fn put(&self) -> Value {
        let (key, value) = (STANDARD.encode(self.key), STANDARD.encode(self.value));
        json!({ "request_put": { "key": key, "value": value } })
    }

    fn range(&self) -> Value {
        json!({ "request_range": { "key": STANDARD.encode(self.key) } })
    }
}

/// As a transaction. Of another cluster's store it gets that store's identity, as the last answer.
pub(super) fn transaction(key: &str, wish: Wish<'_>, identity: Option<&Identity>) -> Value {
    let end = match wish {
        Wish::List => STANDARD.encode(after_all(key.as_bytes())),
        _ => String::new(),
    };
    let key = STANDARD.encode(key);
    let range = json!({ "request_range": { "key": key } });
    let mut compare = Vec::new();
    let (success, mut failure) = match wish {
        Wish::Read => (vec![range], Vec::new()),
        Wish::List => (
            vec![json!({ "request_range": { "key": key, "range_end": end } })],
            Vec::new(),
        ),
        Wish::SwapAll(swaps) => {
            compare.extend(swaps.iter().flat_map(KeySwap::conditions));
            let puts = swaps.iter().map(KeySwap::put).collect();
            (puts, swaps.iter().map(KeySwap::range).collect())
        }
        Wish::Delete { at } => {
            compare.extend(at.map(|revision| is_still(&key, revision)));
            let delete = json!({ "request_delete_range": { "key": key } });
            (vec![delete], at.map(|_| range).into_iter().collect())
        }
        Wish::Swap { revision, value } => {
            compare.push(is_still(&key, revision));
            let put = json!({ "request_put": { "key": key, "value": STANDARD.encode(value) } });
            (vec![put], vec![range])
        }
    };
    if let Some(identity) = identity {
        let key = STANDARD.encode(&identity.key);
        let value = STANDARD.encode(identity.id.to_string());
        compare.push(json!({ "key": key, "target": "VALUE", "result": "EQUAL", "value": value }));
        failure.push(json!({ "request_range": { "key": key } }));
    }
    json!({ "compare": compare, "success": success, "failure": failure })
}

/// Whether a key, in base64, is still of this revision.
fn is_still(key: &str, revision: Revision) -> Value {
    let revision = revision.0.to_string();
    json!({ "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision })
}

#[derive(Deserialize)]
struct Header {
    revision: String,
}

#[derive(Deserialize)]
struct KeyValue {
    #[serde(default)]
    key: String,
    mod_revision: String,
    #[serde(default)]
    value: String,
}

#[derive(Default, Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Deserialize)]
struct Txn {
    header: Header,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<Response>,
}

#[derive(Deserialize)]
struct Response {
    response_range: Option<Range>,
}

/// What came of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Held(Option<Held>),
    Swap(Swap),
    SwapAll(SwapAll),
    Deleted,
    /// It was not deleted: the key holds this.
    Kept(Option<Held>),
    Listed(Vec<(String, Vec<u8>)>),
    /// The store is not this cluster's; nothing was done.
    Foreign(String),
}

pub(super) fn outcome(
    body: &[u8],
    wish: Wish<'_>,
    identity: Option<&Identity>,
) -> Result<Outcome, String> {
    let txn: Txn = serde_json::from_slice(body).map_err(|error| {
        let why = ashlar_plain::reworded(&error.to_string());
        format!("answers what is no answer of etcd: {why}")
    })?;
    let mut responses = txn.responses.into_iter();
    if let (Wish::List, true) = (wish, txn.succeeded) {
        let range = responses
            .next()
            .and_then(|response| response.response_range);
        let range = range.ok_or("the answer lacks what keys hold")?;
        return Ok(Outcome::Listed(listed(range)?));
    }
    let mut next = || {
        let range = responses
            .next()
            .and_then(|response| response.response_range);
        held(range.ok_or("the answer lacks what a key holds")?)
    };
    match (wish, txn.succeeded) {
        (Wish::Read, true) => Ok(Outcome::Held(next()?)),
        // Handled above.
        (Wish::List, true) => Err("the answer lacks what keys hold".into()),
        (Wish::Delete { .. }, true) => Ok(Outcome::Deleted),
        (Wish::Swap { .. }, true) => Ok(Outcome::Swap(Swap::Made(revision(&txn.header.revision)?))),
        (Wish::SwapAll(_), true) => {
            let revision = revision(&txn.header.revision)?;
            Ok(Outcome::SwapAll(SwapAll::Made(revision)))
        }
        (Wish::SwapAll(swaps), false) => {
            let found: Result<Vec<_>, String> = swaps.iter().map(|_| next()).collect();
            let found = found?;
            let foreign = match identity {
                Some(identity) => identity.mismatch(next()?.as_ref()),
                None => None,
            };
            Ok(match foreign {
                Some(why) => Outcome::Foreign(why),
                None => Outcome::SwapAll(SwapAll::NotMade(found)),
            })
        }
        (_, false) => {
            let found = match wish {
                Wish::Swap { .. } | Wish::Delete { at: Some(_) } => Some(next()?),
                _ => None,
            };
            let foreign = match identity {
                Some(identity) => identity.mismatch(next()?.as_ref()),
                None => None,
            };
            match (foreign, found) {
                (Some(why), _) => Ok(Outcome::Foreign(why)),
                (None, Some(found)) if matches!(wish, Wish::Delete { .. }) => {
                    Ok(Outcome::Kept(found))
                }
                (None, Some(found)) => Ok(Outcome::Swap(Swap::NotMade(found))),
                (None, None) => Err("refuses what asks for nothing".into()),
            }
        }
    }
}

/// The first key behind all that begin like this one.
fn after_all(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // All keys.
    vec![0]
}

fn listed(range: Range) -> Result<Vec<(String, Vec<u8>)>, String> {
    let decoded = |text: &str| {
        let bytes = STANDARD.decode(text);
        bytes.map_err(|_| "the answer has what is no base64".to_owned())
    };
    let keys = range.kvs.iter().map(|found| {
        let key = String::from_utf8(decoded(&found.key)?);
        Ok((key.map_err(|_| "a key is no text")?, decoded(&found.value)?))
    });
    keys.collect()
}

/// What a gateway says with a status that is no success.
pub(super) fn complaint(status: u16, body: &[u8]) -> String {
    let complaint = serde_json::from_slice::<Value>(body).ok();
    let said = complaint.and_then(|value| {
        let text = ["error", "message"].iter().find_map(|key| value.get(key));
        text.and_then(Value::as_str).map(str::to_owned)
    });
    match said {
        Some(said) => said
            .chars()
            .take(QUOTED)
            .filter(|c| !c.is_control())
            .collect(),
        None => format!("answers with HTTP status {status}: is it etcd 3.4 or newer?"),
    }
}

fn held(range: Range) -> Result<Option<Held>, String> {
    let Some(found) = range.kvs.into_iter().next() else {
        return Ok(None);
    };
    let value = STANDARD.decode(&found.value);
    Ok(Some(Held {
        revision: revision(&found.mod_revision)?,
        value: value.map_err(|error| format!("answers with a value that is no base64: {error}"))?,
    }))
}

fn revision(text: &str) -> Result<Revision, String> {
    let revision = text.parse().ok().filter(|&revision| revision > 0);
    let revision = revision.map(Revision);
    revision.ok_or_else(|| {
        let text: String = text.chars().take(QUOTED).collect();
        format!("answers with {text:?} as a revision")
    })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const SWAP: Wish<'static> = Wish::Swap {
        revision: Revision(5),
        value: b"b",
    };

    #[test]
    fn what_is_left_out_is_zero_or_empty() {
        let none =
            br#"{"header":{"revision":"5"},"succeeded":true,"responses":[{"response_range":{}}]}"#;
        assert_eq!(outcome(none, Wish::Read, None), Ok(Outcome::Held(None)));
        let empty =
            br#"{"header":{"revision":"5"},"succeeded":true,"responses":[{"response_range":{
            "kvs":[{"key":"YQ==","create_revision":"2","mod_revision":"3"}]}}]}"#;
        let held = Held {
            revision: Revision(3),
            value: Vec::new(),
        };
        let found = Ok(Outcome::Held(Some(held)));
        assert_eq!(outcome(empty, Wish::Read, None), found);
    }

    #[test]
    fn the_outcome_of_a_swap_is_told() {
        let made =
            br#"{"header":{"revision":"7"},"succeeded":true,"responses":[{"response_put":{}}]}"#;
        let swap = Outcome::Swap(Swap::Made(Revision(7)));
        assert_eq!(outcome(made, SWAP, None), Ok(swap));
        let not = br#"{"header":{"revision":"7"},"responses":[{"response_range":{"kvs":[
            {"key":"YQ==","mod_revision":"6","value":"Yg=="}],"count":"1"}}]}"#;
        let held = Held {
            revision: Revision(6),
            value: b"b".to_vec(),
        };
        let swap = Outcome::Swap(Swap::NotMade(Some(held)));
        assert_eq!(outcome(not, SWAP, None), Ok(swap));
        let gone = br#"{"header":{"revision":"7"},"responses":[{"response_range":{}}]}"#;
        let swap = Outcome::Swap(Swap::NotMade(None));
        assert_eq!(outcome(gone, SWAP, None), Ok(swap));
    }

    #[test]
    fn several_swaps_are_one_transaction() {
        let swaps = [("a", 5), ("b", 6)].map(|(key, revision)| KeySwap {
            key,
            revision: Revision(revision),
            value: b"v",
            unless: (key == "b").then_some("c"),
        });
        let all = Wish::SwapAll(&swaps);
        let asked = transaction("a", all, None);
        for (part, count) in [("compare", 3), ("success", 2), ("failure", 2)] {
            assert_eq!(asked[part].as_array().map(Vec::len), Some(count), "{asked}");
        }
        // There is no key of revision 0.
        assert_eq!(asked["compare"][2]["key"], STANDARD.encode("c"));
        assert_eq!(asked["compare"][2]["mod_revision"], "0");
        let made = br#"{"header":{"revision":"7"},"succeeded":true,"responses":[{"response_put":{}},{"response_put":{}}]}"#;
        let swap = Outcome::SwapAll(SwapAll::Made(Revision(7)));
        assert_eq!(outcome(made, all, None), Ok(swap));
        let not = br#"{"header":{"revision":"7"},"responses":[{"response_range":{}},{"response_range":{"kvs":[
            {"key":"Yg==","mod_revision":"6","value":"Yg=="}],"count":"1"}}]}"#;
        let held = Held {
            revision: Revision(6),
            value: b"b".to_vec(),
        };
        let swap = Outcome::SwapAll(SwapAll::NotMade(vec![None, Some(held)]));
        assert_eq!(outcome(not, all, None), Ok(swap));
        let short = br#"{"header":{"revision":"7"},"responses":[{"response_range":{}}]}"#;
        assert!(outcome(short, all, None).is_err());
    }

    #[test]
    fn a_store_of_another_cluster_is_told_from_a_key_that_has_changed() {
        let id = Uuid::from_u128(7);
        let key = "/ashlar/x/id".to_owned();
        let identity = Identity { key, id };
        let failed = |id: Uuid| {
            let id = STANDARD.encode(id.to_string());
            format!(
                r#"{{"header":{{"revision":"7"}},"responses":[{{"response_range":{{}}}},
                {{"response_range":{{"kvs":[{{"mod_revision":"1","value":"{id}"}}]}}}}]}}"#
            )
        };
        let ours = outcome(failed(id).as_bytes(), SWAP, Some(&identity));
        assert_eq!(ours, Ok(Outcome::Swap(Swap::NotMade(None))));
        let theirs = outcome(failed(Uuid::nil()).as_bytes(), SWAP, Some(&identity));
        let Ok(Outcome::Foreign(why)) = theirs else {
            panic!("{theirs:?}");
        };
        assert!(why.contains(&Uuid::nil().to_string()), "{why}");
        let emptied = br#"{"header":{"revision":"7"},"responses":[{"response_range":{}}]}"#;
        let Ok(Outcome::Foreign(why)) = outcome(emptied, Wish::Read, Some(&identity)) else {
            panic!("believed");
        };
        assert!(why.contains("/ashlar/x/id"), "{why}");
    }

    #[test]
    fn what_is_no_answer_is_none() {
        for body in [
            "<html>",
            "{}",
            "[]",
            r#"{"header":{"revision":"x"},"succeeded":true}"#,
            r#"{"header":{"revision":"0"},"succeeded":true}"#,
            r#"{"header":{"revision":"7"}}"#,
            r#"{"header":{"revision":"7"},"responses":[{}]}"#,
            r#"{"header":{"revision":"7"},"responses":[{"response_range":{"kvs":[{"mod_revision":"-1"}]}}]}"#,
            r#"{"header":{"revision":"7"},"responses":[{"response_range":{"kvs":[{"mod_revision":"1","value":"*"}]}}]}"#,
        ] {
            assert!(outcome(body.as_bytes(), SWAP, None).is_err(), "{body}");
        }
    }

    #[test]
    fn complaints_are_quoted() {
        let body = br#"{"error":"etcdserver: no leader","message":"x","code":14}"#;
        assert_eq!(complaint(503, body), "etcdserver: no leader");
        assert!(complaint(404, b"<html>").contains("404"));
    }
}
