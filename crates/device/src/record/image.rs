//! Images of what a drive holds.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

use super::cut::{Fate, PowerCut};
use super::format::{Entry, Kind};
use super::{Trace, TraceError};

/// What an image holds of the changes of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Changes that had to be there.
    pub settled: u64,
    /// Changes that are there by chance.
    pub there: u64,
    /// Changes that are not there.
    pub missing: u64,
    /// Changes that are there in part.
    pub torn: u64,
}

const COPY_BYTES: usize = 1 << 20;

/// Writes what device number `device` holds after `cut` to the new file `out`: `base` is what it held when
/// the recording began, zeroes if there is none.
///
/// # Errors
/// A file cannot be read or written, `out` exists, the base has another size, or the trace is damaged
/// or does not know the outcome of what is before the cut.
pub fn write_image(
    trace: &Trace,
    device: u64,
    cut: &PowerCut,
    base: Option<&Path>,
    out: &Path,
) -> Result<Image, TraceError> {
    if !matches!(cut.tear, 512 | 4096) {
        return Err(TraceError::new(format!(
            "tearing at {} bytes: a drive writes 512 or 4096 bytes whole",
            cut.tear
        )));
    }
    let landings = cut.landings(trace, device)?;
    let failed = |error| TraceError::caused(out.display(), error);
    let image = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(out)
        .map_err(failed)?;
    image.set_len(trace.device_bytes()).map_err(failed)?;
    if let Some(base) = base {
        copy(base, &image, trace.device_bytes()).map_err(|error| error.of(base))?;
    }
    let mut counts = Image::default();
    for landing in landings {
        let Some(entry) = trace.entry(landing.entry) else {
            continue;
        };
        let parts = match &landing.fate {
            Fate::Settled => {
                counts.settled += 1;
                None
            }
            Fate::There => {
                counts.there += 1;
                None
            }
            Fate::Missing => {
                counts.missing += 1;
                continue;
            }
            Fate::Torn(parts) => {
                counts.torn += 1;
                Some(parts.as_slice())
            }
        };
        let data = trace.data(landing.entry)?;
        land(&image, entry, &data, parts, u64::from(cut.tear)).map_err(failed)?;
    }
    Ok(counts)
}

/// Puts a change into the image: all of it, or those of its units.
fn land(
    image: &File,
    entry: &Entry,
    data: &[u8],
    parts: Option<&[bool]>,
    unit: u64,
) -> std::io::Result<()> {
    let Some(parts) = parts else {
        return put(image, entry, data, 0, entry.len);
    };
    for (index, _) in parts.iter().enumerate().filter(|(_, there)| **there) {
        let from = index as u64 * unit;
        put(image, entry, data, from, (from + unit).min(entry.len))?;
    }
    Ok(())
}

/// Puts bytes `from` to `to` of a change into the image.
fn put(image: &File, entry: &Entry, data: &[u8], from: u64, to: u64) -> std::io::Result<()> {
    if entry.kind == Kind::Write {
        return image.write_all_at(&data[from as usize..to as usize], entry.offset + from);
    }
    if from == to {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(image, flags, entry.offset + from, to - from) {
        Err(Errno::OPNOTSUPP) => zero(image, entry.offset + from, entry.offset + to),
        done => Ok(done?),
    }
}

fn zero(image: &File, mut from: u64, to: u64) -> std::io::Result<()> {
    let zeroes = vec![0; COPY_BYTES];
    while from < to {
        let len = (to - from).min(COPY_BYTES as u64);
        image.write_all_at(&zeroes[..len as usize], from)?;
        from += len;
    }
    Ok(())
}

/// Copies what a base holds; holes stay holes.
fn copy(base: &Path, image: &File, bytes: u64) -> Result<(), TraceError> {
    let failed = |error| TraceError::caused("cannot be copied", error);
    let base = File::open(base).map_err(failed)?;
    let has = base.metadata().map_err(failed)?.len();
    if has != bytes {
        let why = format!("has {has} bytes, the recorded device {bytes}");
        return Err(TraceError::new(why));
    }
    let mut buffer = vec![0; COPY_BYTES];
    let mut at = 0;
    while let Some((start, end)) = data_after(&base, at, bytes).map_err(failed)? {
        let mut from = start;
        while from < end {
            let len = (end - from).min(COPY_BYTES as u64) as usize;
            base.read_exact_at(&mut buffer[..len], from)
                .map_err(failed)?;
            image.write_all_at(&buffer[..len], from).map_err(failed)?;
            from += len as u64;
        }
        at = end;
    }
    Ok(())
}

/// The next extent with data.
fn data_after(file: &File, at: u64, bytes: u64) -> std::io::Result<Option<(u64, u64)>> {
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A file system that does not know has data everywhere.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok((at < bytes).then_some((at, bytes))),
        Err(error) => return Err(error.into()),
    };
    Ok(Some((start, seek(file, SeekFrom::Hole(start))?)))
}
