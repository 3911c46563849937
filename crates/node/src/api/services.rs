use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Context;
use super::reply::{Body, Failure, MaybeBody};
use crate::model::{
    ControlError, CreateService, ErrorBody, MoveService, ServiceState, ServiceStatus,
};
use crate::service::Services;

type Reply = Result<Json<ServiceStatus>, Failure>;

pub(super) fn routes() -> OpenApiRouter<Context> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, delete))
        .routes(routes!(start))
        .routes(routes!(stop))
        .routes(routes!(move_to))
}

/// Does it on a blocking thread.
async fn ask<T: Send + 'static>(
    context: &Context,
    ask: impl FnOnce(&Services) -> Result<T, ControlError> + Send + 'static,
) -> Result<T, Failure> {
    let services: Option<Arc<Services>> = context.services();
    let none = || ControlError::environment("this daemon keeps no services");
    let services = services.ok_or_else(none)?;
    let call = context.calls().call(move |_| ask(&services));
    Ok(call.await?)
}

/// All services, by name.
#[utoipa::path(get, path = "/v1/services", operation_id = "services_list", tag = "services",
    responses((status = 200, body = [ServiceStatus])))]
async fn list(State(context): State<Context>) -> Result<Json<Vec<ServiceStatus>>, Failure> {
    Ok(Json(ask(&context, |services| Ok(services.list())).await?))
}

/// Makes a service, which comes up where its volumes are.
#[utoipa::path(post, path = "/v1/services", operation_id = "service_create", tag = "services",
    request_body = CreateService,
    responses((status = 201, body = ServiceStatus), (status = "default", body = ErrorBody)))]
async fn create(
    State(context): State<Context>,
    Body(request): Body<CreateService>,
) -> Result<(StatusCode, Json<ServiceStatus>), Failure> {
    let made = ask(&context, move |services| services.create(request)).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Everything about a service; the status tells a load balancer whether it runs on this node.
#[utoipa::path(get, path = "/v1/services/{service}", operation_id = "service_show", tag = "services",
    params(("service" = String, Path)),
    responses(
        (status = 200, description = "It runs here and is ready", body = ServiceStatus),
        (status = 503, description = "It does not", body = ServiceStatus),
        (status = "default", body = ErrorBody)))]
async fn show(
    State(context): State<Context>,
    Path(name): Path<String>,
) -> Result<Response, Failure> {
    let status = ask(&context, move |services| services.show(&name)).await?;
    let code = match status.state {
        ServiceState::Running => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    Ok((code, Json(status)).into_response())
}

/// Forgets a service that is stopped. Its volumes stay as they are.
#[utoipa::path(delete, path = "/v1/services/{service}", operation_id = "service_delete", tag = "services",
    params(("service" = String, Path)),
    responses((status = 204), (status = "default", body = ErrorBody)))]
async fn delete(
    State(context): State<Context>,
    Path(name): Path<String>,
) -> Result<StatusCode, Failure> {
    ask(&context, move |services| services.delete(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Has it run again after it was stopped, or has failed too often.
#[utoipa::path(post, path = "/v1/services/{service}/start", operation_id = "service_start", tag = "services",
    params(("service" = String, Path)),
    responses((status = 200, body = ServiceStatus), (status = "default", body = ErrorBody)))]
async fn start(State(context): State<Context>, Path(name): Path<String>) -> Reply {
    Ok(Json(
        ask(&context, move |services| services.start(&name)).await?,
    ))
}

/// Begins to stop it in order; its volumes are unmounted.
#[utoipa::path(post, path = "/v1/services/{service}/stop", operation_id = "service_stop", tag = "services",
    params(("service" = String, Path)),
    responses((status = 200, body = ServiceStatus), (status = "default", body = ErrorBody)))]
async fn stop(State(context): State<Context>, Path(name): Path<String>) -> Reply {
    Ok(Json(
        ask(&context, move |services| services.stop(&name)).await?,
    ))
}

/// Begins to move it to another node.
#[utoipa::path(post, path = "/v1/services/{service}/move", operation_id = "service_move", tag = "services",
    params(("service" = String, Path)), request_body = MoveService,
    responses((status = 200, body = ServiceStatus), (status = "default", body = ErrorBody)))]
async fn move_to(
    State(context): State<Context>,
    Path(name): Path<String>,
    MaybeBody(request): MaybeBody<MoveService>,
) -> Reply {
    Ok(Json(
        ask(&context, move |services| services.move_to(&name, &request)).await?,
    ))
}
