//! The Asymmetric Namespace Access log page (0Ch).

/// Bytes before the first group.
pub const ANA_HEADER_BYTES: usize = 16;
const GROUP_BYTES: usize = 32;

/// How well a controller reaches the namespaces of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AnaState {
    /// Best path.
    Optimized = 0x1,
    /// Works, slower.
    NonOptimized = 0x2,
    /// Does not work at the moment.
    Inaccessible = 0x3,
    /// Will not work again.
    PersistentLoss = 0x4,
    /// Between two states.
    Change = 0xf,
}

impl AnaState {
    /// The state that the low half of a byte stands for.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte & 0xf {
            0x1 => Self::Optimized,
            0x2 => Self::NonOptimized,
            0x3 => Self::Inaccessible,
            0x4 => Self::PersistentLoss,
            0xf => Self::Change,
            _ => return None,
        })
    }
}

/// One group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnaGroup {
    /// ANA group identifier; groups ascend by it.
    pub id: u32,
    /// Changes when the state does.
    pub change_count: u64,
    /// The group's state.
    pub state: AnaState,
    /// Its namespaces, ascending; empty if only groups were asked for (LSP bit 0, RGO).
    pub namespaces: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnaLog {
    /// Changes when anything in the page does.
    pub change_count: u64,
    /// The groups, ascending.
    pub groups: Vec<AnaGroup>,
}

impl AnaLog {
    /// The page's bytes; more than 65535 groups are cut.
    pub fn to_page(&self) -> Vec<u8> {
        let count = u16::try_from(self.groups.len()).unwrap_or(u16::MAX);
        let mut page = Vec::new();
        page.extend_from_slice(&self.change_count.to_le_bytes());
        page.extend_from_slice(&count.to_le_bytes());
        page.resize(ANA_HEADER_BYTES, 0);
        for group in self.groups.iter().take(usize::from(count)) {
            group.write(&mut page);
        }
        page
    }

    /// Parses a page. `None` if it ends before its groups do or has an unknown state.
    pub fn parse(page: &[u8]) -> Option<Self> {
        let (header, mut rest) = page.split_at_checked(ANA_HEADER_BYTES)?;
        let count = u16::from_le_bytes(*header.get(8..)?.first_chunk()?);
        let mut groups = Vec::new();
        for _ in 0..count {
            let (group, behind) = AnaGroup::read(rest)?;
            groups.push(group);
            rest = behind;
        }
        Some(Self {
            change_count: u64::from_le_bytes(*header.first_chunk()?),
            groups,
        })
    }
}

impl AnaGroup {
    fn write(&self, page: &mut Vec<u8>) {
        let start = page.len();
        let count = u32::try_from(self.namespaces.len()).unwrap_or(u32::MAX);
        page.extend_from_slice(&self.id.to_le_bytes());
        page.extend_from_slice(&count.to_le_bytes());
        page.extend_from_slice(&self.change_count.to_le_bytes());
        page.push(self.state as u8);
        page.resize(start + GROUP_BYTES, 0);
        for id in &self.namespaces {
            page.extend_from_slice(&id.to_le_bytes());
        }
    }

    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (fixed, rest) = bytes.split_at_checked(GROUP_BYTES)?;
        let count = u32::from_le_bytes(*fixed.get(4..)?.first_chunk()?) as usize;
        let (ids, rest) = rest.split_at_checked(count.checked_mul(4)?)?;
        let group = Self {
            id: u32::from_le_bytes(*fixed.first_chunk()?),
            change_count: u64::from_le_bytes(*fixed.get(8..)?.first_chunk()?),
            state: AnaState::from_byte(*fixed.get(16)?)?,
            namespaces: ids
                .as_chunks()
                .0
                .iter()
                .map(|&id| u32::from_le_bytes(id))
                .collect(),
        };
        Some((group, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_round_trips_and_a_cut_one_is_refused() {
        let group = |id, state, namespaces| AnaGroup {
            id,
            change_count: 3,
            state,
            namespaces,
        };
        let log = AnaLog {
            change_count: 9,
            groups: vec![
                group(1, AnaState::Optimized, vec![1, 2]),
                group(2, AnaState::Change, vec![]),
            ],
        };
        let page = log.to_page();
        assert_eq!(page.len(), 16 + 32 + 8 + 32);
        assert_eq!((page[8], page[16 + 16]), (2, 1));
        assert_eq!(AnaLog::parse(&page), Some(log));
        for cut in 0..page.len() {
            assert_eq!(AnaLog::parse(&page[..cut]), None);
        }
        assert_eq!(AnaLog::parse(&[0xff; 4096]), None);
    }
}
