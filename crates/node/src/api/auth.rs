use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONNECTION, HeaderMap, WWW_AUTHENTICATE};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};

use super::reply::Failure;
use super::visitors::Visitor;
use crate::Token;
use crate::model::ErrorKind;

/// Lets in only who says the token.
pub(super) fn guarded(router: Router, token: Token) -> Router {
    router.layer(from_fn_with_state(token, guard))
}

async fn guard(State(token): State<Token>, request: Request, next: Next) -> Response {
    if said(request.headers()).is_some_and(|said| token.is(said)) {
        return next.run(request).await;
    }
    let message = "the API takes a bearer token over TCP: the text of DIR/api.token";
    let failure = Failure::new(ErrorKind::Unauthorized, message).into_response();
    // Strangers do not keep connections.
    (
        [(WWW_AUTHENTICATE, "Bearer"), (CONNECTION, "close")],
        failure,
    )
        .into_response()
}

/// A request that may be carried out: its connection is a stranger no more.
pub(super) async fn let_in(request: Request, next: Next) -> Response {
    if let Some(visitor) = request.extensions().get::<Arc<Visitor>>().cloned() {
        visitor.let_in().await;
    }
    next.run(request).await
}

fn said(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
