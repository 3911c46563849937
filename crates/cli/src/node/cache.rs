//! `ashlar cache`, and the parts of `ashlar volume` that are about caches.

use ashlar_device::{Spec, find_use, open_whole};
use ashlar_node::model::{CreateCache, VolumeName, VolumeStatus};

use super::table::bytes;
use super::{Api, size};
use crate::args::{ApiOptions, CacheCommand, CreateVolumeArguments};
use crate::exit::Failure;
use crate::output::print;
use crate::stack;

pub(crate) fn run(command: &CacheCommand) -> Result<(), Failure> {
    match command {
        CacheCommand::GiveUp {
            device,
            accept_data_loss,
        } => give_up(device, *accept_data_loss),
        CacheCommand::Rule(command) => super::cache_rule::run(command),
    }
}

fn give_up(device: &str, accept_data_loss: bool) -> Result<(), Failure> {
    let mut spec: Spec = device.parse()?;
    spec.each_file(&mut |file| file.known = true);
    for path in spec.paths() {
        if let Some(found) = find_use(path)? {
            return Err(Failure::environment(format!("{} {found}", path.display())));
        }
    }
    let opener = open_whole(|block| stack::open(&spec, block))?;
    let mut marked = ashlar_node::MarkedDevice::open(opener.as_ref(), device)?;
    if !accept_data_loss {
        return Err(Failure::usage(format!(
            "{device} has the mark of cache {}: what was newest of it is there. Where its pool still is, `volume reopen` \
             or `volume newer` first; --accept-data-loss takes the mark off, and what only the cache had is lost",
            marked.cache()
        )));
    }
    marked.take_away()?;
    print(&format!(
        "{device} has no mark any more. What only cache {} had is lost: check the file system before it is used\n",
        marked.cache()
    ))
}

/// `volume create --backing`.
pub(super) fn create(arguments: &CreateVolumeArguments, backing: &str) -> Result<(), Failure> {
    let api = Api::new(&arguments.api)?;
    let cache = arguments.cache.cache.as_deref().map(size).transpose()?;
    let request = CreateCache {
        cache_bytes: cache,
        mode: arguments.cache.mode.into(),
        layout: arguments.layout,
        class: arguments.class,
        allow_hosts: arguments.hosts.allow_hosts.clone(),
        allow_any_host: arguments.hosts.allow_any_host,
        ..CreateCache::new(&arguments.volume, api.device(backing)?)
    };
    let volume = api.client.create_cache(&request)?;
    super::volume::tell_of_hosts(&volume);
    api.show(&volume, super::volume::show)
}

/// `volume flush`: asks until it is done.
pub(super) fn flush(volume: &VolumeName, options: &ApiOptions) -> Result<(), Failure> {
    let api = Api::new(options)?;
    loop {
        let reply = api.client.flush_volume(volume)?;
        let left = reply
            .volume
            .cache
            .as_ref()
            .map_or(0, |cache| cache.newer_bytes);
        if reply.done {
            return api.show(&reply.volume, |volume| {
                format!("volume {}/{} is written back\n", volume.pool, volume.name)
            });
        }
        eprintln!("ashlar: {} are not written back yet", bytes(left));
    }
}

/// `volume newer`: a line a range.
pub(super) fn newer(volume: &VolumeName, options: &ApiOptions) -> Result<(), Failure> {
    let api = Api::new(options)?;
    let newer = api.client.newer_data(volume)?;
    api.show(&newer, |newer| {
        let ranges = newer.ranges.iter();
        let mut text: String = ranges
            .map(|range| format!("{} {}\n", range.offset, range.bytes))
            .collect();
        if !newer.is_complete {
            text.push_str("and more\n");
        }
        text.push_str(&format!("{} bytes are only in the cache\n", newer.bytes));
        text
    })
}

/// Lines about what a volume caches.
pub(super) fn lines_of(volume: &VolumeStatus) -> Vec<(&'static str, String)> {
    let Some(cache) = &volume.cache else {
        return Vec::new();
    };
    let reads = cache.read_hits + cache.read_misses;
    let ratio = cache.hit_ratio.map_or_else(
        || "no reads yet".to_owned(),
        |ratio| format!("{:.1} % of {reads} reads", ratio * 100.0),
    );
    let mode = match cache.mode {
        ashlar_node::model::CacheMode::WriteBack => "write-back",
        ashlar_node::model::CacheMode::WriteThrough => "write-through",
        ashlar_node::model::CacheMode::WriteAround => "write-around",
    };
    let marked = match cache.is_marked {
        true => "yes: it cannot be mounted without the cache",
        false => "no: it is as if there were no cache",
    };
    let mut rows = vec![
        ("caches", cache.backing.clone()),
        ("mode", mode.to_owned()),
        (
            "cached",
            format!(
                "{} of {}",
                bytes(cache.cached_bytes),
                bytes(cache.cache_bytes)
            ),
        ),
        ("not written back", bytes(cache.newer_bytes)),
        ("device is marked", marked.to_owned()),
        ("from the cache", ratio),
        ("written around", format!("{} writes", cache.written_around)),
        ("written back", bytes(cache.written_back_bytes)),
        ("memory", bytes(cache.memory_bytes)),
    ];
    if cache.unswept_bytes > 0 {
        rows.push(("left to sweep", bytes(cache.unswept_bytes)));
    }
    rows
}
