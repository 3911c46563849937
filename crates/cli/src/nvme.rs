//! `ashlar nvme discover` and `identify`.

use ashlar_nvme::fabrics::{AddressFamily, TransportType};
use ashlar_nvme::identify::{IdentifyController, IdentifyNamespace};
use ashlar_nvme::log::DiscoveryEntry;
use ashlar_nvme_initiator::{Host, discover, identify, local_host};
use serde_json::{Value, json};

use crate::args::{NvmeCommand, NvmeOptions};
use crate::exit::Failure;
use crate::output::print;

pub(crate) fn run(command: &NvmeCommand) -> Result<(), Failure> {
    match command {
        NvmeCommand::Discover { address, options } => {
            let entries = discover(address, &host(options)).map_err(Failure::environment)?;
            let entries: Vec<Value> = entries.iter().map(entry).collect();
            show(
                &json!({ "address": address, "subsystems": entries }),
                options,
            )
        }
        NvmeCommand::Identify {
            address,
            nqn,
            options,
        } => {
            let nqns = match nqn {
                Some(nqn) => vec![nqn.clone()],
                None => listed(address, options)?,
            };
            let found: Result<Vec<Value>, Failure> = nqns
                .iter()
                .map(|nqn| subsystem(address, nqn, options))
                .collect();
            show(
                &json!({ "address": address, "subsystems": found? }),
                options,
            )
        }
    }
}

fn host(options: &NvmeOptions) -> Host {
    options
        .hostnqn
        .as_deref()
        .map_or_else(local_host, Host::named)
}

fn listed(address: &str, options: &NvmeOptions) -> Result<Vec<String>, Failure> {
    let entries = discover(address, &host(options)).map_err(Failure::environment)?;
    if entries.is_empty() {
        let nqn = host(options).nqn;
        return Err(Failure::environment(format!(
            "{address}: nothing is offered to {nqn}"
        )));
    }
    Ok(entries.iter().map(DiscoveryEntry::subnqn).collect())
}

fn entry(entry: &DiscoveryEntry) -> Value {
    json!({
        "trtype": TransportType::from_byte(entry.trtype).map_or("?", TransportType::name),
        "adrfam": AddressFamily::from_byte(entry.adrfam).map_or("?", AddressFamily::name),
        "traddr": entry.traddr(),
        "trsvcid": entry.trsvcid(),
        "subnqn": entry.subnqn(),
    })
}

fn subsystem(address: &str, nqn: &str, options: &NvmeOptions) -> Result<Value, Failure> {
    let found = identify(address, nqn, &host(options)).map_err(Failure::environment)?;
    let namespaces: Vec<Value> = found
        .namespaces
        .iter()
        .map(|one| {
            let mut value = namespace(&one.namespace);
            value["nsid"] = one.nsid.into();
            value["uuid"] = one.ids.uuid.map(hex).into();
            value["nguid"] = one.ids.nguid.map(hex).into();
            value
        })
        .collect();
    let mut value = controller(&found.controller);
    let version = found.version;
    value["version"] = format!("{}.{}", version >> 16, version >> 8 & 0xff).into();
    value["namespaces"] = namespaces.into();
    Ok(value)
}

fn controller(id: &IdentifyController) -> Value {
    json!({
        "subnqn": id.subnqn(),
        "serial": id.serial(),
        "model": id.model(),
        "firmware": id.firmware(),
        "cntlid": id.cntlid.get(),
        "max_transfer_bytes": id.max_transfer_bytes(4096),
        "in_capsule_bytes": id.in_capsule_bytes(),
        "volatile_write_cache": id.vwc & 1 != 0,
        "max_commands": id.maxcmd.get(),
    })
}

fn namespace(id: &IdentifyNamespace) -> Value {
    let block = id.block_bytes().map(u64::from);
    let bytes = block.and_then(|block| id.nsze.get().checked_mul(block));
    json!({
        "nsid": 0,
        "size_bytes": bytes,
        "blocks": id.nsze.get(),
        "block_bytes": block,
        "atomic_write_bytes": block.map(|block| (u64::from(id.nawupf.get()) + 1) * block),
    })
}

fn hex(bytes: [u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn show(value: &Value, options: &NvmeOptions) -> Result<(), Failure> {
    if options.json {
        return print(&format!("{value:#}\n"));
    }
    let mut text = String::new();
    for subsystem in value["subsystems"].as_array().into_iter().flatten() {
        lines(subsystem, 0, &mut text);
        text.push('\n');
    }
    if text.is_empty() {
        text.push_str("nothing is offered to this host\n");
    }
    print(&text)
}

/// One `key: value` a line, nested values indented.
fn lines(value: &Value, indent: usize, out: &mut String) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let pad = " ".repeat(indent);
        match value {
            Value::Array(items) => {
                for item in items {
                    out.push_str(&format!("{pad}{key}:\n"));
                    lines(item, indent + 2, out);
                }
            }
            // A target's words.
            Value::String(text) => {
                out.push_str(&format!("{pad}{key}: {}\n", ashlar_nvme::escape(text)));
            }
            other => out.push_str(&format!("{pad}{key}: {other}\n")),
        }
    }
}
