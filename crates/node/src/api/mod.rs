//! The REST API over HTTP/1.1.
//!
//! | path | what |
//! |-|-|
//! | `GET /v1/node` | the daemon |
//! | `GET POST /v1/pools` | list, create |
//! | `GET /v1/pools/{pool}` | status |
//! | `POST /v1/pools/{pool}/import`, `…/export`, `…/scrub`, `…/repair` | |
//! | `PUT /v1/pools/{pool}/reserve` | how much is kept for repair |
//! | `POST /v1/pools/{pool}/drives`, `…/drives/replace`, `…/drives/remove` | |
//! | `GET POST /v1/volumes` | list, create |
//! | `GET DELETE /v1/volumes/{pool}/{volume}` | show, delete |
//! | `PUT /v1/volumes/{pool}/{volume}/size`, `…/hosts`, `…/when-degraded`, `…/follow` | resize; who may connect; what it does without redundancy; whether ownership follows hosts |
//! | `POST /v1/volumes/{pool}/{volume}/hosts/allow`, `…/hosts/deny` | one host more or less that may |
//! | `GET /v1/volumes/{pool}/{volume}/stats` | counters |
//! | `POST /v1/volumes/{pool}/{volume}/replicate`, `…/move`, `…/run-alone` | copies on other nodes; another node serves it; without the others |
//! | `GET /v1/cluster`, `POST /v1/cluster/drain`, `GET /v1/events` | nodes, what they serve, what has happened |
//! | `POST /v1/cluster/token`, `…/forget`, `…/replace`, `…/leave` | who is to be in the cluster |
//! | `GET POST /v1/services` | list, create |
//! | `GET DELETE /v1/services/{service}` | show: 200 where it runs, 503 elsewhere; forget |
//! | `POST /v1/services/{service}/start`, `…/stop`, `…/move` | |
//! | `GET /v1/openapi.json` | all of this, for machines |
//! | `GET /metrics` | OpenMetrics text, for Prometheus |
//!
//! `reply` has what all handlers share, `calls` carries a request to [`Control`] on a blocking
//! thread, `listen` and `serve` are the sockets and their connections, `visitors` who of them may stay,
//! `caller` who they are and what they have ordered.

mod auth;
mod caller;
mod calls;
mod cluster;
mod listen;
mod metrics;
mod pools;
mod reply;
mod rules;
mod serve;
mod services;
mod visitors;
mod volumes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{DefaultBodyLimit, State};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) use calls::Calls;
pub(crate) use listen::{ApiSocket, ApiTcp};
pub(crate) use serve::serve;

use crate::model::{ControlError, ErrorBody, ErrorKind, NodeStatus};
use crate::service::Services;
use crate::{Alarm, Control};
use reply::Failure;

/// Largest body of a request, in bytes: a volume with 1,024 hosts takes a quarter of it.
const MAX_BODY: usize = 1 << 20;

/// What handlers work with.
#[derive(Clone)]
pub(crate) struct Context(Arc<Shared>);

struct Shared {
    calls: Calls,
    dir: PathBuf,
    started: Instant,
    description: String,
    services: Option<Arc<Services>>,
}

impl Context {
    pub(crate) fn new(
        control: Arc<dyn Control>,
        alarm: Alarm,
        dir: PathBuf,
        services: Option<Arc<Services>>,
    ) -> Result<Self, ControlError> {
        let description = description().to_pretty_json();
        Ok(Self(Arc::new(Shared {
            calls: Calls::new(control, alarm),
            dir,
            started: Instant::now(),
            services,
            description: description
                .map_err(|error| ControlError::internal(format!("openapi.json: {error}")))?,
        })))
    }

    /// The services that it keeps, if it does.
    pub(crate) fn services(&self) -> Option<Arc<Services>> {
        self.0.services.clone()
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.0.calls
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Ashlar",
        description = "Pools and volumes of one node. Over the unix socket every process that may open it is let in; \
                       over TCP every request carries the token. Errors are JSON: \
                       `{\"error\":{\"kind\",\"message\"}}`.",
    ),
    components(schemas(ErrorBody)),
    security(("token" = [])),
    tags(
        (name = "node", description = "The daemon"),
        (name = "pools", description = "Drives that became pools"),
        (name = "volumes", description = "Block devices for hosts"),
        (name = "cluster", description = "Nodes that have copies of one another's volumes"),
        (name = "services", description = "Databases that are kept up where their volumes are"),
    )
)]
struct Description;

fn described() -> OpenApiRouter<Context> {
    let mut openapi = Description::openapi();
    let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    let components = openapi.components.get_or_insert_default();
    components.add_security_scheme("token", SecurityScheme::Http(token));
    OpenApiRouter::with_openapi(openapi)
        .routes(routes!(node))
        .merge(pools::routes())
        .merge(volumes::routes())
        .merge(rules::routes())
        .merge(services::routes())
        .merge(cluster::routes())
}

/// The OpenAPI document of the API.
pub fn description() -> utoipa::openapi::OpenApi {
    described().into_openapi()
}

/// Everything the API answers to.
pub(crate) fn router(context: Context) -> Router {
    let (router, _) = described().split_for_parts();
    router
        .route("/v1/openapi.json", get(openapi))
        .route("/metrics", get(metrics))
        .fallback(nowhere)
        .method_not_allowed_fallback(not_so)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(context)
}

/// The daemon itself.
#[utoipa::path(get, path = "/v1/node", tag = "node",
    responses((status = 200, body = NodeStatus)))]
async fn node(State(context): State<Context>) -> Result<Json<NodeStatus>, Failure> {
    let address = context
        .calls()
        .call(|control| Ok(control.address()))
        .await?;
    Ok(Json(NodeStatus {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        uptime_seconds: context.0.started.elapsed().as_secs(),
        address: address.to_string(),
        dir: context.0.dir.display().to_string(),
    }))
}

async fn openapi(State(context): State<Context>) -> impl IntoResponse {
    let kind = [("content-type", "application/json")];
    (kind, context.0.description.clone())
}

async fn metrics(State(context): State<Context>) -> Result<impl IntoResponse, Failure> {
    let snapshot = context
        .calls()
        .call(|control| Ok(control.metrics()))
        .await?;
    let services = context.services();
    let services = services.map(|services| services.list()).unwrap_or_default();
    let text = metrics::render(&snapshot, &services, context.0.started.elapsed())?;
    Ok(([("content-type", metrics::CONTENT_TYPE)], text))
}

async fn nowhere(uri: axum::http::Uri) -> Failure {
    let path = uri.path();
    Failure::new(
        ErrorKind::NotFound,
        format!("there is no {path}; see /v1/openapi.json"),
    )
}

async fn not_so(method: axum::http::Method, uri: axum::http::Uri) -> impl IntoResponse {
    let path = uri.path();
    let message = format!("{path} does not take {method}; see /v1/openapi.json");
    let failure = Failure::new(ErrorKind::Usage, message);
    failure.with_status(axum::http::StatusCode::METHOD_NOT_ALLOWED)
}
