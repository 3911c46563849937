//! What nodes order of each other.

use std::sync::Weak;

use ashlar_cluster::{Kind, Local, OrderError, PeerSocket, volume_id};
use ashlar_replica::{Incarnation, MemberId, Members, NodeId, Revision, Size, VolumeId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::{info, warn};
use uuid::Uuid;

use super::CopyPlace;
use super::delete::Doomed;
use super::make::NewCopy;
use super::replace::Replacement;
use crate::PoolManager;
use crate::access::Admission;
use crate::manager::{LivePool, live};
use crate::model::{Check, ControlError, CreateVolume, ErrorKind, ReplicationStatus};
use crate::pool::ReplicaMail;
use crate::service::Words;

/// An order to a peer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Order {
    /// Make a copy of a volume that holds nothing yet.
    MakeCopy(Box<NewCopy>),
    /// Make a volume of which you have a copy, and those that it names.
    MakeVolume(Box<CreateVolume>),
    /// Say what a pool of yours has room for.
    SayRoom { pool: String },
    /// Bring it into service: the volume's key is there.
    StartCopy { volume: Uuid },
    /// Say what you have of it.
    Find { volume: Uuid },
    /// Delete it, if it is a copy; this one, if it is named; not while a host is connected, if that is said.
    DropCopy {
        volume: Uuid,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replica: Option<Uuid>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        only_unused: bool,
    },
    /// Hear who may connect, and say what you know then.
    HearHosts { volume: Uuid, admission: Admission },
    /// Say who may connect, and who is connected.
    SayHosts { volume: Uuid },
    /// Hand over, if you own it.
    Move { volume: Uuid, to: NodeId },
    /// Change who has copies, if you own it and the key is still this.
    Reseat {
        volume: Uuid,
        revision: Revision,
        members: Vec<Option<MemberId>>,
    },
    /// Your copy gets room for so many granules.
    GrowCopy { volume: Uuid, granules: u64 },
    /// Put this size into the key, if you own it; one that is larger if the copies are still these, which have the room.
    Resize {
        volume: Uuid,
        size: Size,
        members: Vec<Option<MemberId>>,
    },
    /// Look who has copies, and how large it is.
    LookAtSeats { volume: Uuid },
    /// One node's copy is to take the place of another's, if you own it.
    Replace {
        volume: Uuid,
        old: NodeId,
        new: NodeId,
    },
    /// Say whether it follows its hosts.
    SetFollow { volume: Uuid, follow: bool },
    /// It is yours, because of its hosts.
    Followed { volume: Uuid, reason: String },
    /// Say whether it takes writes while a copy in your pool is missing.
    SetStops { volume: Uuid, stops: bool },
    /// Compare copies in sync, if you own it.
    Verify { volume: Uuid },
    /// Have others serve all you own, or be as others again.
    Drain { drain: bool },
    /// Say whether you are drained.
    IsDrained,
    /// This process of mine ends, or exports their pool: go on without its copies of these, as far as you own them.
    Leave {
        incarnation: Incarnation,
        volumes: Vec<Uuid>,
    },
    /// Say what you know of it.
    Show { volume: Uuid },
    /// Say what you know of all volumes of which you have copies.
    ShowAll,
    /// Tell hosts that are connected to you what has become of their reservations, as the owner has decided.
    Reserved { volume: Uuid, news: Vec<u8> },
    /// About services.
    Service { words: Box<Words> },
}

impl Order {
    /// What a peer has sent, which may run another version.
    fn of(request: Value) -> Result<Self, OrderError> {
        let called = request.get("order").and_then(Value::as_str);
        let called = called.unwrap_or("of no name").to_owned();
        serde_json::from_value(request).map_err(|error| OrderError::Refused {
            kind: Kind::Conflict,
            message: format!(
                "it runs Ashlar {}, which does not know the order {called} in this form ({}): install the same version \
                 on all nodes, the newest, and try it again",
                env!("CARGO_PKG_VERSION"),
                ashlar_plain::reworded(&error.to_string())
            ),
        })
    }

    /// That this copy is to be deleted.
    pub(super) const fn drop_of(volume: Uuid, replica: Uuid) -> Self {
        Self::DropCopy {
            volume,
            replica: Some(replica),
            only_unused: false,
        }
    }
}

/// The answer to [`Order::Show`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ShowReply {
    pub(super) status: ReplicationStatus,
}

/// A manager, as its peers see it.
pub(in crate::manager) struct Peers(pub(in crate::manager) Weak<PoolManager>);

fn kind_of(kind: ErrorKind) -> Kind {
    match kind {
        ErrorKind::Usage => Kind::Usage,
        ErrorKind::NotFound => Kind::NotFound,
        ErrorKind::Conflict => Kind::Conflict,
        ErrorKind::Refused => Kind::Refused,
        ErrorKind::Unauthorized => Kind::Unauthorized,
        ErrorKind::Environment => Kind::Environment,
        ErrorKind::Internal => Kind::Internal,
    }
}

pub(super) fn not_here(volume: Uuid) -> ControlError {
    ControlError::not_found(format!("there is no copy of volume {volume} here"))
}

fn json(answer: &impl Serialize) -> Result<Value, ControlError> {
    serde_json::to_value(answer).map_err(|error| ControlError::internal(error.to_string()))
}

impl Local for Peers {
    fn accepted(&self, from: NodeId, volume: VolumeId, stream: PeerSocket) {
        let Some(manager) = self.0.upgrade() else {
            return;
        };
        let mut known = manager.copies().into_iter();
        match known.find(|copy| volume_id(copy.volume) == volume) {
            Some(copy) => {
                let mail = ReplicaMail::Accepted { from, stream };
                copy.pool.post_to_replica(copy.number, mail);
            }
            None => info!("{from} connects to a volume that is not here: {volume}"),
        }
    }

    fn order(&self, from: NodeId, request: Value) -> Result<Value, OrderError> {
        let gone = || OrderError::Unreachable("the node is ending".into());
        let manager = self.0.upgrade().ok_or_else(gone)?;
        let order = Order::of(request)?;
        manager
            .obey(from, order)
            .map_err(|error| OrderError::Refused {
                kind: kind_of(error.kind),
                message: error.message,
            })
    }

    fn dead(&self, node: NodeId, incarnation: Incarnation) {
        let Some(manager) = self.0.upgrade() else {
            return;
        };
        warn!("{node} is certified dead, up to {incarnation}");
        for copy in manager.copies() {
            let mail = ReplicaMail::Dead { node, incarnation };
            copy.pool.post_to_replica(copy.number, mail);
        }
    }
}

impl PoolManager {
    pub(super) fn obey(&self, from: NodeId, order: Order) -> Result<Value, ControlError> {
        let done = || Ok(Value::Null);
        match order {
            Order::MakeCopy(copy) => {
                info!(target: crate::ORDERS, "{from}: make a copy of volume {}/{}", copy.wanted.pool, copy.wanted.name);
                self.make_copy(&copy)?;
                done()
            }
            Order::MakeVolume(wanted) => {
                info!(target: crate::ORDERS, "{from}: make volume {}/{} on {}", wanted.pool, wanted.name, wanted.nodes.join(", "));
                let me = self
                    .replication()?
                    .node_name(self.replication()?.cluster.me());
                // Else it would go on from node to node.
                if !wanted.nodes.contains(&me) {
                    return Err(ControlError::usage(
                        "this node is none of those that are named",
                    ));
                }
                wanted.check()?;
                json(&self.make_volume(&wanted)?)
            }
            Order::SayRoom { pool } => json(&self.room_here(&pool)?),
            Order::StartCopy { volume } => {
                self.start_copy(volume)?;
                done()
            }
            Order::Find { volume } => json(&self.has_here(volume)?),
            Order::DropCopy {
                volume,
                replica,
                only_unused,
            } => {
                info!(target: crate::ORDERS, "{from}: delete the copy of volume {volume}");
                if replica.is_none() {
                    self.check_unplaced(volume)?;
                }
                let doomed = Doomed {
                    replica,
                    only_unused,
                };
                self.drop_copy(volume, doomed)?;
                done()
            }
            Order::HearHosts { volume, admission } => json(&self.hear_hosts(volume, &admission)?),
            Order::SayHosts { volume } => json(&self.say_hosts(volume)?),
            Order::Move { volume, to } => {
                info!(target: crate::ORDERS, "{from}: volume {volume} is to go to {to}");
                self.give_copy(volume, to)?;
                done()
            }
            Order::Reseat {
                volume,
                revision,
                members,
            } => {
                info!(target: crate::ORDERS, "{from}: volume {volume} is to have other copies");
                self.reseat_here(volume, revision, members)?;
                done()
            }
            Order::GrowCopy { volume, granules } => {
                info!(target: crate::ORDERS, "{from}: the copy of volume {volume} is to have {granules} granules");
                self.grow_copy(volume, granules)?;
                done()
            }
            Order::Resize {
                volume,
                size,
                members,
            } => {
                info!(target: crate::ORDERS, "{from}: volume {volume} is to have {size:?}");
                let members = Members::try_from(members).map_err(ControlError::usage)?;
                self.resize_here(volume, size, members)?;
                done()
            }
            Order::LookAtSeats { volume } => {
                self.look_at_seats(volume)?;
                done()
            }
            Order::Replace { volume, old, new } => {
                json(&self.replace_copy(volume, Replacement { old, new })?)
            }
            Order::SetFollow { volume, follow } => {
                self.set_follow_here(volume, follow)?;
                done()
            }
            Order::SetStops { volume, stops } => {
                self.set_stops_here(volume, stops)?;
                done()
            }
            Order::Followed { volume, reason } => {
                self.note_followed(volume, reason)?;
                done()
            }
            Order::Verify { volume } => {
                self.begin_proof(volume)?;
                done()
            }
            Order::Reserved { volume, news } => {
                self.hear_reserved(volume, &news)?;
                done()
            }
            Order::Service { words } => self.hear_of_services(*words),
            Order::Drain { drain } => {
                info!(target: crate::ORDERS, "{from}: drain: {drain}");
                json(&self.drain_here(drain)?)
            }
            Order::Leave {
                incarnation,
                volumes,
            } => {
                self.let_leave(from, incarnation, &volumes)?;
                done()
            }
            Order::IsDrained => json(&self.replication()?.is_drained()),
            Order::ShowAll => json(&self.volumes_here()),
            Order::Show { volume } => {
                let status = self.own_account(volume)?;
                json(&ShowReply { status })
            }
        }
    }

    pub(super) fn place_of(&self, volume: Uuid) -> Result<CopyPlace, ControlError> {
        let mut known = self.copies().into_iter();
        let found = known.find(|copy| copy.volume == volume);
        found.ok_or_else(|| not_here(volume))
    }

    /// The pool and number of a copy that is here.
    pub(super) fn with_copy<T>(
        &self,
        volume: Uuid,
        act: impl FnOnce(&LivePool, u32) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        let place = self.place_of(volume)?;
        let pools = self.lock();
        act(live(&pools, &place.pool_name)?, place.number)
    }
}
