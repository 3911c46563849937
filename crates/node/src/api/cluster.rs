use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Context;
use super::reply::{Body, Failure, Options};
use crate::model::{
    ClusterEvent, ClusterToken, ClusterView, DrainNode, DrainReply, ErrorBody, EventsAfter,
    ForgetNode, NewToken, ReplaceNode, ReplaceReply,
};

pub(super) fn routes() -> OpenApiRouter<Context> {
    OpenApiRouter::new()
        .routes(routes!(show))
        .routes(routes!(token))
        .routes(routes!(forget))
        .routes(routes!(replace))
        .routes(routes!(leave))
        .routes(routes!(drain))
        .routes(routes!(events))
}

/// The cluster that the node is in, as it sees it.
#[utoipa::path(get, path = "/v1/cluster", operation_id = "cluster_show", tag = "cluster",
    responses((status = 200, body = ClusterView), (status = "default", body = ErrorBody)))]
async fn show(State(context): State<Context>) -> Result<Json<ClusterView>, Failure> {
    Ok(Json(
        context.calls().call(|control| control.cluster()).await?,
    ))
}

/// Makes a token with which one machine can join the cluster.
#[utoipa::path(post, path = "/v1/cluster/token", operation_id = "cluster_token", tag = "cluster",
    request_body = NewToken,
    responses((status = 200, body = ClusterToken), (status = "default", body = ErrorBody)))]
async fn token(
    State(context): State<Context>,
    Body(request): Body<NewToken>,
) -> Result<Json<ClusterToken>, Failure> {
    let reply = context
        .calls()
        .call(move |control| control.cluster_token(request));
    Ok(Json(reply.await?))
}

/// Takes a node that is gone, or a witness, out of the cluster.
#[utoipa::path(post, path = "/v1/cluster/forget", operation_id = "cluster_forget", tag = "cluster",
    request_body = ForgetNode,
    responses((status = 204), (status = "default", body = ErrorBody)))]
async fn forget(
    State(context): State<Context>,
    Body(request): Body<ForgetNode>,
) -> Result<StatusCode, Failure> {
    let reply = context
        .calls()
        .call(move |control| control.forget_node(request));
    reply.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Does what can be done next to have one node take the place of another: called again until nothing is left.
#[utoipa::path(post, path = "/v1/cluster/replace", operation_id = "cluster_replace", tag = "cluster",
    request_body = ReplaceNode,
    responses((status = 200, body = ReplaceReply), (status = "default", body = ErrorBody)))]
async fn replace(
    State(context): State<Context>,
    Body(request): Body<ReplaceNode>,
) -> Result<Json<ReplaceReply>, Failure> {
    let reply = context
        .calls()
        .call(move |control| control.replace_node(request));
    Ok(Json(reply.await?))
}

/// Takes the node that is asked out of its cluster, and ends its daemon.
#[utoipa::path(post, path = "/v1/cluster/leave", operation_id = "cluster_leave", tag = "cluster",
    responses((status = 204), (status = "default", body = ErrorBody)))]
async fn leave(State(context): State<Context>) -> Result<StatusCode, Failure> {
    context
        .calls()
        .call(|control| control.leave_cluster())
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Has others serve a node's volumes, or lets it serve again. Answers when that is done.
#[utoipa::path(post, path = "/v1/cluster/drain", operation_id = "cluster_drain", tag = "cluster",
    request_body = DrainNode,
    responses((status = 200, body = DrainReply), (status = "default", body = ErrorBody)))]
async fn drain(
    State(context): State<Context>,
    Body(request): Body<DrainNode>,
) -> Result<Json<DrainReply>, Failure> {
    let reply = context.calls().call(move |control| control.drain(request));
    Ok(Json(reply.await?))
}

/// What has happened, as far as this node knows: the newest thousand since it started.
#[utoipa::path(get, path = "/v1/events", operation_id = "events_list", tag = "cluster",
    params(EventsAfter),
    responses((status = 200, body = [ClusterEvent]), (status = "default", body = ErrorBody)))]
async fn events(
    State(context): State<Context>,
    Options(options): Options<EventsAfter>,
) -> Result<Json<Vec<ClusterEvent>>, Failure> {
    let events = context
        .calls()
        .call(move |control| Ok(control.events(options.after)));
    Ok(Json(events.await?))
}
