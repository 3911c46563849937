use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Context;
use super::reply::{Body, Failure, MaybeBody, PoolPath};
use crate::model::{
    AddDrive, CreatePool, ErrorBody, ExportPool, ImportPool, PoolStatus, RemoveDrive, ReplaceDrive,
    SetReserve,
};

type Reply = Result<Json<PoolStatus>, Failure>;

pub(super) fn routes() -> OpenApiRouter<Context> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(status))
        .routes(routes!(import))
        .routes(routes!(export))
        .routes(routes!(scrub))
        .routes(routes!(repair))
        .routes(routes!(reserve))
        .routes(routes!(add))
        .routes(routes!(replace))
        .routes(routes!(remove))
}

/// All pools, by name.
#[utoipa::path(get, path = "/v1/pools", operation_id = "pools_list", tag = "pools",
    responses((status = 200, body = [PoolStatus])))]
async fn list(State(context): State<Context>) -> Result<Json<Vec<PoolStatus>>, Failure> {
    Ok(Json(
        context.calls().call(|control| Ok(control.pools())).await?,
    ))
}

/// Makes a pool of drives.
#[utoipa::path(post, path = "/v1/pools", operation_id = "pool_create", tag = "pools",
    request_body = CreatePool,
    responses(
        (status = 201, body = PoolStatus),
        (status = 409, description = "The name is taken, or a drive is in use", body = ErrorBody),
        (status = 412, description = "A drive holds something", body = ErrorBody),
        (status = "default", body = ErrorBody)))]
async fn create(
    State(context): State<Context>,
    Body(request): Body<CreatePool>,
) -> Result<(StatusCode, Json<PoolStatus>), Failure> {
    let pool = context
        .calls()
        .call(move |control| control.create_pool(request));
    Ok((StatusCode::CREATED, Json(pool.await?)))
}

/// Everything about a pool.
#[utoipa::path(get, path = "/v1/pools/{pool}", operation_id = "pool_status", tag = "pools",
    params(("pool" = String, Path)),
    responses((status = 200, body = PoolStatus), (status = "default", body = ErrorBody)))]
async fn status(State(context): State<Context>, PoolPath(pool): PoolPath) -> Reply {
    let pool = context.calls().call(move |control| control.pool(&pool));
    Ok(Json(pool.await?))
}

/// Takes a pool up again.
#[utoipa::path(post, path = "/v1/pools/{pool}/import", operation_id = "pool_import", tag = "pools",
    params(("pool" = String, Path)), request_body = Option<ImportPool>,
    responses((status = 200, body = PoolStatus), (status = "default", body = ErrorBody)))]
async fn import(
    State(context): State<Context>,
    PoolPath(pool): PoolPath,
    MaybeBody(request): MaybeBody<ImportPool>,
) -> Reply {
    let pool = context
        .calls()
        .call(move |control| control.import_pool(&pool, request));
    Ok(Json(pool.await?))
}

/// Moves everything home, lets go of the drives and forgets the pool.
#[utoipa::path(post, path = "/v1/pools/{pool}/export", operation_id = "pool_export", tag = "pools",
    params(("pool" = String, Path)), request_body = Option<ExportPool>,
    responses((status = 204), (status = "default", body = ErrorBody)))]
async fn export(
    State(context): State<Context>,
    PoolPath(pool): PoolPath,
    MaybeBody(request): MaybeBody<ExportPool>,
) -> Result<StatusCode, Failure> {
    let done = context
        .calls()
        .call(move |control| control.export_pool(&pool, request));
    done.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Begins to read and check everything; `work` in the status shows how far it is.
#[utoipa::path(post, path = "/v1/pools/{pool}/scrub", operation_id = "pool_scrub", tag = "pools",
    params(("pool" = String, Path)),
    responses((status = 200, body = PoolStatus), (status = "default", body = ErrorBody)))]
async fn scrub(State(context): State<Context>, PoolPath(pool): PoolPath) -> Reply {
    let pool = context.calls().call(move |control| control.scrub(&pool));
    Ok(Json(pool.await?))
}

/// Begins at once to make again what a lost drive held, instead of after `repair_after_seconds`.
#[utoipa::path(post, path = "/v1/pools/{pool}/repair", operation_id = "pool_repair", tag = "pools",
    params(("pool" = String, Path)),
    responses((status = 200, body = PoolStatus), (status = "default", body = ErrorBody)))]
async fn repair(State(context): State<Context>, PoolPath(pool): PoolPath) -> Reply {
    let pool = context.calls().call(move |control| control.repair(&pool));
    Ok(Json(pool.await?))
}

/// Keeps so much for repair from now on.
#[utoipa::path(put, path = "/v1/pools/{pool}/reserve", operation_id = "pool_reserve", tag = "pools",
    params(("pool" = String, Path)), request_body = SetReserve,
    responses((status = 200, body = PoolStatus), (status = "default", body = ErrorBody)))]
async fn reserve(
    State(context): State<Context>,
    PoolPath(pool): PoolPath,
    Body(request): Body<SetReserve>,
) -> Reply {
    let pool = context
        .calls()
        .call(move |control| control.set_reserve(&pool, request));
    Ok(Json(pool.await?))
}

/// Adds a drive.
#[utoipa::path(post, path = "/v1/pools/{pool}/drives", operation_id = "drive_add", tag = "pools",
    params(("pool" = String, Path)), request_body = AddDrive,
    responses((status = 200, body = PoolStatus), (status = "default", body = ErrorBody)))]
async fn add(
    State(context): State<Context>,
    PoolPath(pool): PoolPath,
    Body(request): Body<AddDrive>,
) -> Reply {
    let pool = context
        .calls()
        .call(move |control| control.add_drive(&pool, request));
    Ok(Json(pool.await?))
}

/// Puts a drive in another's place and begins to rebuild.
#[utoipa::path(post, path = "/v1/pools/{pool}/drives/replace", operation_id = "drive_replace",
    tag = "pools", params(("pool" = String, Path)), request_body = ReplaceDrive,
    responses((status = 200, body = PoolStatus), (status = "default", body = ErrorBody)))]
async fn replace(
    State(context): State<Context>,
    PoolPath(pool): PoolPath,
    Body(request): Body<ReplaceDrive>,
) -> Reply {
    let pool = context
        .calls()
        .call(move |control| control.replace_drive(&pool, request));
    Ok(Json(pool.await?))
}

/// Begins to empty a drive, which then leaves the pool.
#[utoipa::path(post, path = "/v1/pools/{pool}/drives/remove", operation_id = "drive_remove",
    tag = "pools", params(("pool" = String, Path)), request_body = RemoveDrive,
    responses((status = 200, body = PoolStatus), (status = "default", body = ErrorBody)))]
async fn remove(
    State(context): State<Context>,
    PoolPath(pool): PoolPath,
    Body(request): Body<RemoveDrive>,
) -> Reply {
    let pool = context
        .calls()
        .call(move |control| control.remove_drive(&pool, request));
    Ok(Json(pool.await?))
}
