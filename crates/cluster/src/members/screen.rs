//! What a machine that asks to be let in must show before anything is done for it: any machine can ask.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, sleep_until, timeout};

use super::admit::Entered;
use super::document::Membership;
use super::joining::Request;
use super::secret::{hex_hash, now};
use crate::problem::{Kind, Problem};
use crate::shared::Shared;

/// How often the quorum is asked at most for tokens that this node does not know.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// How long those may take who join or leave before.
pub(super) const OTHERS: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });

/// What the quorum was found to hold, for all who had asked before it was.
#[derive(Debug)]
pub(crate) struct Look {
    began: Instant,
    found: Result<Membership, Problem>,
}

/// The last look for the sake of a token.
pub(crate) type LastLook = Mutex<Option<Look>>;

impl Shared {
    /// Who joins or leaves does so one after the other.
    pub(super) async fn take_turn(&self) -> Result<MutexGuard<'_, ()>, Problem> {
        let turn = timeout(OTHERS, self.turn.lock()).await;
        turn.map_err(|_| {
            Problem::environment(format!(
                "others join cluster {} or leave it, and have not ended within {OTHERS:?}: try it again",
                self.name
            ))
        })
    }

    /// Whether what asks to be let in has a token that is good. A stranger finds out by what this node knows, or by
    /// what it asks for many at once; it holds up none who joins or leaves.
    ///
    /// # Errors
    /// Why it is not let in.
    pub(super) async fn screen(&self, request: &Request) -> Result<(), Problem> {
        if let Some(known) = self.known_members()
            && self.judge_token(&known, request).is_ok()
        {
            return Ok(());
        }
        // Another node may have made the token just now, or taken back that it was used.
        let members = self.look_for_token().await?;
        self.judge_token(&members, request).map(drop)
    }

    /// The list as it is after this call has begun.
    async fn look_for_token(&self) -> Result<Membership, Problem> {
        let asked = Instant::now();
        let mut last = self.last_look.lock().await;
        if let Some(look) = &*last {
            if look.began >= asked {
                return look.found.clone();
            }
            sleep_until(look.began + LOOK_AGAIN).await;
        }
        let began = Instant::now();
        let found = self.members().await.map(|(members, _)| members);
        *last = Some(Look {
            began,
            found: found.clone(),
        });
        found
    }

    /// Whether a list has the token of who asks, still good; and as what it has let it in already, if it has.
    ///
    /// # Errors
    /// Why the token does not let it in.
    pub(super) fn judge_token(
        &self,
        members: &Membership,
        request: &Request,
    ) -> Result<Option<Entered>, Problem> {
        let name = &request.name;
        let hash = request.secret.hash();
        let token = members.tokens.iter().find(|token| token.hash == hash);
        let token = token.ok_or_else(|| {
            Problem::new(
                Kind::Unauthorized,
                format!(
                    "cluster {} has given no such token, or long ago: make a new one with `ashlar cluster token`",
                    self.name
                ),
            )
        })?;
        if request.cluster != self.id {
            return Err(Problem::conflict(format!(
                "the token is of cluster {}, this is {} ({})",
                request.cluster, self.name, self.id
            )));
        }
        let agreed = members.agreed();
        let theirs = request.versions();
        if !theirs.is_some_and(|theirs| theirs.has(agreed)) {
            let theirs =
                theirs.map_or_else(|| "no version".to_owned(), |theirs| theirs.to_string());
            return Err(Problem::conflict(format!(
                "{name} (Ashlar {}) speaks {theirs} of the protocol between nodes, and the nodes of cluster {} have \
                 agreed on version {agreed}: install what they run",
                request.version, self.name
            )));
        }
        let late = now().saturating_sub(token.expires);
        if late > 0 {
            return Err(Problem::conflict(format!(
                "the token is too late: it was good until {late} s ago; make a new one with `ashlar cluster token`"
            )));
        }
        let Some(by) = &token.used_by else {
            return Ok(None);
        };
        // The list was changed, and the answer lost. Who has read the token has another key.
        let is_same = by == name && token.used_key == Some(hex_hash(&request.public_key));
        let place = is_same.then(|| Entered::already(members, request));
        let used = || {
            Problem::conflict(format!(
                "the token was used already, by {by}: a token is good once; make a new one with `ashlar cluster token`"
            ))
        };
        place.flatten().ok_or_else(used).map(Some)
    }
}
