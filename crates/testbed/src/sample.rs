//! Whether a remote namespace holds data: by looking at some of it, since nothing else can be known.

use std::time::Duration;

use ashlar_block::{BlockDevice, BlockRange, Checked, Request};
use ashlar_lab::LabError;
use ashlar_reactor::{Opener, Options, Reactor};

/// Places that are looked at, evenly spread, both ends included.
const PLACES: u64 = 256;
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(60);

/// What was found, if any sampled block is not zero.
pub(super) fn find_data(opener: &dyn Opener) -> Result<Option<String>, LabError> {
    let environment = |error: &dyn std::fmt::Display| LabError::environment(error.to_string());
    let mut reactor = Reactor::new(&Options::default()).map_err(|e| environment(&e))?;
    let handle = reactor.handle().clone();
    let mut device = Checked::new(opener.open(&handle).map_err(|e| environment(&e))?);
    let geometry = device.geometry();
    let last = geometry.blocks.saturating_sub(1);
    let mut done = Vec::new();
    let give_up = handle.now() + SAMPLE_TIMEOUT;
    for place in 0..=PLACES.min(last) {
        let block =
            (u128::from(last) * u128::from(place) / u128::from(PLACES.min(last).max(1))) as u64;
        let bytes = geometry.block_size.bytes() as usize;
        let buffer = handle.buffers().get(bytes);
        let buffer = buffer.ok_or_else(|| LabError::environment("out of buffers"))?;
        device.submit(Request::read(block, BlockRange::new(block, 1), buffer));
        loop {
            device.poll(handle.now(), &mut done);
            let Some(completion) = done.pop() else {
                if handle.now() > give_up {
                    return Err(LabError::environment("no answer to a read"));
                }
                let next = device.next_deadline().unwrap_or(give_up);
                reactor.turn(Some(next)).map_err(|e| environment(&e))?;
                continue;
            };
            completion.result.map_err(|error| environment(&error))?;
            let data = completion.buffer.as_deref().unwrap_or_default();
            if data.iter().any(|&byte| byte != 0) {
                return Ok(Some(format!("data (block {block} is not zero)")));
            }
            break;
        }
    }
    Ok(None)
}
