use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use ashlar_block::{ErrorKind, IoError, Request};
use ashlar_cache::{RuleId, Status};
use ashlar_reactor::Mailbox;

use crate::pool::{RemotePort, VolumeTraffic};

/// How long the control plane waits for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// What the control plane is shown of a cache.
#[derive(Clone, Debug)]
pub(crate) struct CacheView {
    pub(crate) status: Status,
    /// What its hosts have done.
    pub(crate) traffic: VolumeTraffic,
    /// For how long the backing device has answered none of the requests that it has; 0 if it has none.
    pub(crate) silent: Duration,
}

/// Ranges of bytes: from, how many.
pub(crate) type Ranges = Vec<(u64, u64)>;

/// Mail to a cache's host.
pub(super) enum Mail {
    /// A command of a volume that is open on another core.
    Command(Arc<RemotePort>, Request),
    /// Everything is to be written back.
    Flush(Sender<Result<(), IoError>>),
    /// Answered when it serves, or cannot.
    Opened(Sender<Result<(), IoError>>),
    /// Nothing more goes to the devices; answered when nothing is on its way there.
    Rest(Sender<()>),
    /// A look at everything.
    Look(Sender<CacheView>),
    /// What is newer than the backing device.
    Newer(Sender<Ranges>),
    /// These granules are kept out from now on.
    SetRule(RuleId, Vec<Range<u64>>),
    /// The rule is no more.
    RemoveRule(RuleId),
}

/// A cache's host, as other threads know it. Cloning shares it.
#[derive(Clone)]
pub(crate) struct CacheLink {
    pub(super) mail: Mailbox<Mail>,
    /// Names the cache among those of this process.
    pub(super) number: u64,
}

impl CacheLink {
    /// Waits until the cache serves.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) fn await_opened(&self) -> Result<(), IoError> {
        self.ask(Mail::Opened)?
    }

    /// Has everything written back, and waits so long for it; false if it goes on.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(crate) fn flush_within(&self, limit: Duration) -> Result<bool, IoError> {
        let (reply, answer) = channel();
        self.mail.post(Mail::Flush(reply));
        match answer.recv_timeout(limit) {
            Ok(result) => result.map(|()| true),
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => Err(IoError::new(
                ErrorKind::Aborted,
                "the cache was taken out of service",
            )),
        }
    }

    /// Has it leave its devices alone, for good; it is taken off its core next. False: a device has not answered in
    /// this time.
    pub(crate) fn rest_within(&self, limit: Duration) -> bool {
        let (reply, answer) = channel();
        self.mail.post(Mail::Rest(reply));
        answer.recv_timeout(limit).is_ok()
    }

    /// The cache at this moment.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] when its core does not answer within a minute.
    pub(crate) fn view(&self) -> Result<CacheView, IoError> {
        self.ask(Mail::Look)
    }

    /// What is newer than the backing device.
    ///
    /// # Errors
    /// As for [`view`](Self::view).
    pub(crate) fn newer(&self) -> Result<Ranges, IoError> {
        self.ask(Mail::Newer)
    }

    /// Has granules kept out.
    pub(crate) fn set_rule(&self, id: RuleId, granules: Vec<Range<u64>>) {
        self.mail.post(Mail::SetRule(id, granules));
    }

    /// Ends that.
    pub(crate) fn remove_rule(&self, id: RuleId) {
        self.mail.post(Mail::RemoveRule(id));
    }

    fn ask<T>(&self, mail: impl FnOnce(Sender<T>) -> Mail) -> Result<T, IoError> {
        let (reply, answer): (_, Receiver<T>) = channel();
        self.mail.post(mail(reply));
        answer.recv_timeout(ANSWER_TIMEOUT).map_err(|_| {
            let seconds = ANSWER_TIMEOUT.as_secs();
            let why = format!("the cache has not answered for {seconds} s");
            IoError::new(ErrorKind::Timeout, why)
        })
    }
}
