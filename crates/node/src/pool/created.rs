use std::path::{Path, PathBuf};

use ashlar_device::Spec;

use super::setup::split_class;

/// Files that are not there before drives are opened. A drive with a size makes its file: unless it is
/// [kept](Self::keep), what was made for an order that is refused goes again.
pub struct CreatedFiles(Vec<PathBuf>);

impl CreatedFiles {
    /// Notes which files of these drives are missing; before the drives are opened.
    pub fn watch(specs: &[String]) -> Self {
        let paths = specs.iter().flat_map(|spec| {
            let parsed = split_class(spec)
                .ok()
                .and_then(|(plain, _)| plain.parse().ok());
            let paths = parsed.iter().flat_map(Spec::paths);
            paths.map(Path::to_owned).collect::<Vec<_>>()
        });
        // A link without an end is something that is there.
        Self(
            paths
                .filter(|path| path.symlink_metadata().is_err())
                .collect(),
        )
    }

    /// The files are used: they stay.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for CreatedFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            if path.symlink_metadata().is_ok_and(|found| found.is_file()) {
                // The order's own error is what is told; an empty file that stays harms nothing.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}
