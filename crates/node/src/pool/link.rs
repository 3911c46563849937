use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ashlar_block::{Completion, ErrorKind, Geometry, IoError, Request};
use ashlar_cluster::PeerSocket;
use ashlar_nvme_target::{Answer, Petition, ReservationDecider};
use ashlar_reactor::{Mailbox, Opener, Waker};
use ashlar_replica::quorum::Reply;
use ashlar_replica::{Ask, Growth, Incarnation, Members, NodeId, Position, Revision, Size, Wish};
use ashlar_store::format::DriveClass;
use ashlar_store::{Comeback, Manage, Managed, Membership, Status};
use uuid::Uuid;

use super::driver::Traffic;
use super::pace::Progress;
use super::sound::Doubts;
use crate::replica::{Outside, ReplicaPlan, ReplicaView};

/// How long the control plane waits for an answer: a pool whose drives hang must not hang it.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// What the control plane is shown of a pool.
#[derive(Clone, Debug)]
pub struct View {
    /// The engine's own account.
    pub status: Status,
    /// What went to and came from hosts and drives.
    pub traffic: Traffic,
    /// How far its background work is.
    pub progress: Progress,
    /// What was found to be bad and no scrub has vouched for since.
    pub doubts: Doubts,
}

/// A drive that has the pool's label, and is to be a member.
pub struct NewDrive {
    /// The drive's own identity.
    pub uuid: Uuid,
    /// Its number among the members.
    pub member: u16,
    /// What it is made of.
    pub class: DriveClass,
    /// Opens it on the pool's core.
    pub opener: Arc<dyn Opener>,
}

/// Mail to an engine driver.
pub(super) enum Mail {
    /// A command of a volume that is open on another core.
    Command {
        port: Arc<RemotePort>,
        volume: u32,
        request: Request,
    },
    /// An operator's wish.
    Manage {
        what: Manage,
        reply: Sender<Result<Managed, IoError>>,
    },
    /// A drive with the pool's label, to be a member.
    AddDrive {
        drive: NewDrive,
        reply: Sender<Result<Managed, IoError>>,
    },
    /// A drive that was left out and is here again.
    Readmit {
        back: Box<Comeback>,
        opener: Arc<dyn Opener>,
        reply: Sender<Result<Managed, IoError>>,
    },
    /// What concerns the copy of a replicated volume.
    Replica { volume: u32, mail: ReplicaMail },
    /// The node has stored which drives serve.
    Stored(Membership),
    /// A look at everything.
    Look { reply: Sender<View> },
}

/// Mail to the copy of a replicated volume.
pub(crate) enum ReplicaMail {
    /// It comes into service.
    Start {
        plan: ReplicaPlan,
        outside: Box<dyn Outside>,
        reply: Sender<Result<(), String>>,
    },
    /// It goes out of service.
    Stop { reply: Sender<()> },
    /// The quorum has answered.
    Answered { ask: Ask, reply: Reply },
    /// A connection that it has asked for.
    Dialled {
        peer: Position,
        to: NodeId,
        stream: Result<PeerSocket, String>,
    },
    /// A peer has connected.
    Accepted { from: NodeId, stream: PeerSocket },
    /// A process of another node is certified dead.
    Dead {
        node: NodeId,
        incarnation: Incarnation,
    },
    /// A process of another node ends in order, or exports the pool: its copy is not to be waited for.
    Leaves {
        node: NodeId,
        incarnation: Incarnation,
    },
    /// Copies in sync are to be compared.
    Verify,
    /// A host wants something of it reserved.
    Petition { petition: Petition, answer: Answer },
    /// It is to hand over.
    Move { to: Position },
    /// Other copies are wanted.
    Reseat(Wish),
    /// Who has copies, as the volume's key says.
    Seats {
        revision: Revision,
        members: Members,
        size: Option<Size>,
    },
    /// It has more room in its pool.
    Grown { reply: Sender<()> },
    /// Another size is wanted.
    Resize(Growth),
    /// A look at it.
    Look { reply: Sender<Option<ReplicaView>> },
}

/// Where completions for another core's device wait.
pub(crate) struct RemotePort {
    done: Mutex<Vec<Completion>>,
    waker: Waker,
}

impl RemotePort {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            done: Mutex::default(),
            waker,
        }
    }

    pub(crate) fn put(&self, completion: Completion) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.push(completion);
        drop(done);
        self.waker.wake();
    }

    pub(crate) fn take(&self, into: &mut Vec<Completion>) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        into.append(&mut done);
    }
}

/// Has a replicated volume's copy decide on reservations.
pub(crate) struct CopyDecider {
    pub(crate) pool: PoolLink,
    pub(crate) volume: u32,
}

impl ReservationDecider for CopyDecider {
    fn decide(&self, petition: Petition, answer: Answer) {
        let mail = ReplicaMail::Petition { petition, answer };
        self.pool.post_to_replica(self.volume, mail);
    }
}

/// A pool's engine driver, as other threads know it. Cloning shares it.
#[derive(Clone)]
pub struct PoolLink {
    pub(super) mail: Mailbox<Mail>,
    /// Names the pool among those of this process.
    pub(super) number: u64,
    /// How long the control plane waits for an answer.
    pub(crate) patience: Duration,
}

impl PoolLink {
    /// Has the engine do something, and waits for its answer.
    ///
    /// # Errors
    /// The engine's, or [`ErrorKind::Timeout`] when there is none within a minute.
    pub fn manage(&self, what: Manage) -> Result<Managed, IoError> {
        let (reply, answer) = channel();
        self.mail.post(Mail::Manage { what, reply });
        self.wait(&answer)?
    }

    /// Makes a drive a member.
    ///
    /// # Errors
    /// Those of [`manage`](Self::manage), and of opening the drive on the pool's core.
    pub fn add_drive(&self, drive: NewDrive) -> Result<(), IoError> {
        let (reply, answer) = channel();
        self.mail.post(Mail::AddDrive { drive, reply });
        self.wait(&answer)?.map(drop)
    }

    /// Has a drive take part again that was left out. What it lacks is written to it in the background.
    ///
    /// # Errors
    /// Those of [`manage`](Self::manage), and of opening the drive on the pool's core.
    pub fn readmit(&self, back: Comeback, opener: Arc<dyn Opener>) -> Result<(), IoError> {
        let (reply, answer) = channel();
        let back = Box::new(back);
        self.mail.post(Mail::Readmit {
            back,
            opener,
            reply,
        });
        self.wait(&answer)?.map(drop)
    }

    /// Has the engine empty its logs, if that takes no longer than this.
    ///
    /// # Errors
    /// The engine's, or [`ErrorKind::Timeout`].
    pub fn drain_within(&self, time: Duration) -> Result<(), IoError> {
        let own = Self {
            patience: time,
            ..self.clone()
        };
        own.manage(Manage::Drain).map(drop)
    }

    /// Has the engine begin something that takes long; the answer comes in the channel.
    pub fn begin(&self, what: Manage) -> Receiver<Result<Managed, IoError>> {
        let (reply, answer) = channel();
        self.mail.post(Mail::Manage { what, reply });
        answer
    }

    /// The node has stored which of its drives serve.
    pub(crate) fn stored(&self, membership: Membership) {
        self.mail.post(Mail::Stored(membership));
    }

    /// The pool at this moment.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] when its core does not answer within a minute.
    pub fn view(&self) -> Result<View, IoError> {
        let (reply, answer) = channel();
        self.mail.post(Mail::Look { reply });
        self.wait(&answer)
    }

    /// The shape of one of its volumes.
    ///
    /// # Errors
    /// Those of [`view`](Self::view), and one when there is no such volume.
    pub fn geometry(&self, volume: u32) -> Result<Geometry, IoError> {
        let view = self.view()?;
        let found = view
            .traffic
            .geometries
            .iter()
            .find(|(number, _)| *number == volume);
        let none = || {
            IoError::new(
                ErrorKind::InvalidRequest,
                format!("there is no volume {volume}"),
            )
        };
        found.map(|(_, geometry)| *geometry).ok_or_else(none)
    }

    /// Sends mail to the copy of a replicated volume. A volume that is none loses it.
    pub(crate) fn post_to_replica(&self, volume: u32, mail: ReplicaMail) {
        self.mail.post(Mail::Replica { volume, mail });
    }

    /// Sends such mail, and waits for the answer.
    ///
    /// # Errors
    /// Those of [`view`](Self::view).
    pub(crate) fn ask_replica<T>(
        &self,
        volume: u32,
        mail: impl FnOnce(Sender<T>) -> ReplicaMail,
    ) -> Result<T, IoError> {
        let (reply, answer) = channel();
        self.post_to_replica(volume, mail(reply));
        self.wait(&answer)
    }

    fn wait<T>(&self, answer: &Receiver<T>) -> Result<T, IoError> {
        answer.recv_timeout(self.patience).map_err(|_| {
            let seconds = self.patience.as_secs();
            let why = format!("the pool's core has not answered for {seconds} s");
            IoError::new(ErrorKind::Timeout, why)
        })
    }
}
