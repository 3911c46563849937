use std::time::Duration;

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use serde::Serialize;

use super::{Labels, Metric, replicas};
use crate::model::{
    DriveState, DriveStatus, IoCounters, MetricsSnapshot, PoolCounters, PoolState, PoolStatus,
    VolumeMetrics, VolumeState, VolumeStats,
};
use crate::model::{ServiceState, ServiceStatus};

/// Everything, from one snapshot.
pub(super) fn all(snapshot: &MetricsSnapshot, uptime: Duration) -> Vec<Metric> {
    let mut out = vec![
        gauge("ashlar_build_info", "The program", None)
            .with([(label([("version", env!("CARGO_PKG_VERSION"))]), 1.0)]),
        gauge(
            "ashlar_uptime",
            "Time since the daemon started",
            Some(Unit::Seconds),
        )
        .with([(Labels::new(), uptime.as_secs_f64())]),
    ];
    out.extend(pools(&snapshot.pools));
    out.extend(pool_counters(&snapshot.pools));
    out.extend(drives(&snapshot.pools));
    out.extend(volumes(&snapshot.volumes));
    out.extend(volume_counters(&snapshot.volumes));
    if let Some(cluster) = &snapshot.cluster {
        out.extend(replicas::all(cluster, &snapshot.volumes));
    }
    out
}

/// What there is to tell of services.
pub(super) fn services(services: &[ServiceStatus]) -> Vec<Metric> {
    let of = |metric: Metric, value: fn(&ServiceStatus) -> Option<f64>| {
        metric.with(services.iter().filter_map(|one| {
            let labels = label([("service", one.service.name.as_str())]);
            value(one).map(|value| (labels, value))
        }))
    };
    let seconds = || Some(Unit::Seconds);
    vec![
        of(
            gauge(
                "ashlar_service_running",
                "Whether it runs here and is ready",
                None,
            ),
            |one| Some(f64::from(u8::from(one.state == ServiceState::Running))),
        ),
        of(
            gauge("ashlar_service_since", "Time in its state", seconds()),
            |one| Some(one.since_seconds),
        ),
        of(
            gauge(
                "ashlar_service_last_gap",
                "From its last failure until it was ready again",
                seconds(),
            ),
            |one| one.last_gap_seconds,
        ),
        of(
            counter("ashlar_service_starts", "How often it was started", None),
            |one| Some(one.starts as f64),
        ),
        of(
            counter("ashlar_service_failures", "How often it failed", None),
            |one| Some(one.failures as f64),
        ),
        of(
            counter("ashlar_service_moves", "Changes of its owner", None),
            |one| Some(one.moves as f64),
        ),
    ]
}

pub(super) fn gauge(name: &'static str, help: &'static str, unit: Option<Unit>) -> Metric {
    let samples = Vec::new();
    Metric {
        name,
        help,
        unit,
        kind: MetricType::Gauge,
        samples,
    }
}

fn ratio() -> Option<Unit> {
    Some(Unit::Other("ratio".into()))
}

pub(super) fn counter(name: &'static str, help: &'static str, unit: Option<Unit>) -> Metric {
    Metric {
        kind: MetricType::Counter,
        ..gauge(name, help, unit)
    }
}

impl Metric {
    pub(super) fn with(mut self, samples: impl IntoIterator<Item = (Labels, f64)>) -> Self {
        self.samples.extend(samples);
        self
    }
}

pub(super) fn label<const N: usize>(pairs: [(&'static str, &str); N]) -> Labels {
    pairs.map(|(key, value)| (key, value.to_owned())).into()
}

/// The word that stands for a value in JSON, which is the label's too.
pub(super) fn word(value: impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

/// One series for each state there is: 1 for the one that holds.
pub(super) fn states<S: Serialize + PartialEq + Copy>(
    all: &[S],
    now: S,
    labels: &Labels,
) -> impl Iterator<Item = (Labels, f64)> {
    all.iter().map(move |state| {
        let mut labels = labels.clone();
        labels.push(("state", word(state)));
        (labels, f64::from(u8::from(*state == now)))
    })
}

fn pools(pools: &[PoolStatus]) -> Vec<Metric> {
    let of = |pool: &PoolStatus| label([("pool", &pool.name)]);
    let bytes = |name, help, value: fn(&PoolStatus) -> u64| {
        gauge(name, help, Some(Unit::Bytes))
            .with(pools.iter().map(|pool| (of(pool), value(pool) as f64)))
    };
    let kinds = [PoolState::Healthy, PoolState::Degraded, PoolState::Failed];
    vec![
        gauge("ashlar_pool_state", "1 for the state the pool is in", None).with(
            pools
                .iter()
                .flat_map(|pool| states(&kinds, pool.state, &of(pool)).collect::<Vec<_>>()),
        ),
        bytes("ashlar_pool_raw", "Raw space of all drives", |p| {
            p.space.raw_bytes
        }),
        bytes(
            "ashlar_pool_advertised",
            "User data that the pool promises to hold",
            |p| p.space.advertised_bytes,
        ),
        bytes("ashlar_pool_used", "User data held", |p| p.space.used_bytes),
        bytes(
            "ashlar_pool_free",
            "User data that can still be written",
            |p| p.space.advertised_bytes.saturating_sub(p.space.used_bytes),
        ),
        bytes("ashlar_pool_provisioned", "Sizes of all volumes", |p| {
            p.space.provisioned_bytes
        }),
        bytes("ashlar_pool_reserved", "Raw space kept back", |p| {
            p.space.reserved_bytes
        }),
        gauge("ashlar_pool_log_fill", "How full a log is, 0 to 1", ratio()).with(
            pools.iter().flat_map(|pool| {
                let fill = pool.log_fill;
                [("data_ring", fill.data_ring), ("map_log", fill.map_log)]
                    .map(|(log, fill)| (label([("pool", &pool.name), ("log", log)]), fill))
            }),
        ),
        gauge(
            "ashlar_pool_work_progress",
            "How far background work is, 0 to 1",
            ratio(),
        )
        .with(pools.iter().flat_map(work)),
    ]
}

fn work(pool: &PoolStatus) -> impl Iterator<Item = (Labels, f64)> {
    pool.work.iter().map(|work| {
        let subject = work.subject.as_deref().unwrap_or_default();
        let labels = [
            ("pool", pool.name.as_str()),
            ("what", &word(work.what)),
            ("subject", subject),
        ];
        (label(labels), work.progress)
    })
}

fn pool_counters(pools: &[PoolStatus]) -> Vec<Metric> {
    let bytes = |name, help, value: fn(&PoolCounters) -> u64| {
        counter(name, help, Some(Unit::Bytes)).with(
            pools
                .iter()
                .map(|pool| (label([("pool", &pool.name)]), value(&pool.counters) as f64)),
        )
    };
    vec![
        bytes("ashlar_pool_user_read", "Read by hosts", |c| {
            c.user_read_bytes
        }),
        bytes("ashlar_pool_user_written", "Written by hosts", |c| {
            c.user_written_bytes
        }),
        bytes("ashlar_pool_device_read", "Read from drives", |c| {
            c.device_read_bytes
        }),
        bytes("ashlar_pool_device_written", "Written to drives", |c| {
            c.device_written_bytes
        }),
        bytes("ashlar_pool_bad_copy", "Copies that did not verify", |c| {
            c.bad_copy_bytes
        }),
        bytes("ashlar_pool_repaired", "Bad copies written again", |c| {
            c.repaired_bytes
        }),
        bytes("ashlar_pool_lost", "Data without any good copy", |c| {
            c.lost_bytes
        }),
        counter("ashlar_pool_scrubs", "Scrubs that reached the end", None).with(
            pools
                .iter()
                .map(|p| (label([("pool", &p.name)]), p.counters.scrubs as f64)),
        ),
    ]
}

fn drives(pools: &[PoolStatus]) -> Vec<Metric> {
    let each = || {
        pools
            .iter()
            .flat_map(|pool| pool.drives.iter().map(move |drive| (pool, drive)))
    };
    let of = |pool: &PoolStatus, drive: &DriveStatus| {
        let id = drive.id.to_string();
        label([("pool", &pool.name), ("drive", &id), ("spec", &drive.spec)])
    };
    let kinds = [
        DriveState::Online,
        DriveState::Evacuating,
        DriveState::Missing,
        DriveState::Failed,
    ];
    vec![
        gauge(
            "ashlar_drive_state",
            "1 for the state the drive is in",
            None,
        )
        .with(each().flat_map(|(p, d)| states(&kinds, d.state, &of(p, d)).collect::<Vec<_>>())),
        gauge(
            "ashlar_drive_size",
            "What the pool uses of the drive",
            Some(Unit::Bytes),
        )
        .with(each().map(|(p, d)| (of(p, d), d.bytes as f64))),
        gauge(
            "ashlar_drive_used",
            "What is allocated on the drive",
            Some(Unit::Bytes),
        )
        .with(each().map(|(p, d)| (of(p, d), d.used_bytes as f64))),
        counter("ashlar_drive_errors", "Errors of the drive", None).with(each().flat_map(
            |(pool, drive)| {
                let errors = drive.errors;
                let kinds = [
                    ("read", errors.read),
                    ("write", errors.write),
                    ("checksum", errors.checksum),
                ];
                kinds.map(|(kind, count)| {
                    let mut labels = of(pool, drive);
                    labels.push(("kind", kind.into()));
                    (labels, count as f64)
                })
            },
        )),
    ]
}

pub(super) fn of_volume(volume: &VolumeMetrics) -> Labels {
    label([
        ("pool", &volume.status.pool),
        ("volume", &volume.status.name),
    ])
}

fn volumes(volumes: &[VolumeMetrics]) -> Vec<Metric> {
    let plain = |name, help, unit, value: fn(&VolumeMetrics) -> u64| {
        gauge(name, help, unit).with(
            volumes
                .iter()
                .map(|volume| (of_volume(volume), value(volume) as f64)),
        )
    };
    let kinds = [
        VolumeState::Online,
        VolumeState::Degraded,
        VolumeState::Stopped,
        VolumeState::Failed,
        VolumeState::Deleting,
    ];
    let bytes = || Some(Unit::Bytes);
    vec![
        gauge(
            "ashlar_volume_state",
            "1 for the state the volume is in",
            None,
        )
        .with(volumes.iter().flat_map(|volume| {
            states(&kinds, volume.status.state, &of_volume(volume)).collect::<Vec<_>>()
        })),
        plain("ashlar_volume_size", "Size of the volume", bytes(), |v| {
            v.status.bytes
        }),
        plain("ashlar_volume_used", "User data held", bytes(), |v| {
            v.status.used_bytes
        }),
        plain(
            "ashlar_volume_connected_hosts",
            "Hosts that are connected",
            None,
            |v| v.status.connected_hosts.len() as u64,
        ),
        plain("ashlar_volume_in_flight", "Commands under way", None, |v| {
            v.stats.in_flight
        }),
    ]
}

fn volume_counters(volumes: &[VolumeMetrics]) -> Vec<Metric> {
    let by_operation = |name, help, unit, value: fn(&IoCounters) -> f64| {
        counter(name, help, unit).with(volumes.iter().flat_map(move |volume| {
            operations(&volume.stats).map(|(operation, counters)| {
                let mut labels = of_volume(volume);
                labels.push(("operation", operation.into()));
                (labels, value(&counters))
            })
        }))
    };
    vec![
        by_operation(
            "ashlar_volume_operations",
            "Commands that ended",
            None,
            |c| c.operations as f64,
        ),
        by_operation(
            "ashlar_volume_transferred",
            "Bytes moved or covered",
            Some(Unit::Bytes),
            |c| c.bytes as f64,
        ),
        by_operation("ashlar_volume_errors", "Commands that failed", None, |c| {
            c.errors as f64
        }),
        by_operation(
            "ashlar_volume_latency",
            "Time from a command's arrival to its end, added up",
            Some(Unit::Seconds),
            |c| c.latency_total_us as f64 / 1e6,
        ),
    ]
}

fn operations(stats: &VolumeStats) -> [(&'static str, IoCounters); 4] {
    [
        ("read", stats.read),
        ("write", stats.write),
        ("flush", stats.flush),
        ("deallocate", stats.deallocate),
    ]
}
