//! The end of a cached volume, and how one is shown.
//!
//! ```text
//! nothing newer, or the loss accepted ─▶ hosts are gone ─▶ flushed once more ─▶ off its core
//!   ─▶ the backing device's head is as it was left, or is put back ─▶ the volume is deleted
//! ```

use ashlar_cache::{GRANULE, HEAD_BYTES, Header, Mark, Mode, mark};
use ashlar_store::{Manage, VolumeInfo};
use tracing::warn;

use super::caches::{CacheVolume, link_of, room_for};
use super::pools::engine;
use super::{LivePool, PoolManager, live};
use crate::cache::{CacheView, Direct};
use crate::model::{
    CacheMode, CacheStatus, ControlError, DeleteVolume, ReopenCache, VolumeName, VolumeState,
    VolumeStatus, readable_bytes,
};
use crate::pool::View;
use std::time::Duration;

/// How long the last flush may take: there is next to nothing to write.
const LAST_FLUSH: Duration = Duration::from_secs(30);

const HEAD: u64 = (HEAD_BYTES / GRANULE) as u64;

/// What is known of a cache when it is to be deleted.
enum Before {
    /// It serves; this is what it knows of itself.
    Serving(Box<CacheView>),
    /// It has never been finished: there is nothing to lose.
    Unfinished,
    /// It is not in service.
    Failed(String),
}

impl PoolManager {
    fn before_end(&self, pool: &LivePool, number: u32, name: &VolumeName) -> Before {
        let link = match link_of(pool, number, name) {
            Ok(link) => link,
            Err(error) => {
                let header = pool.caches.get(&number).map(|cached| &cached.header);
                let never = "or was never finished";
                return match (header, error.message.contains(never)) {
                    (Some(None), true) => Before::Unfinished,
                    _ => Before::Failed(error.message),
                };
            }
        };
        match link.view() {
            Ok(view) => match &view.status.failure {
                Some(why) => Before::Failed(format!("volume {name} has failed: {why}")),
                None => Before::Serving(Box::new(view)),
            },
            Err(error) => Before::Failed(error.to_string()),
        }
    }

    pub(super) fn drop_cache(
        &self,
        name: &VolumeName,
        request: &DeleteVolume,
    ) -> Result<(), ControlError> {
        let mut pools = self.lock();
        let pool = live(&pools, &name.pool)?;
        let info = self.find_cache(pool, name)?;
        let status = self.status_of(pool, &name.pool, &name.name)?;
        request.allowed_by_hosts_of(&status)?;
        let before = self.before_end(pool, info.number, name);
        let accepts = request.accept_data_loss;
        if !accepts {
            refuse_loss(name, &before)?;
        }
        let mut volume = CacheVolume::of(&info, &name.pool);
        let (id, link) = (pool.id, pool.link.clone());
        let known = pool.caches.get(&info.number);
        let mut header = known.and_then(|cached| cached.header.clone());
        // Hosts first: what they write now is written back, too.
        if let Some(super::Kept::Live(pool)) = pools.get_mut(&name.pool) {
            let why = super::Dismissal::ForGood(format!("volume {name} was deleted"));
            self.withdraw(pool, info.number, why)?;
        }
        let ended = self.flush_last(live(&pools, &name.pool)?, &info, name, accepts);
        if let Ok(Some(now)) = &ended {
            header = Some(now.clone());
        }
        if let Ok(now) = link_of(live(&pools, &name.pool)?, info.number, name) {
            volume.remembers_loss(&now);
        }
        // One with a device that does not answer stays where it is: neither can it go on.
        self.take_out_cache(&mut pools, name, &volume)?;
        let ended = ended.and_then(|_| match &header {
            Some(header) => self.leave_backing(header, accepts),
            None => Ok(()),
        });
        if let Err(error) = ended {
            // It goes on as it was, for what only it has.
            if let Some(super::Kept::Live(pool)) = pools.get_mut(&name.pool) {
                self.take_up_cache(pool, &volume, &ReopenCache::default());
            }
            return Err(error);
        }
        let delete = Manage::DeleteVolume {
            volume: info.number,
        };
        link.manage(delete).map_err(engine)?;
        if let Some(super::Kept::Live(pool)) = pools.get_mut(&name.pool) {
            pool.caches.remove(&info.number);
        }
        let expected = format!("cache {}", info.uuid);
        self.target.target().expect_no_more(&expected);
        self.forget_reservations(info.uuid)?;
        self.state
            .update(|state| state.forget_volume(id, info.uuid))
    }

    /// Writes back what came last; what the cache knows of itself then.
    fn flush_last(
        &self,
        pool: &LivePool,
        volume: &VolumeInfo,
        name: &VolumeName,
        accepts: bool,
    ) -> Result<Option<Header>, ControlError> {
        let Ok(link) = link_of(pool, volume.number, name) else {
            return Ok(None);
        };
        if !accepts && !link.flush_within(LAST_FLUSH).map_err(engine)? {
            let why = format!("volume {name} is not written back yet: `volume flush` first");
            return Err(ControlError::environment(why));
        }
        match link.view() {
            Ok(view) => Ok(view.status.header),
            Err(_) if accepts => Ok(None),
            Err(error) => Err(engine(error)),
        }
    }

    /// Sees that the backing device begins with what belongs there, or puts that back if what was newer is given up.
    fn leave_backing(&self, header: &Header, accepts: bool) -> Result<(), ControlError> {
        let name = &header.backing;
        let opened = self.open_backing(name, Some(header.layout));
        let mut device = match (opened, accepts) {
            (Ok(backing), _) => Direct::open(backing.as_ref()).map_err(engine)?,
            (Err(error), true) => {
                let why = error.message;
                warn!(
                    device = name,
                    "backing device {name} is left as it is: {why}. `ashlar cache give-up` takes a mark off it"
                );
                return Ok(());
            }
            (Err(error), false) => return Err(error),
        };
        let about = |error: ashlar_block::IoError| {
            ControlError::environment(format!("backing device {name}: {error}"))
        };
        let mut head = device.read(0, HEAD).map_err(about)?;
        let is_half = matches!(header.mark, Mark::Arming | Mark::Restoring);
        if let (true, true, Some(sums)) = (accepts, is_half, &header.marked) {
            return match sums.take_away(&mut head) {
                true => device.write(0, &head).map_err(about),
                false => Ok(()),
            };
        }
        let turned = mark::take_away(&head);
        // A head without an empty sector has a mark without a text.
        let is_turned =
            header.mark != Mark::Off && header.head_crc == Some(crc32c::crc32c(&turned));
        let is_marked = mark::whose(&head) == Some(header.cache) || is_turned;
        if is_marked && accepts {
            return device.write(0, &turned).map_err(about);
        }
        let fits = header
            .head_crc
            .is_none_or(|crc| crc == crc32c::crc32c(&head));
        if accepts || fits && !is_marked {
            return Ok(());
        }
        Err(ControlError::environment(format!(
            "backing device {name} does not begin with what was written back there: the volume is kept"
        )))
    }

    /// What an operator is shown of a cached volume, in place of what its pool's volume looks like.
    pub(super) fn as_cache(
        &self,
        mut status: VolumeStatus,
        pool: &LivePool,
        volume: &VolumeInfo,
        view: &View,
    ) -> VolumeStatus {
        let Some(cached) = pool.caches.get(&volume.number) else {
            return status;
        };
        let now = cached.link.as_ref().and_then(|link| link.view().ok());
        let failure = now.as_ref().and_then(|view| view.status.failure.clone());
        let header = now.as_ref().and_then(|view| view.status.header.clone());
        let Some(header) = header.or_else(|| cached.header.clone()) else {
            return failed(status, cached.why.clone());
        };
        status.bytes = header.layout.bytes();
        status.block_bytes = header.blocks.bytes();
        status.atomic_bytes = header.blocks.bytes();
        status.volatile_cache = true;
        status.warnings = warnings(&header, volume, view, now.as_ref());
        status.cache = Some(shown(&header, now.as_ref()));
        match failure.or_else(|| cached.why.clone()) {
            Some(why) => failed(status, Some(why)),
            None => status,
        }
    }
}

fn failed(status: VolumeStatus, why: Option<String>) -> VolumeStatus {
    if status.state == VolumeState::Failed || status.state == VolumeState::Deleting {
        return status;
    }
    let why = why.unwrap_or_else(|| "it was never finished".to_owned());
    VolumeStatus {
        state: VolumeState::Failed,
        reason: Some(format!(
            "{why}. Once that is mended, `volume reopen` takes it up again"
        )),
        ..status
    }
}

fn refuse_loss(name: &VolumeName, before: &Before) -> Result<(), ControlError> {
    const WAY: &str = "`volume newer` lists what would be lost, and --accept-data-loss gives it up";
    match before {
        Before::Unfinished => Ok(()),
        Before::Failed(why) => Err(ControlError::refused(format!(
            "{why}. What only the cache has is not on its backing device: `volume reopen` first; or {WAY}"
        ))),
        Before::Serving(view) => {
            let status = &view.status;
            let mark = status.header.as_ref().map(|header| header.mark);
            if status.dirty_bytes == 0 && mark == Some(Mark::Off) {
                return match status.is_unsaid {
                    false => Ok(()),
                    true => Err(ControlError::refused(format!(
                        "a flush of the backing device of volume {name} has failed, and what hosts wrote around the cache may \
                         be lost: no host was told. `volume flush` says so once, and it can be deleted then; or \
                         --accept-data-loss gives that up"
                    ))),
                };
            }
            Err(ControlError::refused(format!(
                "{} bytes of volume {name} are not on its backing device: `volume flush` first; or {WAY}",
                status.dirty_bytes
            )))
        }
    }
}

fn shown(header: &Header, now: Option<&CacheView>) -> CacheStatus {
    let status = now.map(|view| &view.status);
    let reads = status.map_or(0, |status| status.read_hits + status.read_misses);
    CacheStatus {
        backing: header.backing.clone(),
        mode: match header.mode {
            Mode::WriteBack => CacheMode::WriteBack,
            Mode::WriteThrough => CacheMode::WriteThrough,
            Mode::WriteAround => CacheMode::WriteAround,
        },
        cache_bytes: header.cache_bytes,
        cached_bytes: status.map_or(0, |status| status.cached_bytes),
        newer_bytes: status.map_or(0, |status| status.dirty_bytes),
        is_marked: header.mark != Mark::Off,
        read_hits: status.map_or(0, |status| status.read_hits),
        read_misses: status.map_or(0, |status| status.read_misses),
        hit_ratio: status
            .filter(|_| reads > 0)
            .map(|status| status.read_hits as f64 / reads as f64),
        written_around: status.map_or(0, |status| status.written_around),
        written_back_bytes: status.map_or(0, |status| status.written_back_bytes),
        backing_errors: status.map_or(0, |status| status.backing_errors),
        memory_bytes: status.map_or(0, |status| (status.policy_bytes + status.page_bytes) as u64),
        unswept_bytes: status.map_or(0, |status| status.unswept_bytes),
    }
}

fn warnings(
    header: &Header,
    volume: &VolumeInfo,
    view: &View,
    now: Option<&CacheView>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let room = room_for(volume, view);
    let wanted = header.cache_bytes.saturating_sub(volume.used_bytes);
    if wanted > room {
        warnings.push(format!(
            "it may cache {} more, and the pool has room for {} of them: writes go to the backing device at once \
             when that is full. Add a drive (`pool add`)",
            readable_bytes(wanted),
            readable_bytes(room)
        ));
    }
    if volume.layout.survives() == 0 && header.mode == Mode::WriteBack {
        warnings.push(
            "what only the cache has is on one drive: its loss loses that. A cache of mirror:2 keeps two copies"
                .to_owned(),
        );
    }
    let errors = now.map_or(0, |view| view.status.backing_errors);
    if errors > 0 {
        warnings.push(format!(
            "{errors} writes or flushes of backing device {} have failed: what they had stays in the cache, and is \
             tried again",
            header.backing
        ));
    }
    if let Some(why) = now.and_then(|view| view.status.no_room.as_ref()) {
        warnings.push(format!(
            "the pool has no room for what the cache is to keep: {why}. Reads and writes of what it does not have go to \
             backing device {} at once. Add a drive (`pool add`)",
            header.backing
        ));
    }
    if let Some(trouble) = now.and_then(|view| view.status.trouble.as_ref()) {
        warnings.push(format!(
            "backing device {} fails now: {trouble}. Once that is mended it goes on by itself; a device that refuses all \
             since a flush of it has failed is opened again by `volume reopen`",
            header.backing
        ));
    }
    if now.is_some_and(|view| view.status.is_untold) {
        warnings.push(format!(
            "a flush of backing device {} has failed, and what hosts wrote around the cache may be lost: no host was told yet. \
             The next flush of one fails for that, and so does the next `volume flush`, once",
            header.backing
        ));
    }
    warnings
}
