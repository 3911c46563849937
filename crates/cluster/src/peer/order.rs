//! One order and its answer over a connection: length, proof, JSON.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use ashlar_replica::NodeId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::call::Called;
use super::handshake::{Session, Way};
use crate::cluster::Local;
use crate::key::MAC_BYTES;
use crate::problem::{Kind, OrderError, Problem};
use crate::trust::Line;

/// Bytes of an order or an answer, at most.
pub(crate) const MAX_ORDER: usize = 16 << 20;
/// How long an order may take from its first byte to its last, or the answer.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(10);
/// What is read before there is memory for more.
const STEP: usize = 64 << 10;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Done(Value),
    Problem(Problem),
}

/// Gives an order, and waits for its answer: an error of the connection is text.
pub(crate) async fn give(
    called: Called,
    order: &[u8],
) -> Result<Result<Value, OrderError>, String> {
    let Called {
        mut line, session, ..
    } = called;
    let said = |error: io::Error| error.to_string();
    send(&mut line, &session, Way::ToCalled, order)
        .await
        .map_err(said)?;
    let answer = receive(&mut line, &session, Way::ToCaller)
        .await
        .map_err(said)?;
    let answer: Answer = serde_json::from_slice(&answer)
        .map_err(|error| format!("what it answers is no answer: {error}"))?;
    Ok(match answer {
        Answer::Done(value) => Ok(value),
        Answer::Problem(problem) => Err(problem.into()),
    })
}

/// Takes an order, has it carried out, and answers. It is carried out even if who gave it goes away.
pub(super) async fn take(
    mut line: Line,
    session: Session,
    local: Arc<dyn Local>,
    from: NodeId,
) -> io::Result<()> {
    let order = receive(&mut line, &session, Way::ToCalled);
    let order = timeout(TRANSFER_TIMEOUT, order).await??;
    let done = spawn_blocking(move || carry_out(&*local, from, &order));
    let answer = done.await.map_err(io::Error::other)?;
    let answer = serde_json::to_vec(&answer)?;
    timeout(
        TRANSFER_TIMEOUT,
        send(&mut line, &session, Way::ToCaller, &answer),
    )
    .await?
}

fn carry_out(local: &dyn Local, from: NodeId, order: &[u8]) -> Answer {
    let problem = match serde_json::from_slice(order) {
        Ok(order) => match catch_unwind(AssertUnwindSafe(|| local.order(from, order))) {
            Ok(Ok(value)) => return Answer::Done(value),
            Ok(Err(OrderError::Refused { kind, message })) => Problem::new(kind, message),
            Ok(Err(OrderError::Unreachable(why))) => Problem::environment(why),
            Err(_) => {
                Problem::internal("what carried out the order has died; the node's log has more")
            }
        },
        Err(error) => Problem::new(Kind::Usage, format!("the order is no JSON: {error}")),
    };
    Answer::Problem(problem)
}

async fn send(line: &mut Line, session: &Session, way: Way, text: &[u8]) -> io::Result<()> {
    if text.len() > MAX_ORDER {
        return Err(io::Error::other(format!(
            "{} bytes are too many",
            text.len()
        )));
    }
    let mut head = [0; 4 + MAC_BYTES];
    head[..4].copy_from_slice(&(text.len() as u32).to_le_bytes());
    head[4..].copy_from_slice(&session.seal(way, text));
    line.write_all(&head).await?;
    line.say(text).await
}

async fn receive(line: &mut Line, session: &Session, way: Way) -> io::Result<Vec<u8>> {
    let length = line.read_u32_le().await? as usize;
    let mut seal = [0; MAC_BYTES];
    line.read_exact(&mut seal).await?;
    if length > MAX_ORDER {
        return Err(io::Error::other(format!("{length} bytes are too many")));
    }
    let mut text = Vec::new();
    while text.len() < length {
        let at = text.len();
        text.resize(length.min(at + STEP), 0);
        line.read_exact(&mut text[at..]).await?;
    }
    match session.is_seal(way, &text, &seal) {
        true => Ok(text),
        false => Err(io::Error::other("what came is not what was sent")),
    }
}
