//! A token: what a node that joins must know of the cluster, and a secret that is good once.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::problem::Problem;
use crate::trust::AuthorityHash;

const PREFIX: &str = "ashlar1-";

/// What is good once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(Uuid);

impl Secret {
    /// 122 random bits.
    pub(super) fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// All that the quorum is told of it.
    pub(super) fn hash(&self) -> String {
        hex_hash(self.0.as_bytes())
    }
}

/// SHA-256 in hexadecimal digits.
pub(super) fn hex_hash(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What an operator carries to the node that is to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) cluster: Uuid,
    pub(super) secret: Secret,
    pub(super) authority: AuthorityHash,
    /// Where the cluster's nodes listen.
    pub(super) nodes: Vec<SocketAddr>,
}

#[derive(Serialize, Deserialize)]
struct Text(Uuid, Secret, String, Vec<SocketAddr>);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = URL_SAFE_NO_PAD.encode(self.authority.0);
        let text = Text(
            self.cluster,
            self.secret.clone(),
            authority,
            self.nodes.clone(),
        );
        let json = serde_json::to_vec(&text).map_err(|_| fmt::Error)?;
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(json))
    }
}

impl FromStr for Token {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let none = || {
            Problem::usage(
                "this is no token: `ashlar cluster token` on a node of the cluster prints one, and it is passed on whole",
            )
        };
        let coded = text.trim().strip_prefix(PREFIX).ok_or_else(none)?;
        let json = URL_SAFE_NO_PAD.decode(coded).map_err(|_| none())?;
        let Text(cluster, secret, authority, nodes) =
            serde_json::from_slice(&json).map_err(|_| none())?;
        let authority = URL_SAFE_NO_PAD.decode(authority).map_err(|_| none())?;
        let authority = authority.try_into().map_err(|_| none())?;
        if nodes.is_empty() {
            return Err(none());
        }
        Ok(Self {
            cluster,
            secret,
            authority: AuthorityHash(authority),
            nodes,
        })
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_as_it_was_and_others_are_refused() {
        let token = Token {
            cluster: Uuid::from_u128(1),
            secret: Secret::random(),
            authority: AuthorityHash([7; 32]),
            nodes: vec!["10.0.0.1:7000".parse().expect("an address")],
        };
        let text = token.to_string();
        assert_eq!(text.parse(), Ok(token));
        for wrong in ["", "x", PREFIX, &text[1..], &text[..text.len() - 8]] {
            let problem = wrong.parse::<Token>().expect_err(wrong);
            assert!(
                problem.message.contains("ashlar cluster token"),
                "{problem}"
            );
        }
    }
}
