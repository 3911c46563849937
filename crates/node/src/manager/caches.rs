//! Volumes that cache a device: made, taken up, flushed, shown, taken out of service. What one is, its pool's volume
//! says: the header of [`ashlar_cache`], with the name of the backing device.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use ashlar_block::{BlockSize, ErrorKind, Geometry, IoError};
use ashlar_cache::{
    GRANULE, HEAD_BYTES, Header, Identity, Layout as CacheLayout, Mark, Mode, Other, blocks_for,
};
use ashlar_device::{
    FindingKind, OpenError, OpenErrorKind, Spec, find_use, identity_of, open_whole,
};
use ashlar_nvme_target::server::Resident;
use ashlar_reactor::{Handle, Opener};
use ashlar_store::{Grain, Manage, Managed, VolumeInfo, VolumePlan};
use tracing::{error, info, warn};
use uuid::Uuid;

use super::cache_class::fastest;
use super::pools::engine;
use super::serve::{CORE, Offered, served};
use super::{Kept, LivePool, PoolManager, live, stored_class};
use crate::VolumeAccess;
use crate::cache::{CacheLink, CacheOpener, CacheView, Direct, Settled, Start};
use crate::model::{
    CacheMode, ControlError, CreateCache, FlushReply, HostList, LayoutSpec, NewerData, ReopenCache,
    VolumeName, VolumeStatus, readable_bytes,
};
use crate::pool::{PoolLink, View, VolumeOpener, room_of};

/// Granules of a device that say what it holds.
const HEAD: u64 = (HEAD_BYTES / GRANULE) as u64;
/// Least bytes of a device that is cached.
const LEAST_BACKING: u64 = 1 << 20;
/// How long a request to flush waits.
const FLUSH_WAIT: Duration = Duration::from_secs(30);
/// How long devices may take to answer what a cache that goes has asked of them.
const REST_WAIT: Duration = Duration::from_secs(10);
/// A device that has answered so lately is no silent one.
const STILL_ANSWERS: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Share of a pool's room that a cache gets by default: what it keeps of itself, and other volumes, need some.
const SHARE_OF_ROOM: f64 = 0.9;
/// Least bytes that it gets.
const LEAST_ROOM: u64 = 8 << 20;

/// Opens devices by what names them, remote ones included; those that have no size of blocks of their own, in such blocks.
pub type OpenDevice =
    Box<dyn Fn(&Spec, BlockSize) -> Result<Arc<dyn Opener>, OpenError> + Send + Sync>;

/// A cache that is on its core, or should be.
pub(crate) struct Cached {
    pub(super) uuid: Uuid,
    /// What it said of itself when it was taken up.
    pub(super) header: Option<Header>,
    pub(super) link: Option<CacheLink>,
    /// Why it is not in service.
    pub(super) why: Option<String>,
}

/// A pool's volume that caches, and its name for people.
#[derive(Clone)]
pub(super) struct CacheVolume {
    pub(super) number: u32,
    pub(super) uuid: Uuid,
    pub(super) name: String,
    /// A flush has failed in its life before, and no host was told.
    is_untold: bool,
}

impl CacheVolume {
    pub(super) fn of(volume: &VolumeInfo, pool: &str) -> Self {
        Self {
            number: volume.number,
            uuid: volume.uuid,
            name: format!("{pool}/{}", volume.name),
            is_untold: false,
        }
    }

    /// Its life that ends may have lost something of which no host was told.
    pub(super) fn remembers_loss(&mut self, link: &CacheLink) {
        if let Ok(view) = link.view() {
            self.is_untold = view.status.is_untold;
        }
    }
}

/// A cache on its core that hosts cannot see yet.
struct Opened {
    link: CacheLink,
    geometry: Geometry,
}

fn resident_name(uuid: Uuid) -> String {
    format!("cache {uuid}")
}

fn device_error(error: &OpenError) -> ControlError {
    match error.kind() {
        OpenErrorKind::Usage => ControlError::usage(error.to_string()),
        _ => ControlError::environment(error.to_string()),
    }
}

fn mode_of(mode: CacheMode) -> Mode {
    match mode {
        CacheMode::WriteBack => Mode::WriteBack,
        CacheMode::WriteThrough => Mode::WriteThrough,
        CacheMode::WriteAround => Mode::WriteAround,
    }
}

/// What a cache says of itself on its volume of a pool.
fn read_header(fast: &dyn Opener) -> Result<Header, IoError> {
    let at = CacheLayout::header_of(fast.geometry().blocks);
    Header::decode(&Direct::open(fast)?.read(at, 1)?)
}

/// Size of the blocks in which what a device holds can be used.
fn blocks_of(backing: &dyn Opener, name: &str) -> Result<BlockSize, ControlError> {
    let head = Direct::open(backing).and_then(|mut device| device.read(0, HEAD));
    let head = head.map_err(|error| {
        ControlError::environment(format!("backing device {name} cannot be read: {error}"))
    })?;
    Ok(blocks_for(&head))
}

/// What tells a device from others under the same name.
fn identity(backing: &dyn Opener, text: &str) -> Identity {
    let spec: Option<Spec> = text.parse().ok();
    let paths = spec.as_ref().map(Spec::paths).unwrap_or_default();
    let of_paths: Vec<String> = paths.into_iter().filter_map(identity_of).collect();
    identity_by(of_paths, backing)
}

fn identity_by(of_paths: Vec<String>, backing: &dyn Opener) -> Identity {
    let joined = |names: &[String]| (!names.is_empty()).then(|| names.join("; "));
    let of_itself = backing.names();
    let whole = joined(&[of_paths.as_slice(), &of_itself].concat());
    let identity = Identity::new(backing.geometry().bytes(), whole);
    match of_itself.is_empty() {
        true => identity,
        // Programs before have asked no device for its name.
        false => identity.known_before_as(joined(&of_paths)),
    }
}

impl PoolManager {
    /// Opens the device that is to be cached, or is, as the size that is known of it needs. Nothing is made, and one in
    /// use is refused.
    pub(super) fn open_backing(
        &self,
        text: &str,
        known: Option<CacheLayout>,
    ) -> Result<Arc<dyn Opener>, ControlError> {
        let mut spec: Spec = text.parse().map_err(|error| device_error(&error))?;
        let mut shared = false;
        spec.each_file(&mut |file| {
            file.known = true;
            shared |= file.share;
        });
        if shared {
            return Err(ControlError::usage(format!(
                "backing device {text}: what something else writes there, a cache does not notice. Name it without share=on"
            )));
        }
        for path in spec.paths() {
            let found = find_use(path).map_err(|error| device_error(&error))?;
            let Some(found) = found else { continue };
            let what = format!("backing device {} {found}", path.display());
            return Err(match found.kind {
                FindingKind::Partitions => ControlError::usage(format!("{what}: name one of them")),
                FindingKind::NotStorage => ControlError::usage(what),
                _ => ControlError::conflict(what),
            });
        }
        let opened = match known.is_some_and(CacheLayout::has_part) {
            true => (self.open_device)(&spec, BlockSize::B512),
            false => open_whole(|block| (self.open_device)(&spec, block)),
        };
        let opener = opened.map_err(|error| {
            let mut error = device_error(&error);
            error.message = format!("backing device {}", error.message);
            error
        })?;
        let bytes = opener.geometry().bytes();
        if bytes < LEAST_BACKING {
            return Err(ControlError::usage(format!(
                "backing device {text} has {bytes} bytes: too small to be cached, {LEAST_BACKING} are the least"
            )));
        }
        Ok(opener)
    }

    pub(super) fn make_cache(&self, request: &CreateCache) -> Result<VolumeStatus, ControlError> {
        let mut pools = self.lock();
        let pool = live(&pools, &request.pool)?;
        let view = pool.link.view().map_err(engine)?;
        let taken = |volume: &VolumeInfo| volume.name == request.name && !volume.deleting;
        if view.status.volumes.iter().any(taken) {
            return Err(ControlError::conflict(format!(
                "there is a volume {}/{} already",
                request.pool, request.name
            )));
        }
        self.refuse_drives_in_use(&pools, std::slice::from_ref(&request.backing))?;
        let backing = self.open_backing(&request.backing, None)?;
        let layout = CacheLayout::of_bytes(backing.geometry().bytes());
        let drives = view
            .status
            .members
            .iter()
            .filter(|member| member.in_service);
        let usual = LayoutSpec::Mirror {
            copies: drives.count().min(2) as u8,
        };
        let kept_as = super::volumes::layout(request.layout.unwrap_or(usual), 1)?;
        let least = (LEAST_ROOM as f64 / SHARE_OF_ROOM) as u64;
        let needed = request.cache_bytes.unwrap_or(0).max(least);
        let class = request.class.map(stored_class);
        let plan = VolumePlan {
            name: request.name.clone(),
            uuid: Uuid::new_v4(),
            granules: layout.fast_granules(),
            layout: kept_as,
            grain: Some(Grain::K8),
            stops: false,
            class: class.or_else(|| fastest(&view.status.members, kept_as, needed)),
            is_cache: true,
            hot: None,
        };
        let list = HostList {
            hosts: request.allow_hosts.clone(),
            any_host: request.allow_any_host,
        };
        let access = VolumeAccess::new(pool.id, plan.uuid, list);
        let link = pool.link.clone();
        let volume = self.make_fast(&link, plan, &request.pool, &access)?;
        let begun = self.begin_cache(&link, &volume, request, layout, backing);
        let made = begun.and_then(|(header, opened)| {
            if let Some(Kept::Live(pool)) = pools.get_mut(&request.pool) {
                self.serve_cache(pool, &volume, opened, Some(&access))?;
                if let Some(cached) = pool.caches.get_mut(&volume.number) {
                    cached.header = Some(header);
                }
            }
            Ok(())
        });
        if let Err(error) = made {
            let volume = volume.number;
            let deleted = link.manage(Manage::DeleteVolume { volume });
            deleted.map_err(engine)?;
            self.state
                .update(|state| state.forget_volume(access.pool, access.volume))?;
            return Err(error);
        }
        let pool = live(&pools, &request.pool)?;
        self.status_of(pool, &request.pool, &request.name)
    }

    /// Makes the volume of a pool that is to cache. Who may connect is remembered before.
    fn make_fast(
        &self,
        link: &PoolLink,
        plan: VolumePlan,
        pool: &str,
        access: &VolumeAccess,
    ) -> Result<CacheVolume, ControlError> {
        self.state
            .update(|state| state.put_volume(access.clone()))?;
        let (uuid, name) = (plan.uuid, format!("{pool}/{}", plan.name));
        let made = link.manage(Manage::CreateVolume(plan)).map_err(engine);
        if let Ok(Managed::Volume(number)) = made {
            return Ok(CacheVolume {
                number,
                uuid,
                name,
                is_untold: false,
            });
        }
        self.state
            .update(|state| state.forget_volume(access.pool, access.volume))?;
        made?;
        Err(ControlError::internal(
            "an answer to another question".to_owned(),
        ))
    }

    /// Puts a new cache on its core; with what it says of itself.
    fn begin_cache(
        &self,
        link: &PoolLink,
        volume: &CacheVolume,
        request: &CreateCache,
        layout: CacheLayout,
        backing: Arc<dyn Opener>,
    ) -> Result<(Header, Opened), ControlError> {
        let bytes = cache_bytes(link, volume, request)?;
        let header = Header {
            cache: volume.uuid,
            layout,
            cache_bytes: bytes.min(layout.granules * GRANULE as u64),
            blocks: match layout.has_part() {
                true => BlockSize::B512,
                false => blocks_of(backing.as_ref(), &request.backing)?,
            },
            mode: mode_of(request.mode),
            mark: Mark::Off,
            head_crc: None,
            marked: None,
            is_untold: false,
            identity: Some(identity(backing.as_ref(), &request.backing)),
            backing: request.backing.clone(),
        };
        let opened = self.settle_cache(link, volume, Start::New(header.clone()), backing)?;
        Ok((header, opened))
    }

    /// Puts a cache on its core and waits until it serves.
    fn settle_cache(
        &self,
        link: &PoolLink,
        volume: &CacheVolume,
        start: Start,
        backing: Arc<dyn Opener>,
    ) -> Result<Opened, ControlError> {
        let fast =
            VolumeOpener::new(link.clone(), volume.number, volume.name.clone()).map_err(engine)?;
        let (sender, receiver) = channel();
        let make = Box::new(move |reactor: &Handle| {
            let (settled, geometry) = Settled::settle(start, &*fast, &*backing, reactor)?;
            let gone = |_| IoError::new(ErrorKind::Internal, "nothing waits for the cache");
            sender.send((settled.link(), geometry)).map_err(gone)?;
            Ok(Box::new(settled) as Box<dyn Resident>)
        });
        self.target
            .settle_in(CORE, &resident_name(volume.uuid), make)
            .map_err(served)?;
        let (link, geometry) = receiver
            .recv()
            .map_err(|_| ControlError::internal("the cache's core said nothing".to_owned()))?;
        if let Err(error) = link.await_opened() {
            self.unsettle_cache(volume.uuid, &link)?;
            return Err(match error.kind() {
                ErrorKind::InvalidRequest => ControlError::refused(error.context().to_owned()),
                _ => engine(error),
            });
        }
        Ok(Opened { link, geometry })
    }

    /// Takes a cache off its core.
    pub(super) fn unsettle_cache(&self, uuid: Uuid, link: &CacheLink) -> Result<(), ControlError> {
        if !link.rest_within(REST_WAIT) {
            let seconds = REST_WAIT.as_secs();
            warn!(cache = %uuid, "cache {uuid}: a device has not answered for {seconds} s");
        }
        self.target.move_out(&resident_name(uuid)).map_err(served)
    }

    /// Waits a while for backing devices of a pool that answer nothing. What one has may still change it when another
    /// node, or another pool, has it.
    ///
    /// # Errors
    /// Environment: one does not answer.
    pub(super) fn await_backing(&self, name: &str) -> Result<(), ControlError> {
        let caches: Vec<(String, CacheLink)> = {
            let pools = self.lock();
            let Some(Kept::Live(pool)) = pools.get(name) else {
                return Ok(());
            };
            let known = |cached: &Cached| {
                Some((
                    cached.header.as_ref()?.backing.clone(),
                    cached.link.clone()?,
                ))
            };
            pool.caches.values().filter_map(known).collect()
        };
        for (device, link) in caches {
            // One that is not in service has nothing under way.
            while let Ok(CacheView { silent, .. }) = link.view() {
                if silent >= REST_WAIT {
                    return Err(ControlError::environment(format!(
                        "pool {name} stays in service: device {device} has not answered what it was asked for {} s, \
                         which may still change it when something else has it. Try again when it answers; --force \
                         lets the pool go all the same",
                        silent.as_secs()
                    )));
                }
                if silent < STILL_ANSWERS {
                    break;
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
        Ok(())
    }

    /// Takes all of a pool's caches off the core. Hosts must be gone.
    pub(super) fn unsettle_caches(&self, pool: &LivePool) {
        for cached in pool.caches.values() {
            if let Some(link) = &cached.link
                && let Err(error) = self.unsettle_cache(cached.uuid, link)
            {
                error!(cache = %cached.uuid, "cache {}: {}", cached.uuid, error.message);
            }
        }
    }

    /// Lets hosts connect to a cache. One that they cannot connect to is taken off its core.
    fn serve_cache(
        &self,
        pool: &mut LivePool,
        volume: &CacheVolume,
        opened: Opened,
        access: Option<&VolumeAccess>,
    ) -> Result<(), ControlError> {
        let Opened { link, geometry } = opened;
        let opener = Arc::new(CacheOpener {
            link: link.clone(),
            name: volume.name.clone(),
            geometry,
        });
        let exported = self.export(Offered {
            name: &volume.name,
            uuid: volume.uuid,
            opener,
            access,
            shared: None,
        });
        if exported.is_err() {
            self.unsettle_cache(volume.uuid, &link)?;
        }
        pool.volumes.insert(volume.number, exported?);
        let cached = Cached {
            uuid: volume.uuid,
            header: None,
            link: Some(link),
            why: None,
        };
        pool.caches.insert(volume.number, cached);
        Ok(())
    }

    /// Takes up a cache that a pool holds. What prevents it is kept with it, loudly: the pool's other volumes must
    /// not wait for it.
    pub(super) fn take_up_cache(
        &self,
        pool: &mut LivePool,
        volume: &CacheVolume,
        request: &ReopenCache,
    ) {
        let mut header = None;
        let state = self.state.read();
        let access = state.access(pool.id, volume.uuid);
        let (name, expected) = (&volume.name, resident_name(volume.uuid));
        let outcome = self
            .reopened(&pool.link, volume, request, &mut header)
            .and_then(|opened| self.serve_cache(pool, volume, opened, access));
        match outcome {
            Ok(()) => {
                if let Some(cached) = pool.caches.get_mut(&volume.number) {
                    cached.header = header;
                }
                self.target.target().expect_no_more(&expected);
                info!(volume = name, "volume {name} caches again");
            }
            Err(error) => {
                let why = error.message;
                error!(volume = name, "volume {name} is not in service: {why}");
                let nqn = super::serve::nqn(volume.uuid);
                self.target.target().expect(&expected, vec![nqn]);
                let cached = Cached {
                    uuid: volume.uuid,
                    header,
                    link: None,
                    why: Some(why),
                };
                pool.caches.insert(volume.number, cached);
            }
        }
    }

    fn reopened(
        &self,
        link: &PoolLink,
        volume: &CacheVolume,
        request: &ReopenCache,
        found: &mut Option<Header>,
    ) -> Result<Opened, ControlError> {
        let fast =
            VolumeOpener::new(link.clone(), volume.number, volume.name.clone()).map_err(engine)?;
        let header = read_header(fast.as_ref()).map_err(engine)?;
        *found = Some(header.clone());
        let text = request.backing.as_deref().unwrap_or(&header.backing);
        let backing = self.open_backing(text, Some(header.layout))?;
        let start = Start::Known {
            id: volume.uuid,
            layout: header.layout,
            blocks: header.blocks,
            backing: text.to_owned(),
            identity: identity(backing.as_ref(), text),
            is_untold: volume.is_untold,
            other: match (request.other_device, request.accept_data_loss) {
                (true, true) => Other::Believed,
                (true, false) => Other::TakenUp,
                (false, _) => Other::Refused,
            },
        };
        self.settle_cache(link, volume, start, backing)
    }

    /// A volume that caches.
    pub(super) fn find_cache(
        &self,
        pool: &LivePool,
        name: &VolumeName,
    ) -> Result<VolumeInfo, ControlError> {
        let (volume, _) = self.find(pool, name)?;
        match volume.is_cache && !volume.deleting {
            true => Ok(volume),
            false => Err(ControlError::conflict(format!(
                "volume {name} caches nothing"
            ))),
        }
    }

    pub(super) fn write_back(&self, name: &VolumeName) -> Result<FlushReply, ControlError> {
        let link = {
            let pools = self.lock();
            let pool = live(&pools, &name.pool)?;
            let number = self.find_cache(pool, name)?.number;
            link_of(pool, number, name)?
        };
        // Without the lock: it may take long.
        let done = link.flush_within(FLUSH_WAIT).map_err(|error| {
            ControlError::environment(format!("the flush of volume {name} failed: {error}"))
        })?;
        let volume = self.one_volume(name)?;
        Ok(FlushReply { done, volume })
    }

    pub(super) fn reopen_cache(
        &self,
        name: &VolumeName,
        request: &ReopenCache,
    ) -> Result<VolumeStatus, ControlError> {
        let mut pools = self.lock();
        let pool = live(&pools, &name.pool)?;
        let info = self.find_cache(pool, name)?;
        let mut volume = CacheVolume::of(&info, &name.pool);
        if let Ok(link) = link_of(pool, info.number, name) {
            let view = link.view().map_err(engine)?;
            volume.is_untold = view.status.is_untold;
            let is_served = pool.volumes.contains_key(&info.number);
            let in_order = view.status.failure.is_none() && view.status.trouble.is_none();
            if in_order && is_served {
                return match (&request.backing, request.other_device) {
                    (None, false) => self.status_of(pool, &name.pool, &name.name),
                    _ => Err(ControlError::conflict(format!(
                        "volume {name} is in service with its backing device"
                    ))),
                };
            }
            self.expect_volumes_of(Some(pool.id));
            self.take_out_cache(&mut pools, name, &volume)?;
        }
        if let Some(Kept::Live(pool)) = pools.get_mut(&name.pool) {
            self.take_up_cache(pool, &volume, request);
            self.target.target().expect_no_more(&pool.id.to_string());
            let why = pool.caches.get(&info.number);
            if let Some(why) = why.and_then(|cached| cached.why.clone()) {
                return Err(ControlError::environment(why));
            }
        }
        self.status_of(live(&pools, &name.pool)?, &name.pool, &name.name)
    }

    /// Takes a cache away from hosts and off its core.
    ///
    /// # Errors
    /// Environment: a request is still with a device. It could reach that after what another life of the cache writes
    /// there: this one is kept until it is answered.
    pub(super) fn take_out_cache(
        &self,
        pools: &mut std::collections::BTreeMap<String, Kept>,
        name: &VolumeName,
        volume: &CacheVolume,
    ) -> Result<(), ControlError> {
        let Some(Kept::Live(pool)) = pools.get_mut(&name.pool) else {
            return Ok(());
        };
        let why = super::Dismissal::ForNow(format!("volume {name} is taken out of service"));
        self.withdraw(pool, volume.number, why)?;
        let Some(cached) = pool.caches.get_mut(&volume.number) else {
            return Ok(());
        };
        let Some(link) = &cached.link else {
            return Ok(());
        };
        if !link.rest_within(REST_WAIT) {
            return Err(ControlError::environment(format!(
                "volume {name}: a device has not answered a request for {} s, which may still change it: try again \
                 when it answers, or restart the daemon when the device is gone",
                REST_WAIT.as_secs()
            )));
        }
        cached.link = None;
        self.target
            .move_out(&resident_name(volume.uuid))
            .map_err(served)
    }

    pub(super) fn newer_in_cache(&self, name: &VolumeName) -> Result<NewerData, ControlError> {
        let (link, fast) = {
            let pools = self.lock();
            let pool = live(&pools, &name.pool)?;
            let number = self.find_cache(pool, name)?.number;
            let fast = VolumeOpener::new(pool.link.clone(), number, name.to_string());
            (link_of(pool, number, name).ok(), fast.map_err(engine)?)
        };
        let ranges = match link {
            Some(link) => link.newer(),
            // As the pool has it: its pages of bits.
            None => newer_on(fast.as_ref()),
        };
        Ok(NewerData::of(&ranges.map_err(engine)?))
    }
}

fn newer_on(fast: &dyn Opener) -> Result<Vec<(u64, u64)>, IoError> {
    let header = read_header(fast)?;
    let layout = header.layout;
    let mut device = Direct::open(fast)?;
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (page, at) in layout.page_granules().enumerate() {
        let bytes = device.read(at, 1)?;
        ranges.extend(CacheLayout::newer_in(page as u64, &bytes)?);
    }
    Ok(layout.clip(ranges))
}

/// A cache that is in service.
pub(super) fn link_of(
    pool: &LivePool,
    number: u32,
    name: &VolumeName,
) -> Result<CacheLink, ControlError> {
    let cached = pool.caches.get(&number);
    let why = || {
        let why = cached.and_then(|cached| cached.why.clone());
        let why = why.unwrap_or_else(|| "it was never finished".to_owned());
        ControlError::environment(format!("volume {name} is not in service: {why}"))
    };
    cached
        .and_then(|cached| cached.link.clone())
        .ok_or_else(why)
}

/// What a pool can take of a volume's homes. Those of its grain may not be there yet; others of its layout and class
/// have the same room then.
pub(super) fn room_for(volume: &VolumeInfo, view: &View) -> u64 {
    let homes = view.status.homes.iter();
    let homes = homes.filter(|home| home.hot_of.is_none());
    let like = homes.filter(|home| home.layout == volume.layout && home.class == volume.class);
    let exact = like.clone().find(|home| Some(home.grain) == volume.grain);
    exact.or_else(|| like.clone().next()).map_or(0, room_of)
}

/// How much is cached: what was said, or what the pool has room for.
fn cache_bytes(
    link: &PoolLink,
    volume: &CacheVolume,
    request: &CreateCache,
) -> Result<u64, ControlError> {
    let view = link.view().map_err(engine)?;
    let mut volumes = view.status.volumes.iter();
    let info = volumes.find(|info| info.number == volume.number);
    let room = info.map_or(0, |info| room_for(info, &view));
    let most = (room as f64 * SHARE_OF_ROOM) as u64 / GRANULE as u64 * GRANULE as u64;
    let wanted = request.cache_bytes.unwrap_or(most);
    if wanted > room || most < LEAST_ROOM {
        return Err(ControlError::environment(format!(
            "pool {} has room for a cache of {}, not of {}: `pool add` a drive, or say a smaller --cache",
            request.pool,
            readable_bytes(room),
            readable_bytes(wanted.max(LEAST_ROOM))
        )));
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use ashlar_block::{BlockDevice, Description};

    use super::*;

    /// A device that says what names it.
    struct Named(Vec<String>);

    impl Opener for Named {
        fn geometry(&self) -> Geometry {
            Geometry::plain(BlockSize::B4096, 10)
        }

        fn open(&self, _: &Handle) -> Result<Box<dyn BlockDevice>, IoError> {
            Err(IoError::new(ErrorKind::Internal, "not opened"))
        }

        fn describe(&self) -> Description {
            Description::leaf("named")
        }

        fn names(&self) -> Vec<String> {
            self.0.clone()
        }
    }

    #[test]
    fn a_remote_device_is_known_by_what_it_says() {
        const URL: &str = "nvme-tcp://127.0.0.1:4420/nqn.2026-01.x:y";
        let known = |names: &[&str]| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            identity(&Named(names), URL).to_string()
        };
        assert_eq!(known(&[]), "one of 40960 bytes that nothing names");
        assert_eq!(
            known(&["uuid 1", "uuid 2"]),
            "one of 40960 bytes, uuid 1; uuid 2"
        );
        let local = || Some("WWN 1".to_owned());
        let mixed = identity_by(
            local().into_iter().collect(),
            &Named(vec!["uuid 1".to_owned()]),
        );
        let whole = Identity::new(40960, Some("WWN 1; uuid 1".to_owned()));
        assert_eq!(mixed, whole.known_before_as(local()));
    }
}
