//! Reading the Discovery log page while it may change.

use ashlar_nvme::log::{DiscoveryEntry, DiscoveryHeader};

/// Bytes asked for at once: below every controller's MDTS that was met.
const CHUNK: u64 = 64 << 10;
/// Entries beyond this are not believed.
const MOST_ENTRIES: u64 = 4096;
/// How often the page is read again because it changed meanwhile.
const MOST_ATTEMPTS: u32 = 8;

/// Why the page could not be read.
#[derive(Debug, PartialEq, Eq)]
pub enum LogError<E> {
    /// A read failed.
    Read(E),
    /// The page makes no sense.
    Malformed(&'static str),
    /// It changed with every attempt.
    Unsettled,
}

/// Reads the page by `get(offset, bytes)`: the header, the entries, and the header again; once more
/// if the generation counter has moved (Base 2.1, 5.1.12.3.1).
///
/// # Errors
/// A read failed, or the page makes no sense or does not settle.
pub fn read_log<E>(
    mut get: impl FnMut(u64, u64) -> Result<Vec<u8>, E>,
) -> Result<Vec<DiscoveryEntry>, LogError<E>> {
    for _ in 0..MOST_ATTEMPTS {
        let before = header(&mut get)?;
        let count = before.numrec.get();
        if count > MOST_ENTRIES {
            return Err(LogError::Malformed(
                "the discovery log claims too many entries",
            ));
        }
        let bytes = count * DiscoveryEntry::BYTES as u64;
        let mut page = Vec::new();
        while (page.len() as u64) < bytes {
            let done = page.len() as u64;
            let part = CHUNK.min(bytes - done);
            let offset = DiscoveryHeader::BYTES as u64 + done;
            let piece = get(offset, part).map_err(LogError::Read)?;
            if piece.len() as u64 != part {
                return Err(LogError::Malformed("the discovery log ends early"));
            }
            page.extend_from_slice(&piece);
        }
        let after = header(&mut get)?;
        if (after.genctr, after.numrec) == (before.genctr, before.numrec) {
            return Ok(DiscoveryEntry::list(&page, count).to_vec());
        }
    }
    Err(LogError::Unsettled)
}

fn header<E>(
    get: &mut impl FnMut(u64, u64) -> Result<Vec<u8>, E>,
) -> Result<DiscoveryHeader, LogError<E>> {
    let bytes = get(0, DiscoveryHeader::BYTES as u64).map_err(LogError::Read)?;
    let header = DiscoveryHeader::parse(&bytes).copied();
    let header = header.ok_or(LogError::Malformed("the discovery log has no header"))?;
    if header.recfmt.get() != 0 {
        return Err(LogError::Malformed(
            "the discovery log has an unknown record format",
        ));
    }
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ashlar_nvme::fabrics::AddressFamily;
    use ashlar_nvme::log::SubsystemType;

    fn page(generation: u64, entries: u16) -> Vec<u8> {
        let mut page = DiscoveryHeader::new(generation, u64::from(entries))
            .as_wire()
            .to_vec();
        for port in 0..entries {
            let (kind, family) = (SubsystemType::Nvm, AddressFamily::Ipv4);
            let entry = DiscoveryEntry::tcp(kind, family, "127.0.0.1", port, "nqn.2026-01.x:s");
            page.extend_from_slice(entry.as_wire());
        }
        page
    }

    fn window(page: &[u8], offset: u64, bytes: u64) -> Vec<u8> {
        let mut piece: Vec<u8> = page.iter().skip(offset as usize).copied().collect();
        piece.resize(bytes as usize, 0);
        piece
    }

    #[test]
    fn a_page_that_changes_is_read_again() {
        let mut reads = 0;
        let entries = read_log(|offset, bytes| {
            reads += 1;
            let page = if reads < 3 { page(1, 2) } else { page(2, 3) };
            Ok::<_, ()>(window(&page, offset, bytes))
        });
        assert_eq!(entries.expect("settled").len(), 3);
        assert_eq!(reads, 6);
    }

    #[test]
    fn long_pages_come_in_pieces() {
        let whole = page(1, 150);
        let entries = read_log(|offset, bytes| {
            assert!(bytes <= CHUNK);
            Ok::<_, ()>(window(&whole, offset, bytes))
        });
        let ports: Vec<String> = entries
            .expect("read")
            .iter()
            .map(DiscoveryEntry::trsvcid)
            .collect();
        assert_eq!((ports.len(), &*ports[149]), (150, "149"));
    }

    #[test]
    fn nonsense_is_refused() {
        let mut generation = 0;
        let unsettled = read_log(|offset, bytes| {
            generation += 1;
            Ok::<_, ()>(window(&page(generation, 1), offset, bytes))
        });
        assert_eq!(unsettled, Err(LogError::Unsettled));
        let huge = DiscoveryHeader::new(1, u64::MAX);
        let refused = read_log(|_, _| Ok::<_, ()>(huge.as_wire().to_vec()));
        assert!(matches!(refused, Err(LogError::Malformed(_))));
        assert_eq!(read_log(|_, _| Err(7)), Err(LogError::Read(7)));
    }
}
