//! Who may have how much of a core's buffers.
//!
//! A buffer that waits for a host's data, or holds data that a host has yet to take, comes back when the
//! host likes. So what hosts hold is counted by *account*: each host that a subsystem's list names has its
//! own, all others share one, however many names and connections they come with. An account may hold as
//! much as is left free for others, and a connection as much as its account may still take: however many
//! hold what they were lent, there is room for the next. Connections that give back what they are lent, and
//! those that have not yet, or do no more, are counted apart, and the latter cannot touch the last
//! quarter: neither keeps the other out.
//!
//! Data in a capsule is not subject to this: it may stand in the stream before data that was asked for,
//! and would wait for it. It is one capsule a connection.

use std::collections::HashMap;

use slab::Slab;

/// What is not lent to those who have not shown that they pay: one part of so many of the buffers.
const KEPT_FOR_PAYERS: usize = 4;

/// An account of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AccountId(usize);

/// The account of all hosts that no list names.
pub(crate) const UNLISTED: AccountId = AccountId(0);

#[derive(Default)]
struct Account {
    /// The host that a list names.
    nqn: Option<String>,
    connections: usize,
    /// Buffer bytes that its connections hold: those that do not pay, and those that do.
    in_use: [usize; 2],
}

/// What a connection is charged for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    /// Buffer bytes that it holds.
    pub(crate) bytes: usize,
    /// It has lately given back what it was lent.
    pub(crate) pays: bool,
}

/// Buffers that a command wants to hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    /// Bytes of buffers.
    pub(crate) bytes: usize,
    /// Bytes that its connection must be able to have besides.
    pub(crate) spare: usize,
    /// What its connection holds.
    pub(crate) now: Charge,
    /// What was charged to its account so far.
    pub(crate) charged: Charge,
}

/// A core's accounts.
pub(crate) struct Shares {
    /// Bytes of all buffers.
    capacity: usize,
    accounts: Slab<Account>,
    by_nqn: HashMap<String, AccountId>,
}

impl Shares {
    pub(crate) fn new(capacity: usize) -> Self {
        let mut accounts = Slab::new();
        // The first is UNLISTED, which is never closed.
        accounts.insert(Account::default());
        Self {
            capacity,
            accounts,
            by_nqn: HashMap::new(),
        }
    }

    /// The account of a host that a list names, for one more connection.
    pub(crate) fn open(&mut self, nqn: &str) -> AccountId {
        let id = match self.by_nqn.get(nqn) {
            Some(&id) => id,
            None => {
                let account = Account {
                    nqn: Some(nqn.to_owned()),
                    ..Account::default()
                };
                let id = AccountId(self.accounts.insert(account));
                self.by_nqn.insert(nqn.to_owned(), id);
                id
            }
        };
        self.accounts[id.0].connections += 1;
        id
    }

    /// A connection of the account, which holds nothing any more, has ended.
    pub(crate) fn close(&mut self, id: AccountId) {
        if id == UNLISTED {
            return;
        }
        let account = &mut self.accounts[id.0];
        account.connections -= 1;
        if account.connections == 0 {
            debug_assert_eq!(
                account.in_use,
                [0, 0],
                "what a connection held is given back"
            );
            let account = self.accounts.remove(id.0);
            if let Some(nqn) = account.nqn {
                self.by_nqn.remove(&nqn);
            }
        }
    }

    /// What a connection of the account holds has changed.
    pub(crate) fn charge(&mut self, id: AccountId, before: Charge, now: Charge) {
        let in_use = &mut self.accounts[id.0].in_use;
        in_use[usize::from(before.pays)] -= before.bytes;
        in_use[usize::from(now.pays)] += now.bytes;
    }

    /// Bytes that the account's connections hold.
    pub(crate) fn in_use(&self, id: AccountId) -> usize {
        self.accounts[id.0].in_use.iter().sum()
    }

    /// Whether a connection of the account may have more, while `free` bytes of buffers are left.
    pub(crate) fn may_lend(&self, id: AccountId, free: usize, want: &Want) -> bool {
        let needed = want.bytes.next_power_of_two();
        let Some(left) = free.checked_sub(needed) else {
            return false;
        };
        let mut others = self.accounts[id.0].in_use;
        others[usize::from(want.charged.pays)] -= want.charged.bytes;
        if others == [0, 0] && want.now.bytes == 0 {
            // Whatever other hosts hold: one command of each host goes on.
            return true;
        }
        let kept = match want.now.pays {
            true => 0,
            false => self.capacity / KEPT_FOR_PAYERS,
        };
        let most = left.saturating_sub(kept);
        let own = want.now.bytes + want.bytes;
        let room = most.checked_sub(others[usize::from(want.now.pays)] + own);
        room.is_some_and(|room| own + want.spare <= room)
    }

    /// Whether so little is left that it matters to every account.
    pub(crate) fn is_scarce(&self, free: usize) -> bool {
        free < self.capacity / KEPT_FOR_PAYERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// A core whose hosts hold what they are lent.
    struct Hoard {
        shares: Shares,
        free: usize,
    }

    impl Hoard {
        fn new(mib: usize) -> Self {
            Self {
                shares: Shares::new(mib * MIB),
                free: mib * MIB,
            }
        }

        /// A new connection takes commands of `bytes` as long as it may; the bytes that it has then.
        fn grab(&mut self, id: AccountId, bytes: usize, pays: bool) -> usize {
            let mut now = Charge { bytes: 0, pays };
            loop {
                let want = Want {
                    bytes,
                    spare: 128 << 10,
                    now,
                    charged: now,
                };
                if !self.shares.may_lend(id, self.free, &want) {
                    return now.bytes;
                }
                let more = Charge {
                    bytes: now.bytes + bytes,
                    pays,
                };
                self.shares.charge(id, now, more);
                now = more;
                self.free -= bytes;
            }
        }
    }

    #[test]
    fn however_many_hoard_the_next_has_room() {
        for mib in [16, 64, 256] {
            let mut hoard = Hoard::new(mib);
            for _ in 0..1000 {
                hoard.grab(UNLISTED, MIB, false);
            }
            let held = hoard.shares.in_use(UNLISTED);
            assert!(held <= mib * MIB * 3 / 8, "{mib} MiB: {held}");
            // One that pays, of the same account, and one of a host that a list names.
            assert!(hoard.grab(UNLISTED, 128 << 10, true) >= MIB, "{mib} MiB");
            let named = hoard.shares.open("nqn.named");
            assert!(hoard.grab(named, 128 << 10, false) >= MIB, "{mib} MiB");
        }
    }

    #[test]
    fn a_hoarders_other_connections_do_not_take_a_new_hosts_first() {
        let mut hoard = Hoard::new(256);
        for host in 0..16 {
            let id = hoard.shares.open(&format!("nqn.{host}"));
            for _ in 0..4 {
                hoard.grab(id, MIB, false);
            }
        }
        assert!(hoard.free >= 48 * MIB, "{} left", hoard.free);
        let neighbour = hoard.shares.open("nqn.neighbour");
        assert!(hoard.grab(neighbour, 128 << 10, true) >= 8 * MIB);
    }

    #[test]
    fn those_that_pay_leave_room_for_those_that_have_not_yet() {
        for mib in [16, 256] {
            let mut hoard = Hoard::new(mib);
            for _ in 0..100 {
                hoard.grab(UNLISTED, MIB, true);
            }
            assert!(hoard.grab(UNLISTED, MIB, false) >= MIB, "{mib} MiB");
            assert!(hoard.grab(UNLISTED, 128 << 10, false) > 0, "{mib} MiB");
        }
    }

    #[test]
    fn one_host_alone_has_its_fill() {
        let mut hoard = Hoard::new(256);
        assert!(hoard.grab(UNLISTED, MIB, false) >= 32 * MIB);
        let mut hoard = Hoard::new(16);
        assert!(hoard.grab(UNLISTED, MIB, false) >= 3 * MIB);
    }

    #[test]
    fn an_account_ends_with_its_last_connection() {
        let mut shares = Shares::new(16 * MIB);
        let first = shares.open("nqn.a");
        assert_eq!(shares.open("nqn.a"), first);
        let five = Charge {
            bytes: 5,
            pays: false,
        };
        shares.charge(first, Charge::default(), five);
        shares.close(first);
        assert_eq!(shares.in_use(first), 5);
        shares.charge(first, five, Charge::default());
        shares.close(first);
        assert!(shares.by_nqn.is_empty() && shares.accounts.len() == 1);
        shares.close(UNLISTED);
        assert_eq!(shares.in_use(UNLISTED), 0);
    }
}
