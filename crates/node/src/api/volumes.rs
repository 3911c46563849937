use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Context;
use super::reply::{Body, Failure, MaybeBody, Options, VolumePath};
use crate::model::{
    AllowHosts, ControlError, CreateCache, CreateVolume, DeleteVolume, DenyHosts, ErrorBody,
    FlushReply, HostChange, MoveVolume, NewerData, ProofStatus, ReopenCache, ReplicateVolume,
    ResizeVolume, RunAlone, SetFollow, SetHosts, SetWhenDegraded, VolumeName, VolumeStats,
    VolumeStatus,
};

type Reply = Result<Json<VolumeStatus>, Failure>;

pub(super) fn routes() -> OpenApiRouter<Context> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, delete))
        .routes(routes!(resize))
        .routes(routes!(set_hosts))
        .routes(routes!(allow_hosts))
        .routes(routes!(deny_hosts))
        .routes(routes!(set_when_degraded))
        .routes(routes!(set_follow))
        .routes(routes!(stats))
        .routes(routes!(create_cache))
        .routes(routes!(flush))
        .routes(routes!(reopen))
        .routes(routes!(newer))
        .routes(routes!(move_to))
        .routes(routes!(verify))
        .routes(routes!(replicate))
        .routes(routes!(run_alone))
}

/// All volumes of all pools, by name.
#[utoipa::path(get, path = "/v1/volumes", operation_id = "volumes_list", tag = "volumes",
    responses((status = 200, body = [VolumeStatus])))]
async fn list(State(context): State<Context>) -> Result<Json<Vec<VolumeStatus>>, Failure> {
    Ok(Json(
        context
            .calls()
            .call(|control| Ok(control.volumes_with_owners()))
            .await?,
    ))
}

/// Makes a volume and serves it.
#[utoipa::path(post, path = "/v1/volumes", operation_id = "volume_create", tag = "volumes",
    request_body = CreateVolume,
    responses((status = 201, body = VolumeStatus), (status = "default", body = ErrorBody)))]
async fn create(
    State(context): State<Context>,
    Body(request): Body<CreateVolume>,
) -> Result<(StatusCode, Json<VolumeStatus>), Failure> {
    let volume = context
        .calls()
        .call(move |control| control.create_volume(request));
    Ok((StatusCode::CREATED, Json(volume.await?)))
}

/// Everything about a volume.
#[utoipa::path(get, path = "/v1/volumes/{pool}/{volume}", operation_id = "volume_show",
    tag = "volumes", params(("pool" = String, Path), ("volume" = String, Path)),
    responses((status = 200, body = VolumeStatus), (status = "default", body = ErrorBody)))]
async fn show(State(context): State<Context>, VolumePath(name): VolumePath) -> Reply {
    let volume = context.calls().call(move |control| control.volume(&name));
    Ok(Json(volume.await?))
}

/// Deletes a volume and what it holds.
#[utoipa::path(delete, path = "/v1/volumes/{pool}/{volume}", operation_id = "volume_delete",
    tag = "volumes", params(("pool" = String, Path), ("volume" = String, Path), DeleteVolume),
    responses(
        (status = 204),
        (status = 412, description = "It holds data, hosts are connected, or a service has it", body = ErrorBody),
        (status = "default", body = ErrorBody)))]
async fn delete(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
    Options(request): Options<DeleteVolume>,
) -> Result<StatusCode, Failure> {
    let services = context.services().filter(|_| !request.force);
    let done = context.calls().call(move |control| {
        // Also of one that waits or is stopped, to which no host is connected.
        if let Some(service) = services.and_then(|services| services.user_of(&name)) {
            return Err(ControlError::refused(format!(
                "volume {name} is of service {service}: `ashlar service delete {service}` first, or say --force"
            )));
        }
        control.delete_volume(&name, request)
    });
    done.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Gives a volume another size.
#[utoipa::path(put, path = "/v1/volumes/{pool}/{volume}/size", operation_id = "volume_resize",
    tag = "volumes", params(("pool" = String, Path), ("volume" = String, Path)),
    request_body = ResizeVolume,
    responses((status = 200, body = VolumeStatus), (status = "default", body = ErrorBody)))]
async fn resize(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
    Body(request): Body<ResizeVolume>,
) -> Reply {
    let volume = context
        .calls()
        .call(move |control| control.resize_volume(&name, request));
    Ok(Json(volume.await?))
}

/// Lets more hosts connect. No host is cut off.
#[utoipa::path(post, path = "/v1/volumes/{pool}/{volume}/hosts/allow",
    operation_id = "volume_allow", tag = "volumes",
    params(("pool" = String, Path), ("volume" = String, Path)), request_body = AllowHosts,
    responses((status = 200, body = VolumeStatus), (status = "default", body = ErrorBody)))]
async fn allow_hosts(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
    Body(request): Body<AllowHosts>,
) -> Reply {
    change_hosts(&context, name, HostChange::Allow(request)).await
}

/// Lets some hosts connect no more.
#[utoipa::path(post, path = "/v1/volumes/{pool}/{volume}/hosts/deny",
    operation_id = "volume_deny", tag = "volumes",
    params(("pool" = String, Path), ("volume" = String, Path)), request_body = DenyHosts,
    responses(
        (status = 200, body = VolumeStatus),
        (status = 404, description = "There is no such volume, or the host is not on its list",
            body = ErrorBody),
        (status = 412, description = "A host that is connected would be cut off", body = ErrorBody),
        (status = "default", body = ErrorBody)))]
async fn deny_hosts(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
    Body(request): Body<DenyHosts>,
) -> Reply {
    change_hosts(&context, name, HostChange::Deny(request)).await
}

/// Says who may connect from now on, in place of who might.
#[utoipa::path(put, path = "/v1/volumes/{pool}/{volume}/hosts", operation_id = "volume_hosts",
    tag = "volumes", params(("pool" = String, Path), ("volume" = String, Path)),
    request_body = SetHosts,
    responses(
        (status = 200, body = VolumeStatus),
        (status = 412, description = "A host that is connected would be cut off", body = ErrorBody),
        (status = "default", body = ErrorBody)))]
async fn set_hosts(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
    Body(request): Body<SetHosts>,
) -> Reply {
    change_hosts(&context, name, HostChange::Set(request)).await
}

async fn change_hosts(context: &Context, name: VolumeName, change: HostChange) -> Reply {
    let volume = context
        .calls()
        .call(move |control| control.change_hosts(&name, change));
    Ok(Json(volume.await?))
}

/// Says what a volume does from now on when a copy is missing that no drive can take.
#[utoipa::path(put, path = "/v1/volumes/{pool}/{volume}/when-degraded",
    operation_id = "volume_when_degraded", tag = "volumes",
    params(("pool" = String, Path), ("volume" = String, Path)), request_body = SetWhenDegraded,
    responses((status = 200, body = VolumeStatus), (status = "default", body = ErrorBody)))]
async fn set_when_degraded(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
    Body(request): Body<SetWhenDegraded>,
) -> Reply {
    let volume = context
        .calls()
        .call(move |control| control.set_when_degraded(&name, request));
    Ok(Json(volume.await?))
}

/// Says whether ownership of a replicated volume follows its hosts, to the node by which most of their commands come.
#[utoipa::path(put, path = "/v1/volumes/{pool}/{volume}/follow", operation_id = "volume_follow",
    tag = "volumes", params(("pool" = String, Path), ("volume" = String, Path)),
    request_body = SetFollow,
    responses((status = 200, body = VolumeStatus), (status = "default", body = ErrorBody)))]
async fn set_follow(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
    Body(request): Body<SetFollow>,
) -> Reply {
    let volume = context
        .calls()
        .call(move |control| control.set_follow(&name, request));
    Ok(Json(volume.await?))
}

/// Gives a volume copies on other nodes, in service: its hosts lose their connections and come back. Answers when it
/// is served again; the copies are filled behind.
#[utoipa::path(post, path = "/v1/volumes/{pool}/{volume}/replicate",
    operation_id = "volume_replicate", tag = "volumes",
    params(("pool" = String, Path), ("volume" = String, Path)), request_body = ReplicateVolume,
    responses((status = 200, body = VolumeStatus), (status = "default", body = ErrorBody)))]
async fn replicate(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
    Body(request): Body<ReplicateVolume>,
) -> Reply {
    let volume = context
        .calls()
        .call(move |control| control.replicate_volume(&name, request));
    Ok(Json(volume.await?))
}

/// Has this node's copy, which was not in sync, serve without the others: all of those that were are lost. What was
/// written since is lost with them.
#[utoipa::path(post, path = "/v1/volumes/{pool}/{volume}/run-alone",
    operation_id = "volume_run_alone", tag = "volumes",
    params(("pool" = String, Path), ("volume" = String, Path)), request_body = RunAlone,
    responses(
        (status = 200, body = VolumeStatus),
        (status = 412, description = "It was not said that data may be lost", body = ErrorBody),
        (status = "default", body = ErrorBody)))]
async fn run_alone(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
    Body(request): Body<RunAlone>,
) -> Reply {
    let volume = context
        .calls()
        .call(move |control| control.run_alone(&name, request));
    Ok(Json(volume.await?))
}

/// Has another node serve a replicated volume. Answers when it does.
#[utoipa::path(post, path = "/v1/volumes/{pool}/{volume}/move", operation_id = "volume_move",
    tag = "volumes", params(("pool" = String, Path), ("volume" = String, Path)),
    request_body = MoveVolume,
    responses((status = 200, body = VolumeStatus), (status = "default", body = ErrorBody)))]
async fn move_to(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
    Body(request): Body<MoveVolume>,
) -> Reply {
    let volume = context
        .calls()
        .call(move |control| control.move_volume(&name, request));
    Ok(Json(volume.await?))
}

/// Compares the copies of a replicated volume that are in sync. Answers when that is done.
#[utoipa::path(post, path = "/v1/volumes/{pool}/{volume}/verify", operation_id = "volume_verify",
    tag = "volumes", params(("pool" = String, Path), ("volume" = String, Path)),
    responses((status = 200, body = ProofStatus), (status = "default", body = ErrorBody)))]
async fn verify(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
) -> Result<Json<ProofStatus>, Failure> {
    let proof = context
        .calls()
        .call(move |control| control.verify_volume(&name));
    Ok(Json(proof.await?))
}

/// What a volume has done since it came online.
#[utoipa::path(get, path = "/v1/volumes/{pool}/{volume}/stats", operation_id = "volume_stats",
    tag = "volumes", params(("pool" = String, Path), ("volume" = String, Path)),
    responses((status = 200, body = VolumeStats), (status = "default", body = ErrorBody)))]
async fn stats(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
) -> Result<Json<VolumeStats>, Failure> {
    let stats = context
        .calls()
        .call(move |control| control.volume_stats(&name));
    Ok(Json(stats.await?))
}

/// Makes a volume that caches a device, and serves it.
#[utoipa::path(post, path = "/v1/caches", operation_id = "cache_create", tag = "volumes",
    request_body = CreateCache,
    responses((status = 201, body = VolumeStatus), (status = "default", body = ErrorBody)))]
async fn create_cache(
    State(context): State<Context>,
    Body(request): Body<CreateCache>,
) -> Result<(StatusCode, Json<VolumeStatus>), Failure> {
    let volume = context
        .calls()
        .call(move |control| control.create_cache(request));
    Ok((StatusCode::CREATED, Json(volume.await?)))
}

/// Writes back everything that only the cache of a volume has, and takes the mark off its backing device. Answers
/// after half a minute at most: what is not done then goes on, and the same request waits for it again.
#[utoipa::path(post, path = "/v1/volumes/{pool}/{volume}/flush", operation_id = "volume_flush",
    tag = "volumes", params(("pool" = String, Path), ("volume" = String, Path)),
    responses((status = 200, body = FlushReply), (status = "default", body = ErrorBody)))]
async fn flush(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
) -> Result<Json<FlushReply>, Failure> {
    let reply = context
        .calls()
        .call(move |control| control.flush_volume(&name));
    Ok(Json(reply.await?))
}

/// Takes up a cached volume that is not in service, its backing device perhaps by another name.
#[utoipa::path(post, path = "/v1/volumes/{pool}/{volume}/reopen",
    operation_id = "volume_reopen", tag = "volumes",
    params(("pool" = String, Path), ("volume" = String, Path)), request_body = ReopenCache,
    responses((status = 200, body = VolumeStatus), (status = "default", body = ErrorBody)))]
async fn reopen(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
    MaybeBody(request): MaybeBody<ReopenCache>,
) -> Reply {
    let volume = context
        .calls()
        .call(move |control| control.reopen_volume(&name, request));
    Ok(Json(volume.await?))
}

/// What only the cache of a volume has: what is lost with it.
#[utoipa::path(get, path = "/v1/volumes/{pool}/{volume}/newer", operation_id = "volume_newer",
    tag = "volumes", params(("pool" = String, Path), ("volume" = String, Path)),
    responses((status = 200, body = NewerData), (status = "default", body = ErrorBody)))]
async fn newer(
    State(context): State<Context>,
    VolumePath(name): VolumePath,
) -> Result<Json<NewerData>, Failure> {
    let newer = context
        .calls()
        .call(move |control| control.newer_data(&name));
    Ok(Json(newer.await?))
}
