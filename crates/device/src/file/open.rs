//! From options to an open, locked, sized and allocated medium, or an error that names the path.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use ashlar_block::{BlockSize, Geometry};
use rustix::fs::{
    FallocateFlags, FileType, Mode, OFlags, SeekFrom, Stat, fallocate, fstat, fstatvfs, ftruncate,
    seek,
};
use rustix::io::Errno;

use super::{FileOptions, Medium, limits, lock};
use crate::guard::find_use;
use crate::size::geometry;
use crate::{OpenError, SizeText};

pub(super) fn open(options: &FileOptions, block_size: BlockSize) -> Result<Medium, OpenError> {
    let name = options.path.display().to_string();
    if let Some(size) = options.size {
        geometry(&name, size, block_size)?;
    }
    let (fd, created) = open_or_create(options, &name)?;
    let opened = prepare(fd, options, block_size, &name);
    if opened.is_err() && created {
        // The error counts; a file left behind by a failed clean-up is empty.
        let _ = fs::remove_file(&options.path);
    }
    opened
}

fn prepare(
    fd: OwnedFd,
    options: &FileOptions,
    block_size: BlockSize,
    name: &str,
) -> Result<Medium, OpenError> {
    let stat = stat(&fd, name)?;
    let block_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
    if !options.unlocked {
        lock::take(&fd, &stat, name, options.share)?;
    }
    let bytes = if block_device {
        device_size(&fd, options.size, name)?
    } else {
        file_size(&fd, options, name)?
    };
    let plain = geometry(name, bytes, block_size)?;
    let memory_align = if options.direct {
        let limits = limits::direct(&fd, block_device, name)?;
        limits::check_block_size(&fd, &limits, block_size, name)?;
        limits.memory
    } else {
        1
    };
    let through = block_device && options.direct;
    let geometry = Geometry {
        volatile_cache: !through || limits::write_cache(&stat),
        deallocates: match block_device {
            true => limits::discards(&stat),
            false => limits::punches_holes(&fd, bytes),
        },
        ..plain
    };
    Ok(Medium {
        in_memory: !block_device && limits::is_in_memory(&fd),
        fd,
        name: name.into(),
        geometry,
        memory_align,
        direct: options.direct,
        block_device,
        latched: AtomicBool::new(false),
        no_zero_range: AtomicBool::new(false),
        no_punch_hole: AtomicBool::new(!geometry.deallocates),
    })
}

fn open_or_create(options: &FileOptions, name: &str) -> Result<(OwnedFd, bool), OpenError> {
    let mut flags = OFlags::RDWR | OFlags::CLOEXEC;
    flags.set(OFlags::DIRECT, options.direct);
    match fs::metadata(&options.path) {
        Ok(metadata) => {
            let kind = FileType::from_raw_mode(mode(&metadata));
            refuse_kind(kind, name)?;
            let claim = kind == FileType::BlockDevice && !options.share && !options.unlocked;
            flags.set(OFlags::EXCL, claim);
            open_with(&options.path, flags, name).map(|fd| (fd, false))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            if options.known {
                let why = "does not exist: it is not made anew, for it held something";
                return Err(OpenError::environment(name, why));
            }
            if options.size.is_none() {
                let path = options.path.display();
                let why = format!(
                    "does not exist; to have it made, give it a size: file:{path}?size=4GiB"
                );
                return Err(OpenError::environment(name, why));
            }
            refuse_missing_parent(&options.path, name)?;
            flags |= OFlags::CREATE | OFlags::EXCL;
            open_with(&options.path, flags, name).map(|fd| (fd, true))
        }
        Err(error) => Err(OpenError::environment(name, "cannot be opened").with_source(error)),
    }
}

fn mode(metadata: &fs::Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(metadata)
}

fn refuse_kind(kind: FileType, name: &str) -> Result<(), OpenError> {
    let what = match kind {
        FileType::RegularFile | FileType::BlockDevice => return Ok(()),
        FileType::Directory => "is a directory",
        FileType::CharacterDevice => "is a character device",
        FileType::Socket => "is a socket",
        FileType::Fifo => "is a pipe",
        _ => "is no file",
    };
    let why = format!("{what}; a file or a block device is needed");
    Err(OpenError::environment(name, why))
}

fn refuse_missing_parent(path: &Path, name: &str) -> Result<(), OpenError> {
    match path.parent() {
        Some(parent) if parent != Path::new("") && !parent.is_dir() => {
            let why = format!("there is no directory {}", parent.display());
            Err(OpenError::environment(name, why))
        }
        _ => Ok(()),
    }
}

fn open_with(path: &Path, flags: OFlags, name: &str) -> Result<OwnedFd, OpenError> {
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|error| {
        let direct = flags.contains(OFlags::DIRECT);
        match error {
            // A file that cannot be opened directly has been created all the same.
            Errno::INVAL if direct => {
                if flags.contains(OFlags::CREATE) {
                    let _ = fs::remove_file(path);
                }
                limits::unsupported(name)
            }
            Errno::BUSY => {
                let error = OpenError::environment(name, in_use(path));
                match lock::is_taken(path) {
                    true => error.by_another(),
                    false => error,
                }
            }
            error => OpenError::environment(name, "cannot be opened").with_source(error),
        }
    })
}

/// Who has a device that the kernel does not give away, as far as that is seen from here.
fn in_use(path: &Path) -> String {
    match find_use(path) {
        Ok(Some(found)) => format!("is in use: it {found}"),
        _ => "is in use: mounted, swapped on, or part of another device".to_owned(),
    }
}

fn stat(fd: impl AsFd, name: &str) -> Result<Stat, OpenError> {
    fstat(fd).map_err(|e| OpenError::environment(name, "cannot be examined").with_source(e))
}

fn contradiction(name: &str, is: u64, asked: u64) -> OpenError {
    let why = format!(
        "has {is} bytes ({}), not the {asked} bytes ({}) asked for",
        SizeText(is),
        SizeText(asked)
    );
    OpenError::environment(name, why)
}

fn device_size(fd: impl AsFd, asked: Option<u64>, name: &str) -> Result<u64, OpenError> {
    let is = seek(fd, SeekFrom::End(0))
        .map_err(|e| OpenError::environment(name, "has no size").with_source(e))?;
    match asked {
        Some(asked) if asked != is => Err(contradiction(name, is, asked)),
        _ => Ok(is),
    }
}

/// The file's size; an empty file gets the size asked for.
fn file_size(fd: impl AsFd, options: &FileOptions, name: &str) -> Result<u64, OpenError> {
    let stat = stat(&fd, name)?;
    let is = stat.st_size as u64;
    let Some(asked) = options.size else {
        if is == 0 {
            let path = options.path.display();
            let why = format!("is empty; give it a size: file:{path}?size=4GiB");
            return Err(OpenError::environment(name, why));
        }
        return Ok(is);
    };
    if is != asked && (is != 0 || options.known) {
        return Err(contradiction(name, is, asked));
    }
    let reserved = match options.allocate {
        true => allocate(&fd, &stat, asked, name),
        false => Ok(()),
    };
    let sized = reserved.and_then(|()| {
        ftruncate(&fd, asked).map_err(|e| {
            let why = format!("cannot be made {} large", SizeText(asked));
            OpenError::environment(name, why).with_source(e)
        })
    });
    if sized.is_err() && is == 0 {
        // Gives back what a failed allocation took; the error counts.
        let _ = ftruncate(&fd, 0);
    }
    sized.map(|()| asked)
}

/// Takes all the space now, so that a full disk is an error at opening and not in a database.
fn allocate(fd: impl AsFd, stat: &Stat, size: u64, name: &str) -> Result<(), OpenError> {
    let missing = size.saturating_sub(stat.st_blocks as u64 * 512);
    let available = fstatvfs(&fd).map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    let full = || {
        let available = available.unwrap_or(0);
        let why = format!(
            "no space: {} ({missing} bytes) more are needed and {available} bytes are available on its file system (allocate=off takes space as it is written)",
            SizeText(missing)
        );
        OpenError::environment(name, why)
    };
    if available.is_ok_and(|available| available < missing) {
        return Err(full());
    }
    match fallocate(&fd, FallocateFlags::empty(), 0, size) {
        // Without fallocate there is no promise to be had; a write may find the disk full.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(full().with_source(error)),
        Err(error) => Err(OpenError::environment(name, "cannot be allocated").with_source(error)),
    }
}
