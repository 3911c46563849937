use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use crate::lock;

/// Connections of one address that have not shown the key yet, at most.
const OF_ONE_ADDRESS: usize = 128;
/// The same of all addresses that are no node's.
const OF_STRANGERS: usize = 256;

/// Bounds what connections cost that have not shown the key: strangers cannot take the places of nodes.
#[derive(Debug, Default)]
pub(super) struct Gate {
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    by_address: HashMap<IpAddr, usize>,
    strangers: usize,
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(super) struct Pass {
    gate: Arc<Gate>,
    address: IpAddr,
    is_stranger: bool,
}

impl Gate {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// `is_node`: it is the address of one.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr, is_node: bool) -> Option<Pass> {
        let mut inside = lock(&self.inside);
        let is_stranger = !is_node;
        if is_stranger && inside.strangers >= OF_STRANGERS {
            return None;
        }
        let of_address = inside.by_address.entry(address).or_default();
        if *of_address >= OF_ONE_ADDRESS {
            return None;
        }
        *of_address += 1;
        inside.strangers += usize::from(is_stranger);
        Some(Pass {
            gate: self.clone(),
            address,
            is_stranger,
        })
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut inside = lock(&self.gate.inside);
        if self.is_stranger {
            inside.strangers -= 1;
        }
        if let Some(count) = inside.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                inside.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_fill_their_own_places_only() {
        let address = |n: usize| IpAddr::from([10, 0, (n / 256) as u8, (n % 256) as u8]);
        let gate = Gate::new();
        let one: Vec<Pass> = (0..OF_ONE_ADDRESS)
            .filter_map(|_| gate.enter(address(2), false))
            .collect();
        assert_eq!(one.len(), OF_ONE_ADDRESS);
        assert!(gate.enter(address(2), false).is_none());
        let rest: Vec<Pass> = (3..1000)
            .filter_map(|n| gate.enter(address(n), false))
            .collect();
        assert_eq!(rest.len(), OF_STRANGERS - OF_ONE_ADDRESS);
        let node: Vec<Pass> = (0..1000)
            .filter_map(|_| gate.enter(address(1), true))
            .collect();
        assert_eq!(node.len(), OF_ONE_ADDRESS);
        drop((one, rest, node));
        assert!(gate.enter(address(2), false).is_some());
        assert!(lock(&gate.inside).by_address.is_empty());
        assert_eq!(lock(&gate.inside).strangers, 0);
    }
}
