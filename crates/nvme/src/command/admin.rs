//! Admin commands (Base 2.1, chapter 5): fields and builders.

use super::{Command, NSID_BROADCAST, SglDescriptor, opcode};

/// Identify's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Identify {
    /// CNS: which structure, see [`crate::identify::cns`].
    pub cns: u8,
    /// CNTID, where the structure wants one.
    pub cntid: u16,
    /// CSI: the I/O command set, 0 for NVM.
    pub csi: u8,
}

/// Get Log Page's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GetLogPage {
    /// LID: which page, see [`crate::log::lid`].
    pub lid: u8,
    /// LSP: log specific, 7 bits.
    pub lsp: u8,
    /// RAE: keep the asynchronous event that announced this page pending.
    pub retain_event: bool,
    /// Bytes wanted: a multiple of 4, at least 4.
    pub bytes: u64,
    /// LPO: byte offset in the page (or index, with `offset_type`); a multiple of 4.
    pub offset: u64,
    /// OT: `offset` is an index of entries.
    pub offset_type: bool,
}

/// SEL of Get Features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FeatureSelect {
    /// The value in force.
    Current,
    /// The value after a reset without saved values.
    Default,
    /// The saved value.
    Saved,
    /// What the feature can do: bits 0 saveable, 1 namespace specific, 2 changeable.
    SupportedCapabilities,
    /// Reserved values.
    Reserved,
}

impl Command {
    /// Identify; 4096 bytes of data.
    pub fn identify(nsid: u32, parameters: Identify) -> Self {
        let data = SglDescriptor::transport(4096);
        let mut command = Self::new(opcode::admin::IDENTIFY, nsid).with_data(data);
        command
            .cdw10
            .set(u32::from(parameters.cns) | u32::from(parameters.cntid) << 16);
        command.cdw11.set(u32::from(parameters.csi) << 24);
        command
    }

    /// Identify's parameters.
    pub fn identify_parameters(&self) -> Identify {
        Identify {
            cns: self.cdw10.get() as u8,
            cntid: (self.cdw10.get() >> 16) as u16,
            csi: (self.cdw11.get() >> 24) as u8,
        }
    }

    /// Get Log Page; `bytes` are rounded up to a multiple of 4, at least 4, at most 2^32 - 4.
    pub fn get_log_page(nsid: u32, parameters: GetLogPage) -> Self {
        let bytes = parameters.bytes.clamp(4, 0xffff_fffc).next_multiple_of(4);
        let numd = (bytes / 4 - 1) as u32;
        let data = SglDescriptor::transport(bytes as u32);
        let mut command = Self::new(opcode::admin::GET_LOG_PAGE, nsid).with_data(data);
        command.cdw10.set(
            u32::from(parameters.lid)
                | u32::from(parameters.lsp & 0x7f) << 8
                | u32::from(parameters.retain_event) << 15
                | numd << 16,
        );
        command.cdw11.set(numd >> 16);
        command.cdw12.set(parameters.offset as u32);
        command.cdw13.set((parameters.offset >> 32) as u32);
        command.cdw14.set(u32::from(parameters.offset_type) << 23);
        command
    }

    /// Get Log Page's parameters.
    pub fn log_page_parameters(&self) -> GetLogPage {
        let cdw10 = self.cdw10.get();
        let numd = u64::from(cdw10 >> 16) | u64::from(self.cdw11.get() & 0xffff) << 16;
        GetLogPage {
            lid: cdw10 as u8,
            lsp: (cdw10 >> 8) as u8 & 0x7f,
            retain_event: cdw10 & 1 << 15 != 0,
            bytes: (numd + 1) * 4,
            offset: u64::from(self.cdw12.get()) | u64::from(self.cdw13.get()) << 32,
            offset_type: self.cdw14.get() & 1 << 23 != 0,
        }
    }

    /// Get Features, current value, without data.
    pub fn get_features(nsid: u32, fid: u8) -> Self {
        let mut command = Self::new(opcode::admin::GET_FEATURES, nsid);
        command.cdw10.set(u32::from(fid));
        command
    }

    /// Set Features with `value` in dword 11, not saved, without data.
    pub fn set_features(nsid: u32, fid: u8, value: u32) -> Self {
        let mut command = Self::new(opcode::admin::SET_FEATURES, nsid);
        command.cdw10.set(u32::from(fid));
        command.cdw11.set(value);
        command
    }

    /// FID of Get and Set Features.
    pub fn feature_id(&self) -> u8 {
        self.cdw10.get() as u8
    }

    /// SEL of Get Features.
    pub fn feature_select(&self) -> FeatureSelect {
        match self.cdw10.get() >> 8 & 0b111 {
            0 => FeatureSelect::Current,
            1 => FeatureSelect::Default,
            2 => FeatureSelect::Saved,
            3 => FeatureSelect::SupportedCapabilities,
            _ => FeatureSelect::Reserved,
        }
    }

    /// SV of Set Features: keep the value across power cycles and resets.
    pub fn feature_save(&self) -> bool {
        self.cdw10.get() & 1 << 31 != 0
    }

    /// Abort of command `cid` of queue `sqid`.
    pub fn abort(sqid: u16, cid: u16) -> Self {
        let mut command = Self::new(opcode::admin::ABORT, 0);
        command.cdw10.set(u32::from(sqid) | u32::from(cid) << 16);
        command
    }

    /// SQID and CID of Abort.
    pub fn abort_target(&self) -> (u16, u16) {
        let cdw10 = self.cdw10.get();
        (cdw10 as u16, (cdw10 >> 16) as u16)
    }

    /// Asynchronous Event Request.
    pub fn async_event_request() -> Self {
        Self::new(opcode::admin::ASYNC_EVENT_REQUEST, 0)
    }

    /// Keep Alive.
    pub fn keep_alive() -> Self {
        Self::new(opcode::admin::KEEP_ALIVE, 0)
    }

    /// True if the command addresses every namespace.
    pub fn is_broadcast(&self) -> bool {
        self.nsid.get() == NSID_BROADCAST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_page_parameters_round_trip() {
        let parameters = GetLogPage {
            lid: 0x70,
            lsp: 0x7f,
            retain_event: true,
            bytes: 1 << 20,
            offset: 0x1_0000_0400,
            offset_type: true,
        };
        let command = Command::get_log_page(0, parameters);
        assert_eq!(command.log_page_parameters(), parameters);
        let odd = GetLogPage {
            bytes: u64::MAX,
            ..parameters
        };
        let most = Command::get_log_page(0, odd).log_page_parameters().bytes;
        assert_eq!(most, 0xffff_fffc);
    }

    #[test]
    fn other_parameters_round_trip() {
        let parameters = Identify {
            cns: 6,
            cntid: 0x1234,
            csi: 2,
        };
        let identify = Command::identify(7, parameters);
        assert_eq!(identify.identify_parameters(), parameters);
        assert_eq!(Command::abort(3, 0xfffe).abort_target(), (3, 0xfffe));
        let mut set = Command::set_features(0, 0x07, 0x0003_0003);
        set.cdw10 |= 1 << 31;
        assert_eq!(set.feature_id(), 7);
        assert!(set.feature_save());
        let mut get = Command::get_features(0, 0x0f);
        get.cdw10 |= 3 << 8;
        assert_eq!(get.feature_select(), FeatureSelect::SupportedCapabilities);
    }
}
