//! Lists of namespaces, controllers and a namespace's identifiers (CNS 02h, 03h, 12h, 13h).

use super::BYTES;

/// Entries of a namespace list.
const NAMESPACES_MAX: usize = BYTES / 4;
/// Entries of a controller list, behind its count.
const CONTROLLERS_MAX: usize = BYTES / 2 - 1;

/// Types of namespace identifiers, NIDT.
mod nidt {
    pub const EUI64: u8 = 1;
    pub const NGUID: u8 = 2;
    pub const UUID: u8 = 3;
    pub const CSI: u8 = 4;
}

/// A namespace list: of `ids`, which ascend, the first 1024 above `after`, padded with zeroes.
///
/// This is CNS 02h with `after` the command's NSID, and the body of the Changed Namespace List.
pub fn namespace_list(ids: impl IntoIterator<Item = u32>, after: u32) -> Vec<u8> {
    let mut page = Vec::with_capacity(BYTES);
    for id in ids
        .into_iter()
        .filter(|&id| id > after)
        .take(NAMESPACES_MAX)
    {
        page.extend_from_slice(&id.to_le_bytes());
    }
    page.resize(BYTES, 0);
    page
}

/// The namespace ids of a list, up to its first zero; at most 1024.
pub fn parse_namespace_list(page: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let (entries, _) = page.as_chunks::<4>();
    let ids = entries.iter().take(NAMESPACES_MAX);
    ids.map(|&entry| u32::from_le_bytes(entry))
        .take_while(|&id| id != 0)
}

/// A controller list: of `ids`, which ascend, the first 2047 from `from` on.
pub fn controller_list(ids: impl IntoIterator<Item = u16>, from: u16) -> Vec<u8> {
    let mut page = vec![0; 2];
    let mut count = 0u16;
    for id in ids
        .into_iter()
        .filter(|&id| id >= from)
        .take(CONTROLLERS_MAX)
    {
        page.extend_from_slice(&id.to_le_bytes());
        count += 1;
    }
    page[..2].copy_from_slice(&count.to_le_bytes());
    page.resize(BYTES, 0);
    page
}

/// The controller ids of a list; no more than its bytes hold, whatever its count says.
pub fn parse_controller_list(page: &[u8]) -> impl Iterator<Item = u16> + '_ {
    let (entries, _) = page.as_chunks::<2>();
    let mut numbers = entries.iter().map(|&entry| u16::from_le_bytes(entry));
    let count = numbers.next().unwrap_or(0);
    numbers.take(usize::from(count).min(CONTROLLERS_MAX))
}

/// What identifies a namespace wherever it is attached. Two namespaces that say the same are taken for
/// two paths to one; Linux ignores a namespace whose UUID or NGUID repeats under another NQN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NamespaceIdentity {
    /// EUI64.
    pub eui64: Option<[u8; 8]>,
    /// NGUID.
    pub nguid: Option<[u8; 16]>,
    /// UUID.
    pub uuid: Option<[u8; 16]>,
    /// CSI: the I/O command set, 0 for NVM.
    pub csi: Option<u8>,
}

impl NamespaceIdentity {
    /// The Namespace Identification Descriptor list, 4096 bytes.
    pub fn to_page(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(BYTES);
        let mut put = |kind: u8, id: Option<&[u8]>| {
            if let Some(id) = id {
                page.extend_from_slice(&[kind, id.len() as u8, 0, 0]);
                page.extend_from_slice(id);
            }
        };
        put(nidt::EUI64, self.eui64.as_ref().map(|id| &id[..]));
        put(nidt::NGUID, self.nguid.as_ref().map(|id| &id[..]));
        put(nidt::UUID, self.uuid.as_ref().map(|id| &id[..]));
        put(nidt::CSI, self.csi.as_ref().map(std::slice::from_ref));
        page.resize(BYTES, 0);
        page
    }

    /// Collects the descriptors of a page; unknown types and wrong lengths are passed over.
    pub fn parse(page: &[u8]) -> Self {
        let mut identity = Self::default();
        for (kind, id) in NamespaceDescriptors::new(page) {
            match kind {
                nidt::EUI64 => identity.eui64 = id.try_into().ok().or(identity.eui64),
                nidt::NGUID => identity.nguid = id.try_into().ok().or(identity.nguid),
                nidt::UUID => identity.uuid = id.try_into().ok().or(identity.uuid),
                nidt::CSI => identity.csi = id.first().copied().or(identity.csi),
                _ => {}
            }
        }
        identity
    }
}

/// The descriptors of a Namespace Identification Descriptor list: type (NIDT) and identifier.
#[derive(Debug, Clone)]
pub struct NamespaceDescriptors<'a>(&'a [u8]);

impl<'a> NamespaceDescriptors<'a> {
    /// Over a page as received.
    pub fn new(page: &'a [u8]) -> Self {
        Self(page)
    }
}

impl<'a> Iterator for NamespaceDescriptors<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let &[kind, length, _, _, ref rest @ ..] = self.0 else {
            return None;
        };
        // A length of 0 ends the list; so does a descriptor that is cut off.
        let (id, rest) = rest.split_at_checked(usize::from(length))?;
        if id.is_empty() {
            return None;
        }
        self.0 = rest;
        Some((kind, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_lists_go_on_after_an_id() {
        let page = namespace_list(1..=3000, 1);
        assert_eq!(page.len(), 4096);
        let ids: Vec<u32> = parse_namespace_list(&page).collect();
        assert_eq!(ids.len(), 1024);
        assert_eq!((ids[0], ids[1023]), (2, 1025));
        assert_eq!(parse_namespace_list(&namespace_list([1, 4], 0)).count(), 2);
        assert_eq!(parse_namespace_list(&[1, 0, 0]).count(), 0);
    }

    #[test]
    fn controller_lists_start_at_an_id_and_do_not_trust_their_count() {
        let page = controller_list([1, 5, 9], 5);
        assert_eq!(parse_controller_list(&page).collect::<Vec<_>>(), [5, 9]);
        assert_eq!(parse_controller_list(&[0xff, 0xff, 1, 0]).count(), 1);
        assert_eq!(parse_controller_list(&[]).count(), 0);
    }

    #[test]
    fn identity_round_trips_and_survives_nonsense() {
        let identity = NamespaceIdentity {
            eui64: Some([1; 8]),
            nguid: Some([2; 16]),
            uuid: Some([3; 16]),
            csi: Some(0),
        };
        let page = identity.to_page();
        assert_eq!(page[..4], [1, 8, 0, 0]);
        assert_eq!(NamespaceIdentity::parse(&page), identity);
        assert_eq!(NamespaceIdentity::parse(&page[..30]).nguid, None);
        assert_eq!(
            NamespaceIdentity::parse(&[0xff; 4096]),
            NamespaceIdentity::default()
        );
    }
}
