//! Transport types and address families, as discovery log entries name them.

/// TRTYPE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TransportType {
    /// RDMA.
    Rdma = 1,
    /// Fibre Channel.
    FibreChannel = 2,
    /// TCP.
    Tcp = 3,
    /// Within the host.
    IntraHost = 254,
}

impl TransportType {
    /// The type a TRTYPE byte stands for.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Rdma,
            2 => Self::FibreChannel,
            3 => Self::Tcp,
            254 => Self::IntraHost,
            _ => return None,
        })
    }

    /// The name that tools use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rdma => "rdma",
            Self::FibreChannel => "fc",
            Self::Tcp => "tcp",
            Self::IntraHost => "loop",
        }
    }
}

/// ADRFAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AddressFamily {
    /// IPv4, dotted decimal.
    Ipv4 = 1,
    /// IPv6.
    Ipv6 = 2,
    /// InfiniBand.
    InfiniBand = 3,
    /// Fibre Channel.
    FibreChannel = 4,
    /// Within the host.
    IntraHost = 254,
}

impl AddressFamily {
    /// The family an ADRFAM byte stands for.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Ipv4,
            2 => Self::Ipv6,
            3 => Self::InfiniBand,
            4 => Self::FibreChannel,
            254 => Self::IntraHost,
            _ => return None,
        })
    }

    /// The name that tools use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::InfiniBand => "ib",
            Self::FibreChannel => "fc",
            Self::IntraHost => "loop",
        }
    }
}
