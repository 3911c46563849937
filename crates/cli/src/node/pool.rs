//! `ashlar pool`.

use ashlar_node::model::{
    AddDrive, CreatePool, DriveStatus, ExportPool, ImportPool, PoolStatus, RemoveDrive,
    ReplaceDrive, SetReserve,
};

use super::Api;
use super::pool_text::{list, status};
use super::volume::with_mounts;
use crate::args::PoolCommand;
use crate::exit::Failure;
use crate::output::print;

pub(crate) fn run(command: &PoolCommand) -> Result<(), Failure> {
    match command {
        PoolCommand::Create {
            pool,
            drives,
            destroy_data,
            reserve,
            api,
        } => {
            let api = Api::new(api)?;
            let request = CreatePool {
                name: pool.clone(),
                drives: api.devices(drives)?,
                destroy_data: *destroy_data,
                reserve: *reserve,
            };
            show(&api, &api.client.create_pool(&request)?)
        }
        PoolCommand::Status {
            pool: Some(pool),
            api,
        } => {
            let api = Api::new(api)?;
            show(&api, &api.client.pool(pool)?)
        }
        PoolCommand::Status { pool: None, api } => {
            let api = Api::new(api)?;
            let pools = api.client.pools()?;
            api.show(&pools, |pools| match pools.is_empty() {
                true => "there are no pools\n".into(),
                false => pools.iter().map(status).collect::<Vec<_>>().join("\n"),
            })
        }
        PoolCommand::List { api } => {
            let api = Api::new(api)?;
            api.show(&api.client.pools()?, |pools| list(pools))
        }
        PoolCommand::Import {
            pool,
            drives,
            id,
            new_name,
            degraded,
            accept_data_loss,
            api,
        } => {
            let api = Api::new(api)?;
            let request = ImportPool {
                drives: api.devices(drives)?,
                id: *id,
                new_name: new_name.clone(),
                degraded: *degraded,
                accept_data_loss: *accept_data_loss,
            };
            show(&api, &api.client.import_pool(pool, &request)?)
        }
        PoolCommand::Export { pool, force, api } => {
            let api = Api::new(api)?;
            // What does not say how it is is let go of all the same.
            let known = api.client.pool(pool).ok();
            let exported = api.client.export_pool(pool, &ExportPool { force: *force });
            let its = || {
                let mut volumes = api.client.volumes()?;
                volumes.retain(|volume| volume.pool == *pool);
                Ok(volumes)
            };
            exported.map_err(|error| with_mounts(error, its))?;
            let drives = known.map_or_else(Vec::new, |known| known.drives);
            let import = import_of(pool, &drives);
            done(
                &api,
                &format!("pool {pool} is let go; to take it up again: {import}"),
            )
        }
        PoolCommand::Add { .. }
        | PoolCommand::Replace { .. }
        | PoolCommand::Remove { .. }
        | PoolCommand::Reserve { .. }
        | PoolCommand::Repair { .. }
        | PoolCommand::Scrub { .. } => change(command),
    }
}

/// What begins work on a pool's drives.
fn change(command: &PoolCommand) -> Result<(), Failure> {
    match command {
        PoolCommand::Add {
            pool,
            drive,
            destroy_data,
            api,
        } => {
            let api = Api::new(api)?;
            let request = AddDrive {
                drive: api.device(drive)?,
                destroy_data: *destroy_data,
            };
            show(&api, &api.client.add_drive(pool, &request)?)
        }
        PoolCommand::Replace {
            pool,
            old,
            new,
            destroy_data,
            api,
        } => {
            let api = Api::new(api)?;
            let request = ReplaceDrive {
                old: api.device(old)?,
                new: api.device(new)?,
                destroy_data: *destroy_data,
            };
            show(&api, &api.client.replace_drive(pool, &request)?)
        }
        PoolCommand::Remove { pool, drive, api } => {
            let api = Api::new(api)?;
            let request = RemoveDrive {
                drive: api.device(drive)?,
            };
            show(&api, &api.client.remove_drive(pool, &request)?)
        }
        PoolCommand::Reserve { pool, reserve, api } => {
            let api = Api::new(api)?;
            let request = SetReserve { reserve: *reserve };
            show(&api, &api.client.set_reserve(pool, &request)?)
        }
        PoolCommand::Repair { pool, api } => {
            let api = Api::new(api)?;
            show(&api, &api.client.repair(pool)?)
        }
        PoolCommand::Scrub { pool, api } => {
            let api = Api::new(api)?;
            show(&api, &api.client.scrub(pool)?)
        }
        _ => Ok(()),
    }
}

fn show(api: &Api, pool: &PoolStatus) -> Result<(), Failure> {
    api.show(pool, status)
}

/// What has no answer but that it is done.
fn done(api: &Api, text: &str) -> Result<(), Failure> {
    match api.json {
        true => Ok(()),
        false => print(&format!("{text}\n")),
    }
}

/// The order that takes up again what is let go of now.
fn import_of(pool: &str, drives: &[DriveStatus]) -> String {
    let named = drives.iter().filter(|drive| !drive.spec.is_empty());
    let named: Vec<String> = named
        .map(|drive| format!(" --drive '{}'", drive.spec))
        .collect();
    match named.is_empty() {
        true => format!("ashlar pool import {pool} --drive DRIVE …, all that it has"),
        false => format!("ashlar pool import {pool}{}", named.concat()),
    }
}
