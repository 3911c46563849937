use std::time::Duration;

use ashlar_replica::{Incarnation, NodeId, VolumeId};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::config::{ClusterConfig, NodeConfig};
use crate::peer::{Hello, NameHash, Nonce, Purpose, Target, call};

/// How long peers may take to hear of a death.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(1);

/// Tells every peer that a process of node `me` is dead: called by what reaped it, not from within an asynchronous
/// runtime. Returns when all have heard of it, after 1 s at the latest; a peer that cannot be told waits for its grants
/// to lapse.
pub fn certify(config: &ClusterConfig, me: NodeId, incarnation: Incarnation) {
    let Some(me) = config.node_by_id(me) else {
        tracing::error!("{me} is not in the cluster's file: its death is certified to no node");
        return;
    };
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!("the death of node {} cannot be certified: {error}", me.name);
            return;
        }
    };
    runtime.block_on(async {
        let mut calls = JoinSet::new();
        for peer in config.nodes.iter().filter(|node| node.id != me.id) {
            let (config, me, peer) = (config.clone(), me.clone(), peer.clone());
            calls.spawn(async move { tell(&config, &me, &peer, incarnation).await });
        }
        // What takes longer ends with the runtime.
        let _ = timeout(NOTICE_TIMEOUT, async {
            while calls.join_next().await.is_some() {}
        })
        .await;
    });
}

/// Tells one peer that a process of `me` is dead.
pub(crate) async fn tell(
    config: &ClusterConfig,
    me: &NodeConfig,
    peer: &NodeConfig,
    incarnation: Incarnation,
) {
    let hello = Hello {
        versions: config.versions,
        purpose: Purpose::Dead,
        from: me.id,
        to: peer.id,
        incarnation,
        volume: VolumeId(0),
        // What speaks here has not asked the quorum.
        cluster: NameHash::of(&config.name).0,
        name: NameHash::of(&me.name),
        nonce: Nonce::random(),
    };
    let target = Target { config, me, peer };
    let told = timeout(NOTICE_TIMEOUT, call(target, hello)).await;
    let why = match told {
        Ok(Ok(_)) => return,
        Ok(Err(error)) => error.words(target),
        Err(_) => format!(
            "node {} has not answered within {NOTICE_TIMEOUT:?}",
            peer.name
        ),
    };
    tracing::warn!("a death could not be certified: {why}");
}
