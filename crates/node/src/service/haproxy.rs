//! HAProxy before a service: clients are led to the node where it runs.

use std::path::Path;

use crate::Token;
use crate::model::ControlError;

/// Its configuration. Each node is asked whether it runs the service; the one that does has the clients.
///
/// # Errors
/// Usage: a node that is not `HOST:APIPORT:PORT`. Environment: the token cannot be read.
pub fn haproxy(
    service: &str,
    listen: &str,
    nodes: &[String],
    token_file: Option<&Path>,
) -> Result<String, ControlError> {
    let token = match token_file {
        Some(path) => Token::read(path)?.header(),
        None => "Bearer TOKEN".into(),
    };
    let mut text = format!(
        "# Clients of {service} are led to the node where it runs: `ashlar service haproxy`.\n\
         listen {service}\n    mode tcp\n    bind {listen}\n    # A retry here waits a second for a node that is gone; a client's own \
         finds the next.\n    retries 0\n    timeout connect 1s\n    timeout client 1h\n    \
         timeout server 1h\n    timeout check 1s\n    option httpchk\n    \
         http-check send meth GET uri /v1/services/{service} ver HTTP/1.1 hdr Host ashlar hdr Authorization \
         \"{token}\"\n    http-check expect status 200\n    \
         default-server inter 500 fastinter 100 downinter 100 fall 2 rise 1 on-marked-down shutdown-sessions\n"
    );
    for (at, node) in nodes.iter().enumerate() {
        let wrong = || ControlError::usage(format!("--node {node}: must be HOST:APIPORT:PORT"));
        let (rest, port) = node.rsplit_once(':').ok_or_else(wrong)?;
        let (host, api) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let numbers = (api.parse::<u16>(), port.parse::<u16>());
        let (Ok(api), Ok(port)) = numbers else {
            return Err(wrong());
        };
        if host.is_empty() {
            return Err(wrong());
        }
        text.push_str(&format!(
            "    server node{} {host}:{port} check port {api}\n",
            at + 1
        ));
    }
    Ok(text)
}
