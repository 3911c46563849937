use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use ashlar_device::Spec;

use super::setup::split_class;

/// Files that are not there before drives are opened. A drive with a size makes its file: unless it is
/// [kept](Self::keep), what was made for an order that is refused goes again.
pub struct CreatedFiles<'a> {
    paths: Vec<PathBuf>,
    /// While this is there, no other order makes a file.
    _turn: PhantomData<&'a ()>,
}

impl<'a> CreatedFiles<'a> {
    /// Notes which files of these drives are missing; before the drives are opened. Of two orders that wait for one
    /// another both would find a file missing, and the one that is refused would remove it: `_turn` is what only one
    /// of them has, from before this until the files are kept or removed.
    pub fn watch<T>(_turn: &'a T, specs: &[String]) -> Self {
        let paths = specs.iter().flat_map(|spec| {
            let parsed = split_class(spec)
                .ok()
                .and_then(|(plain, _)| plain.parse().ok());
            let paths = parsed.iter().flat_map(Spec::paths);
            paths.map(Path::to_owned).collect::<Vec<_>>()
        });
        // A link without an end is something that is there.
        Self {
            paths: paths
                .filter(|path| path.symlink_metadata().is_err())
                .collect(),
            _turn: PhantomData,
        }
    }

    /// The files are used: they stay.
    pub fn keep(mut self) {
        self.paths.clear();
    }
}

impl Drop for CreatedFiles<'_> {
    fn drop(&mut self) {
        for path in &self.paths {
            if path.symlink_metadata().is_ok_and(|found| found.is_file()) {
                // The order's own error is what is told; an empty file that stays harms nothing.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}
