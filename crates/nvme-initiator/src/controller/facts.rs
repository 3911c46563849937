//! What Identify tells, as far as it decides how a namespace is used.

use ashlar_block::{BlockSize, Geometry};
use ashlar_nvme::identify::{
    IdentifyController, IdentifyNamespace, NamespaceIdentity, nsfeat, oncs, parse_namespace_list,
};

use super::Instance;
use crate::failure::Failure;

/// Bytes of an Identify data structure.
pub(super) const IDENTIFY_BYTES: usize = ashlar_nvme::identify::BYTES;
/// Largest request offered where the controller names no smaller one (MDTS).
const MAX_REQUEST_BYTES: u64 = 1 << 20;
/// The smallest page, in whose multiples MDTS counts; Linux takes CAP.MPSMIN for 4 KiB too.
const PAGE: u64 = 4096;

/// What a controller told about itself.
#[derive(Clone, Debug)]
pub struct ControllerFacts {
    /// Identify Controller as received.
    pub raw: IdentifyController,
    /// VS.
    pub version: u32,
    /// Most in-capsule data of I/O commands, in bytes.
    pub in_capsule: u32,
    /// Commands that a queue takes, where the controller says so (MAXCMD).
    pub max_commands: Option<u16>,
    /// KAS in units of 100 ms; 0 if keep-alive is not supported.
    pub keep_alive_granularity: u16,
    /// OAES.
    pub events: u32,
    /// Largest transfer in bytes (MDTS), if limited.
    pub max_transfer: Option<u64>,
    /// What names it for ever, if it has Cross-Controller Reset.
    pub instance: Option<Instance>,
}

/// What makes a namespace the same one after a reconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// UUID, NGUID and EUI64.
    pub ids: NamespaceIdentity,
    /// Number of blocks.
    pub blocks: u64,
    /// Block size.
    pub block_size: BlockSize,
}

impl Identity {
    /// Whether a namespace with this identity is the one that had `old`. It may have grown if its
    /// identifiers say that it is the same; requests within the old size are good as ever.
    pub fn continues(&self, old: &Self) -> bool {
        let has_grown = self.name().is_some() && self.blocks > old.blocks;
        let is_of_other_set = are_equal(self.ids.csi, old.ids.csi) == Some(false);
        let is_shaped_alike = self.block_size == old.block_size && !is_of_other_set;
        let is_as_large = self.blocks == old.blocks || has_grown;
        is_shaped_alike && is_as_large && self.is_named_like(old)
    }

    /// Whether both have an identifier that is equal and none that differs, or neither has any. A target
    /// may list more after an upgrade, or less.
    fn is_named_like(&self, old: &Self) -> bool {
        let (ids, old_ids) = (&self.ids, &old.ids);
        let both = [
            are_equal(ids.uuid, old_ids.uuid),
            are_equal(ids.nguid, old_ids.nguid),
            are_equal(ids.eui64, old_ids.eui64),
        ];
        let has_none = self.name().is_none() && old.name().is_none();
        (has_none || both.contains(&Some(true))) && !both.contains(&Some(false))
    }

    /// What tells it from all others, the best that it has.
    pub fn name(&self) -> Option<String> {
        self.names().into_iter().next()
    }

    /// All that does, the best first.
    pub fn names(&self) -> Vec<String> {
        let hex =
            |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
        let uuid = self.ids.uuid.map(uuid::Uuid::from_bytes);
        let names = [
            uuid.map(|uuid| format!("uuid {uuid}")),
            self.ids.nguid.map(|nguid| format!("nguid {}", hex(&nguid))),
            self.ids.eui64.map(|eui64| format!("eui64 {}", hex(&eui64))),
        ];
        names.into_iter().flatten().collect()
    }

    /// Adds what the Namespace Identification Descriptor list has.
    pub(super) fn take_descriptors(&mut self, page: &[u8]) {
        let listed = NamespaceIdentity::parse(page);
        self.ids = NamespaceIdentity {
            eui64: said(listed.eui64).or(self.ids.eui64),
            nguid: said(listed.nguid).or(self.ids.nguid),
            uuid: said(listed.uuid).or(self.ids.uuid),
            csi: listed.csi,
        };
    }
}

/// Whether what both have is equal.
fn are_equal<T: PartialEq>(one: Option<T>, other: Option<T>) -> Option<bool> {
    Some(one? == other?)
}

/// An identifier of zeroes is none: it would be that of many namespaces.
fn said<const BYTES: usize>(id: Option<[u8; BYTES]>) -> Option<[u8; BYTES]> {
    id.filter(|bytes| *bytes != [0; BYTES])
}

/// What a controller told about a namespace.
#[derive(Clone, Debug)]
pub struct NamespaceFacts {
    /// NSID.
    pub nsid: u32,
    /// What it is.
    pub identity: Identity,
    /// Its shape and promises.
    pub geometry: Geometry,
    /// The controller has Write Zeroes; otherwise zeroes are written.
    pub writes_zeroes: bool,
    /// Identify Namespace as received.
    pub raw: Box<IdentifyNamespace>,
}

fn short() -> Failure {
    Failure::Unusable("the controller's Identify data is too short".into())
}

pub(super) fn controller(
    page: &[u8],
    version: u32,
    cntlid: u16,
) -> Result<ControllerFacts, Failure> {
    let raw = IdentifyController::parse(page).ok_or_else(short)?.clone();
    if raw.cntlid.get() != cntlid {
        return Err(Failure::Unusable(format!(
            "controller {cntlid} identifies itself as {}",
            raw.cntlid.get()
        )));
    }
    // In-capsule data somewhere else than right behind the command is not built.
    let in_capsule = if raw.icdoff.get() == 0 {
        raw.in_capsule_bytes()
    } else {
        0
    };
    Ok(ControllerFacts {
        version,
        in_capsule: u32::try_from(in_capsule).unwrap_or(u32::MAX),
        max_commands: Some(raw.maxcmd.get()).filter(|&most| most > 0),
        keep_alive_granularity: raw.kas.get(),
        events: raw.oaes.get(),
        instance: Instance::parse(page, cntlid),
        max_transfer: raw.max_transfer_bytes(PAGE),
        raw,
    })
}

pub(super) fn first_namespace(page: &[u8]) -> Result<u32, Failure> {
    let none = || Failure::Unusable("the subsystem has no active namespace".into());
    parse_namespace_list(page).next().ok_or_else(none)
}

pub(super) fn namespace(
    nsid: u32,
    page: &[u8],
    controller: Option<&ControllerFacts>,
) -> Result<NamespaceFacts, Failure> {
    let raw = IdentifyNamespace::parse(page).ok_or_else(short)?;
    let unusable = |why: String| Err(Failure::Unusable(format!("namespace {nsid} {why}")));
    if raw.nsze.get() == 0 {
        return unusable("is not active".into());
    }
    let format = raw.format();
    if format.ms.get() != 0 {
        return unusable(format!("has {} bytes of metadata a block", format.ms.get()));
    }
    let Some(block_size) = raw.block_bytes().and_then(BlockSize::from_bytes) else {
        return unusable(format!(
            "has blocks of 2^{} bytes, not 512 or 4096",
            format.lbads
        ));
    };
    let blocks = raw.nsze.get();
    if blocks > u64::MAX >> block_size.shift() {
        return unusable(format!("claims {blocks} blocks"));
    }
    let some = |id: &[u8]| id.iter().any(|&byte| byte != 0);
    let capabilities = controller.map_or(0, |facts| facts.raw.oncs.get());
    Ok(NamespaceFacts {
        nsid,
        identity: Identity {
            ids: NamespaceIdentity {
                eui64: Some(raw.eui64).filter(|id| some(id)),
                nguid: Some(raw.nguid).filter(|id| some(id)),
                ..NamespaceIdentity::default()
            },
            blocks,
            block_size,
        },
        geometry: Geometry {
            block_size,
            blocks,
            atomic_blocks: atomic_blocks(raw),
            max_blocks: max_blocks(block_size, controller),
            optimal_blocks: optimal_blocks(raw, block_size),
            volatile_cache: controller.is_some_and(|facts| facts.raw.vwc & 1 != 0),
            deallocates: capabilities & oncs::DATASET_MANAGEMENT != 0,
        },
        writes_zeroes: capabilities & oncs::WRITE_ZEROES != 0,
        raw: Box::new(raw.clone()),
    })
}

/// The largest power of two such that every so aligned write is atomic across a power failure. As
/// Linux does, only what is said of the namespace counts: AWUPF is in blocks of no known format.
fn atomic_blocks(raw: &IdentifyNamespace) -> u32 {
    if raw.nsfeat & nsfeat::NAMESPACE_ATOMIC == 0 || raw.nabo.get() != 0 {
        return 1;
    }
    let unit = u32::from(raw.nawupf.get()) + 1;
    let mut atomic = 1 << unit.ilog2();
    if raw.nabspf.get() != 0 {
        let boundary = u32::from(raw.nabspf.get()) + 1;
        while !boundary.is_multiple_of(atomic) {
            atomic /= 2;
        }
    }
    atomic
}

fn max_blocks(block_size: BlockSize, controller: Option<&ControllerFacts>) -> u32 {
    let limit = controller.and_then(|facts| facts.max_transfer);
    let bytes = limit.unwrap_or(MAX_REQUEST_BYTES).min(MAX_REQUEST_BYTES);
    // NLB has 16 bits and counts from one.
    (bytes >> block_size.shift()).clamp(1, 1 << 16) as u32
}

fn optimal_blocks(raw: &IdentifyNamespace, block_size: BlockSize) -> u32 {
    let page = 4096 >> block_size.shift();
    if raw.nsfeat & nsfeat::OPTIMAL_PERFORMANCE == 0 {
        return page;
    }
    u32::from(raw.npwg.get()) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(edit: impl FnOnce(&mut IdentifyNamespace)) -> Result<NamespaceFacts, Failure> {
        let mut raw = IdentifyNamespace::of_blocks(1000, 12);
        edit(&mut raw);
        namespace(1, raw.as_wire(), None)
    }

    #[test]
    fn atomicity_is_the_namespace_s_and_respects_its_boundary() {
        let atomic = |feature, nawupf, nabspf, nabo| {
            let facts = shape(|raw| {
                raw.nsfeat = feature;
                raw.nawupf.set(nawupf);
                raw.nabspf.set(nabspf);
                raw.nabo.set(nabo);
            });
            facts.expect("usable").geometry.atomic_blocks
        };
        let named = nsfeat::NAMESPACE_ATOMIC;
        assert_eq!(atomic(named, 3, 0, 0), 4);
        assert_eq!(
            atomic(named, 4, 0, 0),
            4,
            "five blocks: aligned writes of four"
        );
        assert_eq!(atomic(named, 3, 255, 0), 4);
        assert_eq!(atomic(named, 3, 5, 0), 2, "a boundary every six blocks");
        assert_eq!(atomic(named, 3, 0, 1), 1);
        assert_eq!(atomic(0, 3, 0, 0), 1);
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_reason() {
        let why = |edit: fn(&mut IdentifyNamespace)| shape(edit).expect_err("refused").to_string();
        assert!(why(|raw| raw.nsze.set(0)).contains("not active"));
        assert!(why(|raw| raw.lbaf[0].lbads = 14).contains("2^14"));
        assert!(why(|raw| raw.lbaf[0].ms.set(8)).contains("metadata"));
        assert!(why(|raw| raw.nsze.set(u64::MAX)).contains("claims"));
        assert!(namespace(1, &[0; 100], None).is_err());
    }

    #[test]
    fn requests_are_limited_by_the_transfer_size() {
        let mut raw = IdentifyController::default();
        raw.mdts = 5;
        raw.oncs.set(oncs::WRITE_ZEROES);
        let facts = controller(raw.as_wire(), 0, 0).expect("usable");
        let page = IdentifyNamespace::of_blocks(1000, 9);
        let namespace = namespace(1, page.as_wire(), Some(&facts)).expect("usable");
        assert_eq!(namespace.geometry.max_blocks, 256);
        assert!(namespace.writes_zeroes && !namespace.geometry.deallocates);
        assert!(controller(raw.as_wire(), 0, 7).is_err(), "another CNTLID");
    }

    /// Two namespaces of one subsystem that list such ids would be one.
    #[test]
    fn identifiers_of_zeroes_are_none() {
        let mut identity = shape(|_| ()).expect("usable").identity;
        let listed = NamespaceIdentity {
            uuid: Some([0; 16]),
            nguid: Some([0; 16]),
            eui64: Some([7; 8]),
            csi: None,
        };
        identity.take_descriptors(&listed.to_page());
        let name = identity.name();
        assert_eq!(name.as_deref(), Some("eui64 0707070707070707"));
    }

    #[test]
    fn a_namespace_goes_on_by_any_identifier_and_by_none_that_differs() {
        let with = |uuid: u8, nguid: u8| {
            let mut identity = shape(|_| ()).expect("usable").identity;
            identity.ids.uuid = (uuid > 0).then_some([uuid; 16]);
            identity.ids.nguid = (nguid > 0).then_some([nguid; 16]);
            identity
        };
        let goes_on =
            |old: (u8, u8), new: (u8, u8)| with(new.0, new.1).continues(&with(old.0, old.1));
        // A target that lists a UUID, too, from now on; and one that does not any more.
        assert!(goes_on((0, 2), (1, 2)) && goes_on((1, 2), (0, 2)));
        assert!(goes_on((0, 0), (0, 0)));
        for (old, new) in [
            ((1, 2), (1, 3)),
            ((1, 2), (3, 2)),
            ((1, 0), (0, 2)),
            ((0, 0), (1, 2)),
        ] {
            assert!(!goes_on(old, new), "{old:?} {new:?}");
        }
        let names = with(1, 2).names().join(", ");
        let uuid = "uuid 01010101-0101-0101-0101-010101010101";
        assert_eq!(names, format!("{uuid}, nguid {}", "02".repeat(16)));
    }
}
