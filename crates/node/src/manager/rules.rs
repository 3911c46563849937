//! Rules by file: what is kept out of a cache by hand. Which files, is remembered; where they lie, only as long as the
//! daemon lives, and is told by the machine that has the file system mounted. For this machine the daemon looks it up.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use ashlar_cache::{GRANULE, RuleId};
use tracing::warn;
use uuid::Uuid;

use super::caches::link_of;
use super::pools::engine;
use super::{Kept, PoolManager, live};
use crate::model::{
    ByteRange, CacheRule, ControlError, PutRule, RemoveRule, RuleExtents, VolumeName,
};
use crate::rules::{RENEW_EVERY, look_up, this_host};
use crate::{Alarm, RuleEntry};

/// A rule by its volume and its pattern.
type Key = (Uuid, String);

/// What is known of rules now.
#[derive(Default)]
pub(super) struct Rules(Mutex<BTreeMap<Key, Now>>);

/// One rule now.
struct Now {
    id: RuleId,
    files: u64,
    renewed: Option<Instant>,
    trouble: Option<String>,
}

impl Rules {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Now>> {
        // Each change is a single assignment; a panic leaves none half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its number, which it keeps as long as the daemon lives.
    fn number(&self, key: &Key) -> RuleId {
        let mut all = self.lock();
        let next = all.values().map(|now| now.id.0 + 1).max().unwrap_or(0);
        let now = all.entry(key.clone()).or_insert(Now {
            id: RuleId(next),
            files: 0,
            renewed: None,
            trouble: None,
        });
        now.id
    }

    fn change(&self, key: &Key, change: impl FnOnce(&mut Now)) {
        if let Some(now) = self.lock().get_mut(key) {
            change(now);
        }
    }
}

/// Granules of a volume that ranges of bytes touch.
fn granules(ranges: &[ByteRange], bytes: u64) -> Vec<Range<u64>> {
    let granule = GRANULE as u64;
    let within = ranges.iter().filter(|range| range.offset < bytes);
    let range = |range: &ByteRange| {
        let end = (range.offset + range.bytes).min(bytes);
        range.offset / granule..end.div_ceil(granule)
    };
    within.map(range).collect()
}

/// What a rule is warned of.
fn warning(now: Option<&Now>, host: &str) -> Option<String> {
    let late = |since: Instant| since.elapsed() > RENEW_EVERY * 6;
    match now {
        Some(Now {
            trouble: Some(why), ..
        }) => Some(why.clone()),
        Some(now) if now.renewed.is_some() && now.files == 0 => {
            Some("it matches nothing now".to_owned())
        }
        Some(now) if !now.renewed.is_none_or(late) => None,
        _ => Some(format!(
            "it is not renewed: on {host}, `ashlar cache rule renew` does that"
        )),
    }
}

impl PoolManager {
    pub(super) fn put_rule(
        &self,
        name: &VolumeName,
        request: &PutRule,
    ) -> Result<CacheRule, ControlError> {
        let pools = self.lock();
        let pool = live(&pools, &name.pool)?;
        let info = self.find_cache(pool, name)?;
        let link = link_of(pool, info.number, name)?;
        let entry = RuleEntry {
            pool: pool.id,
            volume: info.uuid,
            exclude: request.exclude.clone(),
            host: request.host.clone(),
        };
        if !request.renews {
            self.state.update(|state| state.put_rule(entry))?;
        } else if !self.state.read().rules.contains(&entry) {
            return Err(no_rule(name, &request.exclude));
        }
        let status = link.view().map_err(engine)?.status;
        let bytes = status.header.map_or(0, |header| header.layout.bytes());
        let key = (info.uuid, request.exclude.clone());
        let RuleExtents { files, ranges } = &request.extents;
        link.set_rule(self.rules.number(&key), granules(ranges, bytes));
        self.rules.change(&key, |now| {
            now.files = *files;
            now.renewed = Some(Instant::now());
            now.trouble = None;
        });
        drop(pools);
        let mut rules = self.rules_of(name)?.into_iter();
        rules
            .find(|rule| rule.exclude == request.exclude)
            .ok_or_else(|| no_rule(name, &request.exclude))
    }

    pub(super) fn rules_of(&self, name: &VolumeName) -> Result<Vec<CacheRule>, ControlError> {
        let pools = self.lock();
        let pool = live(&pools, &name.pool)?;
        let info = self.find_cache(pool, name)?;
        let view = link_of(pool, info.number, name).ok();
        let view = view.and_then(|link| link.view().ok());
        let counted = view.map(|view| view.status.rules).unwrap_or_default();
        let state = self.state.read();
        let known = self.rules.lock();
        let rule = |entry: &RuleEntry| {
            let now = known.get(&(entry.volume, entry.exclude.clone()));
            let counted = counted
                .iter()
                .find(|one| now.is_some_and(|now| now.id == one.id));
            CacheRule {
                exclude: entry.exclude.clone(),
                host: entry.host.clone(),
                files: now.map_or(0, |now| now.files),
                bytes: counted.map_or(0, |one| one.granules * GRANULE as u64),
                renewed_s: now
                    .and_then(|now| now.renewed)
                    .map(|at| at.elapsed().as_secs_f64()),
                reads: counted.map_or(0, |one| one.reads),
                writes: counted.map_or(0, |one| one.writes),
                warning: warning(now, &entry.host),
            }
        };
        let of_volume = state.rules.iter().filter(|one| one.volume == info.uuid);
        Ok(of_volume.map(rule).collect())
    }

    pub(super) fn drop_rule(
        &self,
        name: &VolumeName,
        request: &RemoveRule,
    ) -> Result<(), ControlError> {
        let pools = self.lock();
        let pool = live(&pools, &name.pool)?;
        let info = self.find_cache(pool, name)?;
        let removed = self
            .state
            .update(|state| state.forget_rule(info.uuid, &request.exclude))?;
        if !removed {
            return Err(no_rule(name, &request.exclude));
        }
        let now = self
            .rules
            .lock()
            .remove(&(info.uuid, request.exclude.clone()));
        if let (Some(now), Ok(link)) = (now, link_of(pool, info.number, name)) {
            link.remove_rule(now.id);
        }
        Ok(())
    }

    /// Looks up the files of this machine's rules every few seconds, as long as there is a pool manager, on a thread of its
    /// own: a file system that hangs holds up nothing else.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn watch_rules(self: &Arc<Self>, alarm: &Alarm) -> Result<(), std::io::Error> {
        let manager = Arc::downgrade(self);
        let watch = move || {
            while let Some(manager) = manager.upgrade() {
                manager.renew_rules();
                drop(manager);
                thread::sleep(RENEW_EVERY);
            }
            Ok(())
        };
        alarm.spawn("cache rules", watch).map(drop)
    }

    fn renew_rules(&self) {
        let host = this_host();
        let rules = self.state.read().rules;
        for entry in rules.into_iter().filter(|entry| entry.host == host) {
            let Some(name) = self.volume_named(entry.pool, entry.volume) else {
                continue;
            };
            let key = (entry.volume, entry.exclude.clone());
            let renewed = self.one_volume(&name).and_then(|volume| {
                let extents = look_up(&entry.exclude, &volume)?;
                let renewal = PutRule {
                    exclude: entry.exclude.clone(),
                    host: host.clone(),
                    renews: true,
                    extents,
                };
                self.put_rule(&name, &renewal)
            });
            if let Err(error) = renewed {
                let why = error.message;
                self.rules.number(&key);
                self.rules.change(&key, |now| {
                    if now.trouble.as_ref() != Some(&why) {
                        warn!(volume = %name, "cache rule of {name}: {why}");
                    }
                    now.trouble = Some(why);
                });
            }
        }
    }

    fn volume_named(&self, pool: Uuid, volume: Uuid) -> Option<VolumeName> {
        let pools = self.lock();
        let named = pools.iter().find_map(|(name, kept)| match kept {
            Kept::Live(live) if live.id == pool => Some((name, live)),
            _ => None,
        });
        let (name, live) = named?;
        let view = live.link.view().ok()?;
        let mut volumes = view.status.volumes.iter();
        let info = volumes.find(|info| info.uuid == volume && !info.deleting)?;
        VolumeName::new(name, &info.name).ok()
    }
}

fn no_rule(name: &VolumeName, exclude: &str) -> ControlError {
    ControlError::not_found(format!("volume {name} has no rule {exclude}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_the_granules_that_they_touch() {
        let range = |offset, bytes| ByteRange { offset, bytes };
        let made = [
            range(0, 1),
            range(8191, 2),
            range(12_288, 1 << 40),
            range(1 << 30, 5),
        ];
        assert_eq!(granules(&made, 20_480), [0..1, 1..3, 3..5]);
    }
}
