//! What copies say on their cores becomes paths of hosts, lines of the log, and what is shown. On a thread of its own,
//! for a core must not wait for another.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ashlar_nvme::log::AnaState;
use ashlar_replica::{Alarm, Epoch, Extent, NodeId, Position, Positions};
use tracing::{error, info, warn};
use uuid::Uuid;

use super::chores::{Chore, Chores, Hands};
use super::follow::Patience;
use super::remembered::Remembered;
use crate::manager::serve::nqn;
use crate::manager::volumes::GRANULE;
use crate::model::{FailoverCause, FailoverStatus};
use crate::replica::{Cause, Failover, News};
use crate::{Events, PoolManager};

/// News of a volume.
pub(in crate::manager) struct Item {
    pub(super) volume: Uuid,
    pub(super) news: News,
}

/// What is known of a volume besides its copy's own account.
#[derive(Clone, Debug, Default)]
pub(in crate::manager) struct Shown {
    /// As this node's last term began.
    pub(super) last_failover: Option<FailoverStatus>,
    /// How often this node came to serve it, by cause.
    pub(super) failovers: BTreeMap<FailoverCause, u64>,
    /// What is wrong.
    pub(super) alarm: Option<String>,
    /// The copy of which that says that it cannot be given something.
    pub(super) unreadable_for: Option<Position>,
    /// The epoch since which this node serves it, where hosts reach it by now.
    pub(super) serves: Option<Epoch>,
    /// It serves it without word of the other copies: one of them may have it by now.
    pub(super) is_isolated: bool,
    /// The copies in sync, as this node knew when it served last.
    pub(super) in_sync: Positions,
    /// How long it stays here.
    pub(super) patience: Patience,
    /// How often this node has handed it to another for that.
    pub(super) handed: u64,
    /// Why it was given to this node, if that was for its hosts.
    pub(super) followed: Option<String>,
    /// The nodes whose copies are not in sync, and since when, in seconds since 1970, if that is known.
    pub(super) absent: BTreeMap<u32, Option<u64>>,
}

pub(super) const UNSEATED: &str = "this node's copy is none of the volume's any more: its place was given up. What it \
                                   holds is old; `volume delete --destroy-data` here deletes it, and nothing of the \
                                   others";

pub(super) type All = Arc<Mutex<BTreeMap<Uuid, Shown>>>;

/// What is shown, and what is remembered of it.
pub(super) struct Known {
    pub(super) shown: All,
    pub(super) remembered: Remembered,
}

/// Begins to follow news.
pub(super) fn start(
    manager: Weak<PoolManager>,
    known: Known,
    events: Arc<Events>,
) -> io::Result<Sender<Item>> {
    let (sender, receiver) = channel();
    let follow = move || follow(&manager, &receiver, known, &events);
    std::thread::Builder::new()
        .name("replication".into())
        .spawn(follow)?;
    Ok(sender)
}

fn follow(manager: &Weak<PoolManager>, news: &Receiver<Item>, known: Known, events: &Events) {
    let Known {
        shown,
        mut remembered,
    } = known;
    let shown = &shown;
    let chores = Chores::default();
    // It ends with the last that could send.
    for Item { volume, news } in news {
        let Some(manager) = manager.upgrade() else {
            return;
        };
        if let News::Elsewhere(by) = news {
            manager.follow_hosts(volume, by);
            continue;
        }
        if let News::Reserved(news) = news {
            manager.tell_reserved(volume, news);
            continue;
        }
        if let News::Members(members) = &news {
            manager.take_seats(volume, members);
        }
        if matches!(news, News::Size) {
            manager.show_size(volume);
            continue;
        }
        if matches!(news, News::Lacks(_)) {
            manager.look_at_heads();
        }
        if matches!(news, News::LacksRoom) {
            chores.add(volume, Chore::GiveRoom, &Hands::of(&manager, shown));
            continue;
        }
        if matches!(news, News::Forwards(true)) {
            // It may have grown while this node was not heard.
            chores.add(volume, Chore::LookAtSeats, &Hands::of(&manager, shown));
        }
        if matches!(news, News::Forwards(true))
            && let Err(error) = manager.catch_up_with_connected(volume)
        {
            // The others tell it, or are asked, once a second.
            warn!(%volume, "volume {volume}: who may connect is not known anew: {}", error.message);
        }
        let names = |positions| manager.names_at(volume, positions);
        let event = event_of(&news, names);
        let name = event.as_ref().and_then(|_| manager.name_of(volume));
        let mut all = shown.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(volume).or_default();
        let event = event.filter(|_| !is_told(known, &news));
        let path = learn(volume, known, &news);
        if matches!(news, News::Stops(_) | News::Failed(_)) {
            known.serves = None;
        }
        let is_kept = matches!(news, News::Serves { .. } | News::Absent { .. });
        let kept = is_kept.then(|| all.clone());
        drop(all);
        if let Some((kind, text)) = event {
            events.add(kind, name, text);
        }
        if let Some(state) = path {
            manager.set_path(volume, state);
        }
        // Who asks for that connects at once.
        if let News::Serves { epoch, .. } = news {
            let mut all = shown.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(volume).or_default().serves = Some(epoch);
        }
        let changes_nothing = matches!(
            news,
            News::InSync(_)
                | News::Alarm(_)
                | News::Lacks(_)
                | News::Absent { .. }
                | News::Resync { .. }
                | News::Resynced { .. }
        );
        if !changes_nothing {
            manager.services_look();
        }
        if let Some(kept) = kept {
            let state = manager.state.read();
            let is_here = |volume| state.replicas.iter().any(|known| known.volume == volume);
            remembered.keep(&kept, is_here);
        }
    }
}

/// What an operator may want to know of it.
fn event_of(news: &News, names: impl Fn(Positions) -> String) -> Option<(&'static str, String)> {
    Some(match news {
        // Another node's.
        News::Forwards(_)
        | News::Reserved(_)
        | News::Elsewhere(_)
        | News::Size
        | News::Lacks(_)
        | News::Absent { .. }
        | News::LacksRoom => return None,
        News::Serves { epoch, failover } => (
            "serves",
            format!("this node serves it from {epoch} on: {failover}"),
        ),
        News::Stops(epoch) => (
            "stops",
            format!("this node does not serve it any more: {epoch}"),
        ),
        News::Isolated(true) => (
            "isolated",
            "no word of the other copies: hosts are sent to other paths".to_owned(),
        ),
        News::Isolated(false) => ("connected", "hosts are served again".to_owned()),
        News::InSync(positions) => ("in_sync", format!("in sync: {}", names(*positions))),
        News::Resync { to, left } => (
            "resync",
            format!(
                "the copy of {} is given {left} bytes that it missed",
                names(Positions::NONE.with(*to))
            ),
        ),
        News::Resynced { at, bytes } => (
            "resynced",
            format!(
                "the copy of {} has what it missed: {bytes} bytes were copied",
                names(Positions::NONE.with(*at))
            ),
        ),
        News::Members(members) => (
            "copies",
            format!("its copies are on {} nodes now", members.count()),
        ),
        News::Unseated => ("unseated", UNSEATED.to_owned()),
        News::Alarm(alarm @ Alarm::Diverged { .. }) => ("diverged", alarm_text(alarm)),
        News::Alarm(alarm) => ("alarm", alarm_text(alarm)),
        News::Failed(why) => ("failed", format!("its copy here is out of service: {why}")),
    })
}

/// Whether it is what is wrong already, as with what a copy lacks, which is tried again and again.
fn is_told(known: &Shown, news: &News) -> bool {
    let News::Alarm(alarm @ (Alarm::Unreadable { .. } | Alarm::Lost { .. })) = news else {
        return false;
    };
    known.alarm.as_ref() == Some(&alarm_text(alarm))
}

/// What a copy lacks is over, if it is this one's case.
fn end_unreadable(known: &mut Shown, is_it: impl Fn(Position) -> bool) {
    if known.unreadable_for.take_if(|one| is_it(*one)).is_some() {
        known.alarm = None;
    }
}

/// Notes what is new; how hosts reach the volume from now on, if that has changed.
fn learn(volume: Uuid, known: &mut Shown, news: &News) -> Option<AnaState> {
    match news {
        News::Isolated(is_isolated) => known.is_isolated = *is_isolated,
        // A term that begins has all grants, and one that has ended needs none.
        News::Serves { .. } | News::Stops(_) | News::Failed(_) => known.is_isolated = false,
        _ => {}
    }
    match news {
        News::Serves { failover, .. } => {
            (known.alarm, known.unreadable_for) = (None, None);
            if failover.cause != Cause::Start {
                known.patience.took(Instant::now());
            }
            if failover.cause != Cause::Move {
                known.followed = None;
            }
            *known.failovers.entry(cause_of(failover.cause)).or_default() += 1;
            known.last_failover = failover_status(*failover).or(known.last_failover);
            Some(AnaState::Optimized)
        }
        News::Stops(_) | News::Forwards(false) | News::Isolated(true) => {
            if matches!(news, News::Stops(_)) {
                // Who serves it from now on says what it lacks there.
                end_unreadable(known, |_| true);
            }
            Some(AnaState::Inaccessible)
        }
        News::Isolated(false) => Some(AnaState::Optimized),
        News::Forwards(true) => Some(AnaState::NonOptimized),
        News::Absent { nodes, is_seen } => {
            learn_absent(&mut known.absent, nodes, *is_seen);
            None
        }
        News::Members(members) => {
            end_unreadable(known, |one| members.get(one).is_none());
            None
        }
        News::Reserved(_)
        | News::Elsewhere(_)
        | News::Resync { .. }
        | News::Resynced { .. }
        | News::Size
        | News::Lacks(true)
        | News::LacksRoom => None,
        News::Lacks(false) => {
            let is_over = |alarm: &mut String| alarm.contains(LAGS) || alarm == OLD_IMAGE;
            known.alarm.take_if(is_over);
            None
        }
        News::Unseated => {
            warn!(%volume, "volume {volume}: {UNSEATED}");
            known.unreadable_for = None;
            known.alarm = Some(UNSEATED.to_owned());
            Some(AnaState::Inaccessible)
        }
        News::InSync(positions) => {
            known.in_sync = *positions;
            end_unreadable(known, |one| positions.has(one));
            info!(%volume, "volume {volume}: in sync are {}", positions_text(*positions));
            None
        }
        News::Alarm(alarm) => {
            let text = alarm_text(alarm);
            if known.alarm.as_ref() != Some(&text) {
                warn!(%volume, "volume {volume}: {text}");
                known.alarm = Some(text);
            }
            known.unreadable_for = match alarm {
                Alarm::Unreadable { position, .. } | Alarm::Lost { position, .. } => {
                    Some(*position)
                }
                _ => None,
            };
            None
        }
        News::Failed(why) => {
            error!(%volume, "volume {volume}: its copy here is out of service: {why}");
            (known.alarm, known.unreadable_for) = (Some(why.clone()), None);
            Some(AnaState::Inaccessible)
        }
    }
}

/// Who is absent now. Since when, is known of those of which this process has seen it.
fn learn_absent(known: &mut BTreeMap<u32, Option<u64>>, nodes: &[NodeId], is_seen: bool) {
    known.retain(|&node, _| nodes.contains(&NodeId(node)));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.ok().map(|time| time.as_secs()).filter(|_| is_seen);
    for node in nodes {
        known.entry(node.0).or_insert(now);
    }
}

fn failover_status(failover: Failover) -> Option<FailoverStatus> {
    let gap = failover.gap?;
    Some(FailoverStatus {
        gap_ms: u64::try_from(gap.as_millis()).unwrap_or(u64::MAX),
        cause: cause_of(failover.cause),
    })
}

const fn cause_of(cause: Cause) -> FailoverCause {
    match cause {
        Cause::Start => FailoverCause::Start,
        Cause::Move => FailoverCause::Move,
        Cause::Death => FailoverCause::Death,
        Cause::Silence => FailoverCause::Silence,
    }
}

impl PoolManager {
    /// The nodes that have these copies, as far as this node remembers them.
    fn names_at(&self, volume: Uuid, positions: Positions) -> String {
        let state = self.state.read();
        let known = state.replicas.iter().find(|known| known.volume == volume);
        let members = known.map_or(&[][..], |known| &known.members);
        let name = |at: Position| {
            let node = members.get(at.index()).copied().flatten();
            let replication = self.replication.as_ref();
            match node.zip(replication) {
                Some((node, replication)) => replication.node_name(NodeId(node)),
                None => at.to_string(),
            }
        };
        let names: Vec<String> = positions.iter().map(name).collect();
        names.join(", ")
    }
}

fn positions_text(positions: Positions) -> String {
    let names: Vec<String> = positions.iter().map(|one| one.to_string()).collect();
    names.join(", ")
}

/// Until it was made equal.
const OLD_IMAGE: &str = "this copy is an old image: it is copied in full";
const LAGS: &str = "has acknowledged what it does not have";

const FROM_BACKUP: &str = "it comes from a backup. Put the newer key back while the owner's daemon runs: this one serves \
                           on and changes nothing; if it ends before, a copy that lacks writes may take over";

fn alarm_text(alarm: &Alarm) -> String {
    match alarm {
        Alarm::StoreIsOld { stored, promised } => format!(
            "the quorum says {stored}, and {promised} was promised here: it comes from a backup. No copy serves until \
             the newer key is put back"
        ),
        Alarm::StoreWentBack { stored, known } => format!(
            "the quorum's key of the volume is of revision {stored}, and was of {known} before: {FROM_BACKUP}"
        ),
        Alarm::StoreIsEarlier { stored, known } => format!(
            "the quorum's key of the volume says {stored}, and this node serves it in {known}: {FROM_BACKUP}"
        ),
        Alarm::StoreShrinks { stored, known } => format!(
            "the quorum's key says that the volume has {} bytes, and said {} before: {FROM_BACKUP}",
            stored.map_or(0, |size| size.hosts() * GRANULE),
            known.hosts() * GRANULE
        ),
        Alarm::StoreAdds(positions) => format!(
            "the quorum's key names {} as in sync, which the owner has not added: {FROM_BACKUP}",
            positions_text(*positions)
        ),
        Alarm::KeyUnreadable(why) => why.clone(),
        Alarm::Differs { position, leaf } => {
            format!("{position} differs in {leaf} from what it should be: it is copied again")
        }
        Alarm::Diverged { position, leaf } => format!(
            "{position} was in sync, and is not equal to this copy in {leaf}: it does not count as in sync until it \
             was given this copy's content and every leaf is proven"
        ),
        Alarm::LocalFailed => {
            "this pool cannot read or write what it should, or does not answer: another copy serves"
                .into()
        }
        Alarm::Lost { hosts, .. } => {
            let what = unread(*hosts);
            format!(
                "cannot read {what}, and no copy in sync has it: hosts' reads of it fail, and no copy comes into sync, \
                 before it was written or can be read. There may be more of it: `pool status` lists what the pool knows \
                 to be lost"
            )
        }
        Alarm::Unreadable { position, hosts } => {
            let what = unread(*hosts);
            format!(
                "cannot read {what}, which {position} lacks: it is given all else, and is not in sync before that was \
                 written or can be read. There may be more of it: `pool status` lists what the pool knows to be lost"
            )
        }
        Alarm::OldImage => OLD_IMAGE.into(),
        Alarm::Lags(position) => format!(
            "{position} {LAGS}: its pool was put back to an older state, or its drives \
             have lost what they had said to be durable. It serves nothing, and does not count as in sync, until it \
             was made equal to a copy that has it. If none serves by then, what keeps that one is said at its node"
        ),
    }
}

/// What cannot be read, as hosts know it.
fn unread(hosts: Option<Extent>) -> String {
    match hosts {
        Some(hosts) => format!(
            "{} bytes at {}",
            u64::from(hosts.count()) * GRANULE,
            hosts.first() * GRANULE
        ),
        None => "which hosts have reserved the volume".to_owned(),
    }
}

impl PoolManager {
    pub(super) fn set_path(&self, volume: Uuid, state: AnaState) {
        // One that is being deleted has no path any more.
        if let Err(error) = self.target.set_path(&nqn(volume), None, state) {
            warn!(%volume, "volume {volume}: its paths do not change: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lacks(at: Position, granule: u64) -> News {
        let hosts = Extent::new(granule, 1);
        News::Alarm(Alarm::Unreadable {
            position: at,
            hosts,
        })
    }

    /// As long as that copy is not in sync, or this node serves, and no longer.
    #[test]
    fn what_a_copy_lacks_is_told_once_and_shown_while_it_is_so() {
        let place = |index| Position::new(index).expect("a position");
        let (volume, mut known) = (Uuid::nil(), Shown::default());
        let mut hears = |news: &News| {
            let is_new = !is_told(&known, news);
            learn(volume, &mut known, news);
            (is_new, known.alarm.is_some())
        };
        let first = Positions::first(1);
        assert_eq!(hears(&lacks(place(1), 7)), (true, true));
        assert_eq!(hears(&lacks(place(1), 7)), (false, true), "tried again");
        let third = News::InSync(first.with(place(2)));
        assert_eq!(hears(&third), (true, true), "another copy's news");
        assert_eq!(hears(&lacks(place(1), 9)), (true, true), "the next");
        assert_eq!(hears(&News::InSync(Positions::first(2))), (true, false));
        hears(&lacks(place(1), 9));
        assert_eq!(hears(&News::Stops(Epoch(3))), (true, false));
        let lost = News::Alarm(Alarm::Lost {
            position: place(0),
            hosts: Extent::new(9, 1),
        });
        assert_eq!(hears(&lost), (true, true));
        assert_eq!(hears(&lost), (false, true), "tried again");
        assert_eq!(hears(&News::InSync(first)), (true, false));
        hears(&lacks(place(1), 9));
        let differs = News::Alarm(Alarm::LocalFailed);
        hears(&differs);
        assert_eq!(
            hears(&News::InSync(Positions::first(2))),
            (true, true),
            "not that"
        );
    }

    #[test]
    fn since_when_a_copy_is_absent_is_known_of_one_that_was_seen_to_leave() {
        let mut known = BTreeMap::from([(2, Some(7)), (3, None)]);
        let nodes = |ids: &[u32]| ids.iter().map(|&id| NodeId(id)).collect::<Vec<_>>();
        // A process begins: it was so before.
        learn_absent(&mut known, &nodes(&[1, 2, 3]), false);
        assert_eq!(known, [(1, None), (2, Some(7)), (3, None)].into());
        learn_absent(&mut known, &nodes(&[3, 4]), true);
        assert_eq!(known.keys().copied().collect::<Vec<_>>(), [3, 4]);
        assert!(known[&3].is_none() && known[&4].is_some(), "{known:?}");
    }
}
