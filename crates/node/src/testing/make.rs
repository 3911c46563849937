use uuid::Uuid;

use crate::model::{
    CacheRule, CacheStatus, CreateCache, CreatePool, CreateVolume, DriveClass, DriveErrors,
    DriveState, DriveStatus, LayoutSpec, LayoutStatus, LogFill, PoolCounters, PoolState,
    PoolStatus, PutRule, Reserve, SpaceStatus, Survives, VolumeState, VolumeStatus, WorkKind,
    WorkState, WorkStatus,
};

const DRIVE_BYTES: u64 = 64 << 30;

/// The same things have the same identities in every test.
fn id(text: &str) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_URL, text.as_bytes())
}

pub(super) fn pool(request: &CreatePool) -> PoolStatus {
    let mut pool = PoolStatus {
        name: request.name.clone(),
        id: id(&request.name),
        state: PoolState::Healthy,
        reason: None,
        drives: request.drives.iter().map(|spec| drive(spec)).collect(),
        space: SpaceStatus {
            raw_bytes: 0,
            advertised_bytes: 0,
            used_bytes: 0,
            provisioned_bytes: 0,
            reserved_bytes: 0,
            reserves: Vec::new(),
            repair_reserve: request.reserve,
            efficiency_with_reserves: 0.0,
            efficiency_without_reserves: 0.0,
        },
        layouts: Vec::new(),
        work: Vec::new(),
        log_fill: LogFill {
            data_ring: 0.25,
            map_log: 0.0,
        },
        features: Vec::new(),
        counters: PoolCounters::default(),
        lost: Vec::new(),
        warnings: Vec::new(),
    };
    recount(&mut pool);
    pool
}

/// What follows from the drives.
pub(super) fn recount(pool: &mut PoolStatus) {
    let raw_bytes: u64 = pool.drives.iter().map(|drive| drive.bytes).sum();
    let reserved_bytes = if pool.drives.len() > 2 {
        DRIVE_BYTES
    } else {
        0
    };
    let usable = raw_bytes - reserved_bytes;
    let texts = [
        "mirror:1",
        "mirror:2",
        "mirror:3",
        "parity:2+1",
        "parity:4+1",
        "stripe",
    ];
    let layouts = texts.iter().filter_map(|text| text.parse().ok());
    let possible = layouts.filter(|layout: &LayoutSpec| layout.min_drives() <= pool.drives.len());
    pool.layouts = possible
        .map(|layout| {
            let advertised_bytes = (usable as f64 * layout.efficiency(None)) as u64;
            let grain = layout.default_grain();
            LayoutStatus {
                layout,
                class: None,
                grain_bytes: grain.map_or(0, |grain| grain.bytes() as u32),
                advertised_bytes,
                free_bytes: advertised_bytes,
                efficiency_with_reserves: advertised_bytes as f64 / raw_bytes as f64,
                efficiency_without_reserves: layout.efficiency(None),
                survives: Survives::by(layout),
            }
        })
        .collect();
    let default = pool.layouts.get(1).or(pool.layouts.first());
    let (advertised, with, without) = default.map_or((0, 0.0, 0.0), |layout| {
        (
            layout.advertised_bytes,
            layout.efficiency_with_reserves,
            layout.efficiency_without_reserves,
        )
    });
    pool.space = SpaceStatus {
        raw_bytes,
        advertised_bytes: advertised,
        reserved_bytes,
        reserves: vec![Reserve {
            purpose: "repair".into(),
            bytes: reserved_bytes,
        }],
        efficiency_with_reserves: with,
        efficiency_without_reserves: without,
        ..pool.space
    };
}

pub(super) fn drive(spec: &str) -> DriveStatus {
    DriveStatus {
        spec: spec.into(),
        id: id(spec),
        class: Some(match spec.contains("class=hdd") {
            true => DriveClass::Hdd,
            false => DriveClass::Nvme,
        }),
        state: DriveState::Online,
        reason: None,
        bytes: DRIVE_BYTES,
        used_bytes: 0,
        errors: DriveErrors::default(),
        slow_requests: 0,
        silent_seconds: None,
        unmatched_bytes: 0,
    }
}

pub(super) fn work(what: WorkKind, subject: &str) -> WorkStatus {
    WorkStatus {
        what,
        subject: Some(subject.into()),
        state: WorkState::Running,
        reason: None,
        progress: 0.5,
        eta_seconds: Some(90),
    }
}

pub(super) fn volume(request: CreateVolume) -> VolumeStatus {
    let name = format!("{}/{}", request.pool, request.name);
    let logged = !matches!(request.layout, LayoutSpec::Stripe { .. });
    VolumeStatus {
        nqn: format!("nqn.2014-08.org.nvmexpress:uuid:{}", id(&name)),
        nsid: 1,
        uuid: id(&name),
        address: "127.0.0.1:4420".into(),
        pool: request.pool,
        name: request.name,
        layout: request.layout,
        class: request.class,
        bytes: request.bytes,
        used_bytes: 0,
        block_bytes: 4096,
        grain_bytes: request.grain_bytes.unwrap_or_else(|| {
            let grain = request.layout.default_grain();
            grain.map_or(0, |grain| grain.bytes() as u32)
        }),
        atomic_bytes: if logged { 16384 } else { 0 },
        volatile_cache: !logged,
        state: VolumeState::Online,
        reason: None,
        when_degraded: request.when_degraded,
        allow_hosts: request.allow_hosts,
        allow_any_host: request.allow_any_host,
        connected_hosts: Vec::new(),
        tier: None,
        cache: None,
        replication: None,
        warnings: Vec::new(),
    }
}

/// A volume that caches.
pub(super) fn cached(volume: VolumeStatus, request: &CreateCache) -> VolumeStatus {
    let cache = CacheStatus {
        backing: request.backing.clone(),
        mode: request.mode,
        cache_bytes: request.cache_bytes.unwrap_or(volume.bytes),
        cached_bytes: 8192,
        newer_bytes: 4096,
        is_marked: true,
        read_hits: 0,
        read_misses: 0,
        hit_ratio: None,
        written_around: 0,
        written_back_bytes: 0,
        backing_errors: 0,
        memory_bytes: 0,
        unswept_bytes: 0,
    };
    VolumeStatus {
        cache: Some(cache),
        allow_any_host: request.allow_any_host,
        ..volume
    }
}

/// A rule that nothing has met.
pub(super) fn ruled(request: &PutRule) -> CacheRule {
    let ranges = &request.extents.ranges;
    CacheRule {
        exclude: request.exclude.clone(),
        host: request.host.clone(),
        files: request.extents.files,
        bytes: ranges.iter().map(|range| range.bytes).sum(),
        renewed_s: Some(0.0),
        reads: 0,
        writes: 0,
        warning: None,
    }
}
