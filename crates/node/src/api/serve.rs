//! Connections of the API: so many, so long, and an end.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::auth::guarded;
use crate::Token;
use crate::alarm::panic_text;

/// Most connections a listener holds; others wait to be accepted.
const CONNECTIONS: usize = 64;
/// How long the head of a request may take, and a connection be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest head of a request.
const HEAD_BYTES: usize = 64 << 10;
/// How long answers may take to leave when everything ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// Serves connections until `stop` says so, and then until the requests under way are answered.
/// With a token, only to those who say it.
///
/// # Errors
/// A connection's task has died: a defect.
pub(crate) async fn serve<L: Listener>(
    mut listener: L,
    router: Router,
    token: Option<Token>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), String>
where
    L::Io: 'static,
{
    let router = match token {
        Some(token) => guarded(router, token),
        None => router,
    };
    let graceful = GracefulShutdown::new();
    let seats = Arc::new(Semaphore::new(CONNECTIONS));
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            Some(ended) = tasks.join_next() => died(ended)?,
            (seat, io) = next(&mut listener, &seats) => {
                let service = TowerToHyperService::new(router.clone());
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIMEOUT)
                    .max_buf_size(HEAD_BYTES)
                    .serve_connection(TokioIo::new(io), service);
                let connection = graceful.watch(connection);
                tasks.spawn(async move {
                    // What goes wrong on a connection is its client's affair.
                    let _ = connection.await;
                    drop(seat);
                });
            }
        }
    }
    drop(listener);
    // Whoever does not take its answer in time does not get it.
    let _ = tokio::time::timeout(FAREWELL, graceful.shutdown()).await;
    Ok(())
}

type Seat = Option<tokio::sync::OwnedSemaphorePermit>;

async fn next<L: Listener>(listener: &mut L, seats: &Arc<Semaphore>) -> (Seat, L::Io) {
    // The semaphore is never closed, so there is always a permit in the end.
    let seat = seats.clone().acquire_owned().await.ok();
    let (io, _) = listener.accept().await;
    (seat, io)
}

fn died(ended: Result<(), tokio::task::JoinError>) -> Result<(), String> {
    match ended {
        Err(error) if error.is_panic() => Err(panic_text(error.into_panic().as_ref())),
        _ => Ok(()),
    }
}
