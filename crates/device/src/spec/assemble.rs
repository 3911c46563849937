use std::sync::Arc;

use ashlar_block::BlockSize;
use ashlar_reactor::Opener;

use super::Spec;
use crate::faults::{FaultControl, Faulty};
use crate::media::Media;
use crate::record::Recorded;
use crate::{FileDevice, Memory, Null, OpenError, OpenErrorKind, Stripe};

/// What opens remote namespaces, by URL, for a stack that has them: this room does not know the
/// initiator.
pub type Remotes<'a> = dyn FnMut(&str, BlockSize) -> Result<Arc<dyn Opener>, OpenError> + 'a;

/// Opens in blocks of 4 KiB what is that large; what ends within such a block, in blocks of 512 bytes.
///
/// # Errors
/// Those of `open`.
pub fn open_whole(
    open: impl Fn(BlockSize) -> Result<Arc<dyn Opener>, OpenError>,
) -> Result<Arc<dyn Opener>, OpenError> {
    match open(BlockSize::B4096) {
        Err(error) if error.kind() == OpenErrorKind::Usage => open(BlockSize::B512),
        opened => opened,
    }
}

/// Opens a stack without remote parts. `block_size` applies to its leaves.
///
/// # Errors
/// Whatever a device refuses, and any remote namespace.
pub fn open(spec: &Spec, block_size: BlockSize) -> Result<Arc<dyn Opener>, OpenError> {
    open_with(spec, block_size, &mut |url, _| {
        Err(OpenError::usage(
            format!("`{url}`"),
            "a remote namespace cannot be used here",
        ))
    })
}

/// Opens a stack whose remote parts `remotes` opens.
///
/// # Errors
/// Whatever a device or `remotes` refuses.
pub fn open_with(
    spec: &Spec,
    block_size: BlockSize,
    remotes: &mut Remotes<'_>,
) -> Result<Arc<dyn Opener>, OpenError> {
    Ok(match spec {
        Spec::Memory(bytes) => Memory::new(*bytes, block_size)?,
        Spec::Null(bytes, reads) => Null::new(*bytes, block_size, *reads)?,
        Spec::File(options) => FileDevice::open(options, block_size)?,
        Spec::Recorded(recording, child) => {
            Recorded::new(open_with(child, block_size, remotes)?, recording)?
        }
        Spec::Stripe(chunk, children) => {
            let children: Result<Vec<_>, _> = children
                .iter()
                .map(|child| open_with(child, block_size, remotes))
                .collect();
            Stripe::new(children?, *chunk)?
        }
        Spec::Disk(model, child) => Media::disk(open_with(child, block_size, remotes)?, *model),
        Spec::Array(model, child) => Media::array(open_with(child, block_size, remotes)?, *model),
        Spec::Flash(model, child) => Media::flash(open_with(child, block_size, remotes)?, *model),
        Spec::Faulty(plan, child) => {
            let control = FaultControl::new(plan.seed);
            for rule in &plan.rules {
                control.add(*rule);
            }
            if let Some(switch) = &plan.switch {
                control.obey(switch);
            }
            Faulty::new(open_with(child, block_size, remotes)?, control)
        }
        Spec::Remote(url) => remotes(url, block_size)?,
        Spec::Rbd(name) => crate::rbd::open(name, block_size)?,
    })
}
