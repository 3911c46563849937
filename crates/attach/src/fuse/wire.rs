//! The messages of /dev/fuse as they lie in memory: `include/uapi/linux/fuse.h`, version 7.31 and what
//! later versions added, as far as a file system of one file needs it. In the machine's byte order.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! messages {
    ($($(#[$doc:meta])* struct $name:ident[$size:literal] { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $($(#[$field_doc])* pub $field: $kind,)* }
        const _: () = assert!(size_of::<$name>() == $size, "the kernel's size");
    )*};
}

messages! {
    /// Before every request.
    struct InHeader[40] {
        /// Of the whole message.
        len: u32,
        opcode: u32,
        unique: u64,
        node: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        extensions: u16,
        padding: u16,
    }

    /// Before every reply and notification.
    struct OutHeader[16] {
        /// Of the whole message.
        len: u32,
        /// 0, a negative errno, or (with `unique` 0) a notification's code.
        error: i32,
        unique: u64,
    }

    struct InitIn[64] {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        flags2: u32,
        unused: [u32; 11],
    }

    struct InitOut[64] {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_granularity: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        unused: [u32; 6],
    }

    struct Attributes[88] {
        inode: u64,
        size: u64,
        blocks: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atime_ns: u32,
        mtime_ns: u32,
        ctime_ns: u32,
        mode: u32,
        links: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        block_size: u32,
        flags: u32,
    }

    struct AttributesOut[104] {
        /// How long they hold, in seconds.
        valid: u64,
        valid_ns: u32,
        padding: u32,
        attributes: Attributes,
    }

    struct OpenOut[16] {
        handle: u64,
        flags: u32,
        backing: i32,
    }

    /// READ and WRITE.
    struct TransferIn[40] {
        handle: u64,
        offset: u64,
        size: u32,
        transfer_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }

    struct WriteOut[8] {
        size: u32,
        padding: u32,
    }

    struct AllocateIn[32] {
        handle: u64,
        offset: u64,
        length: u64,
        mode: u32,
        padding: u32,
    }

    struct StatfsOut[80] {
        blocks: u64,
        blocks_free: u64,
        blocks_available: u64,
        files: u64,
        files_free: u64,
        block_size: u32,
        name_length: u32,
        fragment_size: u32,
        padding: u32,
        spare: [u32; 6],
    }
}

/// `enum fuse_opcode`.
pub(crate) mod opcode {
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
}

/// Flags of INIT.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u32 = 1 << 0;
    pub(crate) const BIG_WRITES: u32 = 1 << 5;
    pub(crate) const ASYNC_DIO: u32 = 1 << 15;
    pub(crate) const ABORT_ERROR: u32 = 1 << 21;
    pub(crate) const MAX_PAGES: u32 = 1 << 22;
    pub(crate) const EXT: u32 = 1 << 30;
    /// In `flags2`: the kernel has NOTIFY_RESEND.
    pub(crate) const HAS_RESEND: u32 = 1 << (39 - 32);
}

/// Flags of OPEN's answer.
pub(crate) mod open {
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    pub(crate) const NO_FLUSH: u32 = 1 << 5;
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// `mode` of FALLOCATE.
pub(crate) mod allocate {
    pub(crate) const KEEP_SIZE: u32 = 0x01;
    pub(crate) const PUNCH_HOLE: u32 = 0x02;
    pub(crate) const ZERO_RANGE: u32 = 0x10;
}

/// Has the kernel send again what was read and not answered (`enum fuse_notify_code`).
pub(crate) const NOTIFY_RESEND: i32 = 7;
/// The version that is spoken.
pub(crate) const MAJOR: u32 = 7;
/// The least that is needed: larger requests than 128 KiB came with 28, this `InitOut` with 36.
pub(crate) const LEAST_MINOR: u32 = 36;
/// The newest of which something is used.
pub(crate) const NEWEST_MINOR: u32 = 40;
/// What lies before a write's data.
pub(crate) const WRITE_HEAD: usize = size_of::<InHeader>() + size_of::<TransferIn>();
