//! On which version of what nodes say to each other a cluster has agreed: the newest that all nodes speak, and never an
//! older one again. So a new version rolls through a cluster: nodes are upgraded one after the other, and speak the old
//! one with those that do not know better; when the last one is up again, all have agreed on the new one.
//!
//! A node says what it speaks in its entry in the quorum, as it starts. One that is started from an older program just
//! while another raises the version is refused from then on: its program does not speak what has been agreed on.

use std::sync::Arc;

use super::document::Membership;
use crate::join::newest_of;
use crate::problem::Problem;
use crate::shared::{Shared, node_key};

impl Shared {
    /// Raises what all have agreed on, if all can.
    pub(super) async fn agree(self: &Arc<Self>, members: &Membership) -> Result<(), Problem> {
        let versions = self.config().versions;
        if members.agreed() >= versions.newest() {
            return Ok(());
        }
        let Some(newest) = self.newest_of_all(members).await? else {
            return Ok(());
        };
        let newest = newest.min(versions.newest());
        if newest <= members.agreed() || !versions.has(newest) {
            return Ok(());
        }
        let raise = |now: &mut Membership| {
            // A node that has joined meanwhile was not asked.
            if now.nodes == members.nodes {
                now.agree_on(newest);
            }
            Ok(())
        };
        let ((), after) = self.change(raise).await?;
        if after.agreed() == newest {
            tracing::info!(
                "all nodes of cluster {} speak version {newest} with each other, and nothing older from now on",
                self.name
            );
        }
        Ok(())
    }

    /// The newest version that all nodes speak; none if one has not said.
    async fn newest_of_all(&self, members: &Membership) -> Result<Option<u16>, Problem> {
        let mut all = Some(u16::MAX);
        for node in &members.nodes {
            let held = self.store.read(&node_key(&self.name, node.id)).await;
            let held = held.map_err(Problem::environment)?;
            let newest = held.and_then(|held| newest_of(&held.value));
            all = all.zip(newest).map(|(all, one)| all.min(one));
        }
        Ok(all)
    }
}
