//! Asks a node's keeper over HTTP: by a unix socket of the listener, which leads into the node's network; on given hosts
//! by TCP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ashlar_lab::LabError;

use super::node::NodeName;
use super::{Group, LOOK_EVERY, Role};

/// An answer takes so long at most; a switch-over is answered when it is done.
const SWITCH_OVER_TIMEOUT: Duration = Duration::from_secs(60);
const PROMPT: Duration = Duration::from_secs(2);
/// More than any answer has.
const LONGEST: u64 = 64 << 10;

/// What a keeper answered.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Group {
    /// Whether the quorum has this node as the one that commits wait for.
    pub(super) fn is_sync_standby(&self, node: NodeName) -> bool {
        let asked = self.ask_keeper(node, "GET /sync", "", PROMPT);
        asked.is_ok_and(|answer| answer.status == 200)
    }

    /// Has the other node be the primary, in order.
    ///
    /// # Errors
    /// There is no primary; Patroni's own complaint.
    pub fn switch_over(&self) -> Result<(), LabError> {
        let from = self.primary();
        let from =
            from.ok_or_else(|| LabError::environment("there is no primary that could be moved"))?;
        self.switch_over_from(from)?;
        // Patroni answers when the quorum names the other; its database is promoted after that.
        let begun = Instant::now();
        while self.role(from.other()) != Role::Primary {
            if begun.elapsed() > SWITCH_OVER_TIMEOUT {
                return Err(LabError::environment(format!(
                    "node {} is not the primary {} s after POST /switchover was answered",
                    from.other(),
                    SWITCH_OVER_TIMEOUT.as_secs()
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    pub(crate) fn switch_over_from(&self, from: NodeName) -> Result<(), LabError> {
        let body = serde_json::json!({"leader": from, "candidate": from.other()}).to_string();
        moved(self.ask_keeper(from, "POST /switchover", &body, SWITCH_OVER_TIMEOUT))
    }

    fn ask_keeper(
        &self,
        node: NodeName,
        what: &str,
        body: &str,
        patience: Duration,
    ) -> std::io::Result<Answer> {
        let stream = UnixStream::connect(self.keeper_socket(node))?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(PROMPT))?;
        ask(stream, &format!("{what} HTTP/1.1"), body)
    }
}

/// What a keeper has answered to a switch-over.
pub(super) fn moved(answer: std::io::Result<Answer>) -> Result<(), LabError> {
    let answer = answer.map_err(|error| LabError::caused("POST /switchover", error))?;
    match answer.status {
        200 => Ok(()),
        status => Err(LabError::environment(format!(
            "POST /switchover: {status} {}",
            answer.body.trim()
        ))),
    }
}

/// Posts to a program of a group as a user with a password.
pub(super) fn post_as(
    to: SocketAddr,
    (user, password): (&str, &str),
    (path, body): (&str, &str),
) -> std::io::Result<Answer> {
    let user = base64(format!("{user}:{password}").as_bytes());
    post(to, Some(&format!("Basic {user}")), path, body)
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let at = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for index in 0..4 {
            let six = (bits >> (18 - 6 * index)) & 63;
            text.push(match index <= three.len() {
                true => LETTERS[six as usize].into(),
                false => '=',
            });
        }
    }
    text
}

/// Posts to a program of a group, by what it was entered with, if it was.
pub(super) fn post(
    to: SocketAddr,
    token: Option<&str>,
    path: &str,
    body: &str,
) -> std::io::Result<Answer> {
    let stream = TcpStream::connect_timeout(&to, PROMPT)?;
    stream.set_read_timeout(Some(SWITCH_OVER_TIMEOUT))?;
    stream.set_write_timeout(Some(PROMPT))?;
    let by = token.map_or(String::new(), |token| format!("\r\nAuthorization: {token}"));
    ask(stream, &format!("POST {path} HTTP/1.1{by}"), body)
}

fn ask<S: Read + Write>(mut stream: S, head: &str, body: &str) -> std::io::Result<Answer> {
    let length = body.len();
    write!(
        stream,
        "{head}\r\nHost: keeper\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    let mut text = Vec::new();
    stream.take(LONGEST).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let status = text
        .split_whitespace()
        .nth(1)
        .and_then(|word| word.parse().ok());
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok(Answer {
        status: status.unwrap_or(0),
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_in_base64_as_others_have_them() {
        for (bytes, wanted) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), wanted);
        }
        assert_eq!(base64(&[251, 255]), "+/8=");
    }
}
