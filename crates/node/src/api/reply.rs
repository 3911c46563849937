//! What all handlers share: errors as JSON, and requests that are checked before they are carried out.

use std::error::Error;
use std::time::Duration;

use axum::Json;
use axum::body::HttpBody;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use super::Context;
use crate::model::{Check, ControlError, ErrorBody, ErrorKind, VolumeName, check_name};

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// An answer that is not a success.
#[derive(Debug)]
pub(crate) struct Failure(ControlError);

impl Failure {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(ControlError::new(kind, message))
    }

    /// The same under another HTTP status.
    pub(crate) fn with_status(self, status: StatusCode) -> Response {
        let told = Told(self.0.message.clone());
        let mut response = (status, Json(ErrorBody { error: self.0 })).into_response();
        response.extensions_mut().insert(told);
        response
    }
}

/// What a caller is told of a request that was not carried out, for the record.
#[derive(Clone)]
pub(crate) struct Told(pub(crate) String);

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.kind.http_status());
        self.with_status(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
    }
}

/// A body that makes sense.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned + Check> FromRequest<Context> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: Request, context: &Context) -> Result<Self, Response> {
        let body = Json::<T>::from_request(request, context);
        let body = tokio::time::timeout(BODY_TIMEOUT, body)
            .await
            .map_err(|_| {
                let message = format!(
                    "the body did not arrive within {} s",
                    BODY_TIMEOUT.as_secs()
                );
                Failure::new(ErrorKind::Usage, message).with_status(StatusCode::REQUEST_TIMEOUT)
            })?;
        let Json(value) = body.map_err(bad_body)?;
        value
            .check()
            .map_err(|error| Failure(error).into_response())?;
        Ok(Self(value))
    }
}

/// A body that may be left out, which says nothing special.
pub(crate) struct MaybeBody<T>(pub(crate) T);

impl<T: DeserializeOwned + Check + Default> FromRequest<Context> for MaybeBody<T> {
    type Rejection = Response;

    async fn from_request(request: Request, context: &Context) -> Result<Self, Response> {
        if request.body().is_end_stream() {
            return Ok(Self(T::default()));
        }
        let Body(value) = Body::from_request(request, context).await?;
        Ok(Self(value))
    }
}

fn bad_body(rejection: JsonRejection) -> Response {
    // Which of the 4xx it is (too large, not JSON, another type) is worth keeping.
    let status = match rejection.status() {
        StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
        status => status,
    };
    let why = match &rejection {
        JsonRejection::JsonDataError(error) => parsed(error),
        JsonRejection::JsonSyntaxError(error) => format!("it is not JSON: {}", parsed(error)),
        other => other.body_text(),
    };
    let message = format!("the body of the request: {why}");
    Failure::new(ErrorKind::Usage, message).with_status(status)
}

/// What a parser has said, without what is said around it, in plain words. What it is about comes first.
fn parsed(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    ashlar_plain::reworded(&innermost.to_string())
}

/// A query that makes sense.
pub(crate) struct Options<T>(pub(crate) T);

impl<T: DeserializeOwned + Check> FromRequestParts<Context> for Options<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, context: &Context) -> Result<Self, Failure> {
        let query = Query::<T>::from_request_parts(parts, context).await;
        let Query(value) = query.map_err(|bad| {
            let message = format!("what follows ? in the path: {}", parsed(&bad));
            Failure::new(ErrorKind::Usage, message)
        })?;
        value.check()?;
        Ok(Self(value))
    }
}

/// The pool that a path names.
pub(crate) struct PoolPath(pub(crate) String);

impl FromRequestParts<Context> for PoolPath {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, context: &Context) -> Result<Self, Failure> {
        let path = Path::<String>::from_request_parts(parts, context).await;
        let Path(name) = path.map_err(|bad| Failure::new(ErrorKind::Usage, bad.body_text()))?;
        check_name("pool", &name)?;
        Ok(Self(name))
    }
}

/// The volume that a path names.
pub(crate) struct VolumePath(pub(crate) VolumeName);

impl FromRequestParts<Context> for VolumePath {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, context: &Context) -> Result<Self, Failure> {
        let path = Path::<(String, String)>::from_request_parts(parts, context).await;
        let Path((pool, name)) =
            path.map_err(|bad| Failure::new(ErrorKind::Usage, bad.body_text()))?;
        Ok(Self(VolumeName::new(&pool, &name)?))
    }
}
