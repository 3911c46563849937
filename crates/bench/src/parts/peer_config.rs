//! What a peer's target (SPDK's `nvmf_tgt`) is told: one memory device, one listener, its POSIX
//! sockets without zero-copy sending, which costs more than it saves on loopback.

use serde_json::{Value, json};

/// The name of the peer's subsystem.
pub(super) const PEER_NQN: &str = "nqn.2016-06.io.spdk:ashlar-bench";

/// Its configuration file, for a device of `blocks` blocks of 4 KiB.
pub(super) fn config(port: u16, blocks: u64) -> Value {
    let call = |method: &str, params: Value| json!({"method": method, "params": params});
    let posix = json!({
        "impl_name": "posix",
        "enable_zerocopy_send_server": false,
        "enable_zerocopy_send_client": false,
    });
    let listen = json!({
        "trtype": "TCP", "adrfam": "IPv4", "traddr": "127.0.0.1", "trsvcid": port.to_string(),
    });
    json!({"subsystems": [
        {"subsystem": "sock", "config": [
            call("sock_set_default_impl", json!({"impl_name": "posix"})),
            call("sock_impl_set_options", posix),
        ]},
        {"subsystem": "bdev", "config": [
            call("bdev_malloc_create",
                 json!({"name": "Malloc0", "num_blocks": blocks, "block_size": 4096})),
        ]},
        {"subsystem": "nvmf", "config": [
            call("nvmf_create_transport", json!({"trtype": "TCP"})),
            call("nvmf_create_subsystem", json!({
                "nqn": PEER_NQN, "allow_any_host": true, "serial_number": "BENCH0000000001",
            })),
            call("nvmf_subsystem_add_ns",
                 json!({"nqn": PEER_NQN, "namespace": {"bdev_name": "Malloc0"}})),
            call("nvmf_subsystem_add_listener",
                 json!({"nqn": PEER_NQN, "listen_address": listen})),
        ]},
    ]})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_text_and_sends_copy() {
        let text = config(4420, 32_768).to_string();
        assert!(text.contains(r#""trsvcid":"4420""#));
        assert!(text.contains(r#""enable_zerocopy_send_server":false"#));
        assert!(text.contains(r#""num_blocks":32768"#));
    }
}
