use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Context;
use super::reply::{Body, Failure, VolumePath};
use crate::model::{CacheRule, ErrorBody, PutRule, RemoveRule};

pub(super) fn routes() -> OpenApiRouter<Context> {
    OpenApiRouter::new()
        .routes(routes!(list, put))
        .routes(routes!(remove))
}

/// Files that are kept out of the cache of a volume.
#[utoipa::path(get, path = "/v1/volumes/{pool}/{volume}/rules", operation_id = "cache_rules_list",
    tag = "volumes", params(("pool" = String, Path), ("volume" = String, Path)),
    responses((status = 200, body = [CacheRule]), (status = "default", body = ErrorBody)))]
async fn list(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
) -> Result<Json<Vec<CacheRule>>, Failure> {
    let rules = context
        .calls()
        .call(move |control| control.cache_rules(&name));
    Ok(Json(rules.await?))
}

/// Keeps files out of the cache of a volume, or says again where they lie.
#[utoipa::path(put, path = "/v1/volumes/{pool}/{volume}/rules", operation_id = "cache_rule_put",
    tag = "volumes", params(("pool" = String, Path), ("volume" = String, Path)), request_body = PutRule,
    responses((status = 200, body = CacheRule), (status = "default", body = ErrorBody)))]
async fn put(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
    Body(request): Body<PutRule>,
) -> Result<Json<CacheRule>, Failure> {
    let rule = context
        .calls()
        .call(move |control| control.put_cache_rule(&name, request));
    Ok(Json(rule.await?))
}

/// Keeps files out of the cache of a volume no more.
#[utoipa::path(post, path = "/v1/volumes/{pool}/{volume}/rules/remove", operation_id = "cache_rule_remove",
    tag = "volumes", params(("pool" = String, Path), ("volume" = String, Path)), request_body = RemoveRule,
    responses((status = 204), (status = "default", body = ErrorBody)))]
async fn remove(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
    Body(request): Body<RemoveRule>,
) -> Result<StatusCode, Failure> {
    let removed = context
        .calls()
        .call(move |control| control.remove_cache_rule(&name, request));
    removed.await?;
    Ok(StatusCode::NO_CONTENT)
}
