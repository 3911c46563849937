//! Reservations of volumes, a file each: they outlive the daemon, and go with the volume.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use ashlar_nvme_target::server::ReservationFile;
use ashlar_nvme_target::{KeptReservations, Table};
use uuid::Uuid;

use super::PoolManager;
use crate::files::failed;
use crate::model::ControlError;

const FOLDER: &str = "reservations";

impl PoolManager {
    fn reservation_file(&self, volume: Uuid) -> PathBuf {
        self.state.beside(FOLDER).join(volume.to_string())
    }

    /// What hosts have reserved of a volume, and who keeps what comes.
    pub(super) fn reservations(&self, volume: Uuid) -> Result<KeptReservations, ControlError> {
        let folder = self.state.beside(FOLDER);
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        made.map_err(|error| failed(&folder, "cannot be made", &error))?;
        let file = self.reservation_file(volume);
        let opened = ReservationFile::open(&file);
        let kept = opened.map_err(|error| failed(&file, "cannot be read", &error))?;
        let table = kept
            .kept
            .as_deref()
            .map_or(Ok(Table::default()), Table::decode);
        match table {
            Ok(_) => Ok(kept),
            // What may be reserved is not served unreserved.
            Err(error) => Err(ControlError::environment(format!(
                "{} is damaged and was left as it is: {error}; the volume is not served. Move it away to serve the \
                 volume without its reservations",
                file.display()
            ))),
        }
    }

    /// A volume is gone, and its reservations with it.
    pub(super) fn forget_reservations(&self, volume: Uuid) -> Result<(), ControlError> {
        let file = self.reservation_file(volume);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(failed(&file, "cannot be removed", &error))
            }
            _ => Ok(()),
        }
    }
}
