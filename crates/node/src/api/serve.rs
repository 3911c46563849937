//! Connections of the API: so many, so long, and an end.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::auth::{guarded, let_in};
use super::caller::{Callers, record};
use super::visitors::{Visitor, Visitors};
use crate::Token;
use crate::alarm::panic_text;

/// How long the head of a request may take, and a connection that was let in be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may take until it is let in.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(3);
/// Largest head of a request.
const HEAD_BYTES: usize = 64 << 10;
/// How long answers may take to leave when everything ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// Serves connections until `stop` says so, and then until the requests under way are answered.
/// With a token, only to those who say it.
///
/// # Errors
/// A connection's task has died: a defect.
pub(crate) async fn serve<L: Callers>(
    mut listener: L,
    router: Router,
    token: Option<Token>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), String>
where
    L::Io: 'static,
{
    let router = router.layer(from_fn(record)).layer(from_fn(let_in));
    let router = match token {
        Some(token) => guarded(router, token),
        None => router,
    };
    let graceful = GracefulShutdown::new();
    let visitors = Visitors::new();
    let mut tasks = JoinSet::new();
    loop {
        let (io, address) = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            Some(ended) = tasks.join_next() => {
                died(ended)?;
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let visitor = visitors.enter(L::caller(&io, &address));
        let service = TowerToHyperService::new(router.clone());
        let whose = visitor.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(whose.clone());
            service.call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(io), service);
        let connection = graceful.watch(connection);
        tasks.spawn(async move {
            tokio::select! {
                // What goes wrong on a connection is its client's affair.
                _ = connection => {}
                () = overstays(&visitor) => {}
            }
        });
        // A head that is there is read before the next connection may ask for this one's place.
        tokio::task::yield_now().await;
    }
    drop(listener);
    // A client that does not take its answer in time does not get it.
    let _ = tokio::time::timeout(FAREWELL, graceful.shutdown()).await;
    Ok(())
}

/// Waits until a stranger has had its time, or its place is another's.
async fn overstays(visitor: &Arc<Visitor>) {
    let left = tokio::time::timeout(STRANGER_TIMEOUT, visitor.must_leave()).await;
    if left.is_err() && !visitor.is_stranger() {
        std::future::pending::<()>().await;
    }
}

fn died(ended: Result<(), tokio::task::JoinError>) -> Result<(), String> {
    match ended {
        Err(error) if error.is_panic() => Err(panic_text(error.into_panic().as_ref())),
        _ => Ok(()),
    }
}
