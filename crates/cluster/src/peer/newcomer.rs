//! Who has a token and no certificate yet: a request and its answer, each a length and JSON, within TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::wire::PREFIX_BYTES;
use crate::members;
use crate::shared::Shared;
use crate::trust::Line;

/// What such a connection begins with; the same in all versions.
pub(crate) const JOIN_MAGIC: [u8; PREFIX_BYTES] = *b"ASHJ\x01\0\0\0";
/// Bytes of an answer, at most: it names all nodes.
pub(crate) const LONGEST_ANSWER: usize = 256 << 10;
/// Bytes of a request, at most. Any machine can send one.
const LONGEST_REQUEST: usize = 8 << 10;
/// How long a request may take to arrive, or an answer to leave.
const TRANSFER: Duration = Duration::from_secs(5);

/// Sends one.
pub(crate) async fn tell(line: &mut Line, what: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(what)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend_from_slice(&text);
    line.say(&bytes).await
}

/// Receives one of so many bytes at most.
pub(crate) async fn hear<T: DeserializeOwned>(line: &mut Line, longest: usize) -> io::Result<T> {
    let length = line.read_u32_le().await? as usize;
    if length > longest {
        return Err(io::Error::other(format!("{length} bytes are too many")));
    }
    let mut text = vec![0; length];
    line.read_exact(&mut text).await?;
    Ok(serde_json::from_slice(&text)?)
}

pub(super) async fn take(shared: &Arc<Shared>, mut line: Line) -> io::Result<()> {
    if matches!(line, Line::Plain(_)) {
        return Err(io::Error::other(
            "a node that joins is answered within TLS only",
        ));
    }
    let request = timeout(TRANSFER, hear(&mut line, LONGEST_REQUEST)).await??;
    let answer = members::take(shared, request).await;
    timeout(TRANSFER, tell(&mut line, &answer)).await??;
    timeout(TRANSFER, line.shutdown()).await?
}
