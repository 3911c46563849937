//! What the kernel asks for, parsed.

use zerocopy::FromBytes;

use super::wire::{self, AllocateIn, InHeader, InitIn, TransferIn, allocate, opcode};

/// A request of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Its name; the reply bears it.
    pub(crate) unique: u64,
    /// What is asked for.
    pub(crate) what: What,
}

/// What is asked for. The file system has one file, so nothing names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// The first of all: versions and flags.
    Init(InitIn),
    /// The file's attributes.
    Attributes,
    Open,
    Release,
    /// Bytes of the file.
    Read {
        /// From here on.
        offset: u64,
        /// So many.
        size: u32,
    },
    /// Bytes for the file; they follow the request's head.
    Write {
        /// From here on.
        offset: u64,
        /// So many.
        size: u32,
    },
    /// What was written is to be durable.
    Flush,
    /// The range is to read as zeroes; its space may be given back, or is to be kept.
    Zero {
        /// From here on.
        offset: u64,
        /// So many bytes.
        length: u64,
        /// The space may be given back.
        deallocate: bool,
    },
    /// The file system's size.
    Statfs,
    /// Something that needs no reply.
    Nothing,
    /// Something that is not done; to be answered with this errno.
    Refused(i32),
}

/// `EPERM`: what would change the file's attributes.
const EPERM: i32 = 1;
/// `ENOSYS`: the kernel does not ask again.
const ENOSYS: i32 = 38;
/// `EOPNOTSUPP`.
const EOPNOTSUPP: i32 = 95;

/// Why a message is no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Parses one message as read from /dev/fuse.
///
/// # Errors
/// It is shorter than it says, or than its kind must be.
pub(crate) fn parse(message: &[u8]) -> Result<Asked, Malformed> {
    let (header, body) =
        InHeader::read_from_prefix(message).map_err(|_| Malformed("shorter than a header"))?;
    if header.len as usize != message.len() {
        return Err(Malformed("its length is not what it says"));
    }
    let what = match header.opcode {
        opcode::INIT => What::Init(init(body)),
        opcode::GETATTR => What::Attributes,
        opcode::SETATTR => What::Refused(EPERM),
        opcode::OPEN => What::Open,
        opcode::RELEASE => What::Release,
        opcode::STATFS => What::Statfs,
        opcode::FSYNC => What::Flush,
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT | opcode::DESTROY => {
            What::Nothing
        }
        opcode::READ => {
            let ask: TransferIn = part(body)?;
            What::Read {
                offset: ask.offset,
                size: ask.size,
            }
        }
        opcode::WRITE => {
            let ask: TransferIn = part(body)?;
            if message.len() - wire::WRITE_HEAD != ask.size as usize {
                return Err(Malformed("a write with more or less data than it says"));
            }
            What::Write {
                offset: ask.offset,
                size: ask.size,
            }
        }
        opcode::FALLOCATE => zero(&part(body)?),
        _ => What::Refused(ENOSYS),
    };
    Ok(Asked {
        unique: header.unique,
        what,
    })
}

fn part<T: FromBytes>(body: &[u8]) -> Result<T, Malformed> {
    let parsed = T::read_from_prefix(body);
    parsed
        .map(|(part, _)| part)
        .map_err(|_| Malformed("shorter than its kind"))
}

/// INIT has grown over time; what an old kernel does not send is zero.
fn init(body: &[u8]) -> InitIn {
    let mut whole = [0; size_of::<InitIn>()];
    let len = body.len().min(whole.len());
    whole[..len].copy_from_slice(&body[..len]);
    zerocopy::transmute!(whole)
}

fn zero(ask: &AllocateIn) -> What {
    let deallocate = match ask.mode & !allocate::KEEP_SIZE {
        allocate::PUNCH_HOLE => true,
        allocate::ZERO_RANGE => false,
        _ => return What::Refused(EOPNOTSUPP),
    };
    What::Zero {
        offset: ask.offset,
        length: ask.length,
        deallocate,
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let header = InHeader {
            len: (size_of::<InHeader>() + body.len()) as u32,
            opcode,
            unique: 7,
            ..InHeader::default()
        };
        [header.as_bytes(), body].concat()
    }

    fn what(opcode: u32, body: &[u8]) -> Result<What, Malformed> {
        parse(&message(opcode, body)).map(|asked| asked.what)
    }

    #[test]
    fn requests_are_what_the_kernel_sends() {
        let ask = TransferIn {
            offset: 8192,
            size: 4,
            ..TransferIn::default()
        };
        let read = What::Read {
            offset: 8192,
            size: 4,
        };
        let write = What::Write {
            offset: 8192,
            size: 4,
        };
        assert_eq!(what(opcode::READ, ask.as_bytes()), Ok(read));
        let body = [ask.as_bytes(), b"data"].concat();
        assert_eq!(what(opcode::WRITE, &body), Ok(write));
        assert_eq!(what(opcode::FSYNC, &[0; 16]), Ok(What::Flush));
        let asked = parse(&message(opcode::OPEN, &[0; 8]));
        assert_eq!(asked.map(|asked| asked.unique), Ok(7));
        assert_eq!(what(9999, &[]), Ok(What::Refused(ENOSYS)));
    }

    #[test]
    fn zeroing_gives_space_back_only_if_it_may() {
        let zeroed = |mode| {
            let ask = AllocateIn {
                offset: 4096,
                length: 1 << 40,
                mode,
                ..AllocateIn::default()
            };
            what(opcode::FALLOCATE, ask.as_bytes())
        };
        let zero = |deallocate| {
            Ok(What::Zero {
                offset: 4096,
                length: 1 << 40,
                deallocate,
            })
        };
        assert_eq!(zeroed(0x03), zero(true));
        assert_eq!(zeroed(0x10), zero(false));
        assert_eq!(zeroed(0x11), zero(false));
        assert_eq!(zeroed(0), Ok(What::Refused(EOPNOTSUPP)));
        assert_eq!(zeroed(0x08), Ok(What::Refused(EOPNOTSUPP)));
    }

    #[test]
    fn what_is_cut_short_is_refused_and_never_panics() {
        let ask = TransferIn {
            size: 4,
            ..TransferIn::default()
        };
        let whole = message(opcode::WRITE, &[ask.as_bytes(), b"data"].concat());
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err());
            let mut cut = whole[..len].to_vec();
            if len >= 4 {
                cut[..4].copy_from_slice(&(len as u32).to_ne_bytes());
                assert!(parse(&cut).is_err(), "{len} bytes of a write");
            }
        }
        assert!(parse(&whole).is_ok());
        assert!(what(opcode::INIT, &[]).is_ok(), "INIT has no least size");
    }
}
