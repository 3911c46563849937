//! An image that is open, and what is asked of it: the only place that calls the library.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use ashlar_block::Operation;
use ashlar_reactor::Mailbox;

use super::RbdName;
use super::ffi::{self, Handle};
use crate::OpenError;

/// Seconds until a cluster that does not answer is given up.
const CLUSTER_TIMEOUT_SECONDS: &str = "30";

/// What a part of a request has come to: which, and the library's answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) flight: usize,
    pub(super) code: isize,
}

/// What is asked of an image.
pub(super) struct Wanted {
    pub(super) op: Operation,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Where the answer goes; it is with the library until there is one.
pub(super) struct Call {
    pub(super) flight: usize,
    pub(super) mail: Mailbox<Answer>,
}

/// Bytes in memory that stay where they are until the answer.
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub(super) at: *mut u8,
    pub(super) len: usize,
}

/// A connection to a cluster, and one image there.
pub(super) struct Image {
    cluster: Handle,
    context: Handle,
    image: Handle,
    /// A flush or a durable write has failed.
    pub(super) latched: AtomicBool,
}

// SAFETY: the library's handles may be used from any thread at any time, but for closing, which has the only one left.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

fn text(what: &str) -> Result<CString, OpenError> {
    let zero = |_| OpenError::usage(format!("`{what}`"), "has a zero byte");
    CString::new(what).map_err(zero)
}

/// The library's answer: a negative system error.
fn checked(code: c_int, name: &RbdName, why: &str) -> Result<(), OpenError> {
    if code >= 0 {
        return Ok(());
    }
    let source = std::io::Error::from_raw_os_error(-code);
    Err(OpenError::environment(format!("`{name}`"), why).with_source(source))
}

impl Image {
    pub(super) fn open(name: &RbdName) -> Result<Self, OpenError> {
        let id = text(name.id.as_deref().unwrap_or("admin"))?;
        let mut one = Self {
            cluster: null_mut(),
            context: null_mut(),
            image: null_mut(),
            latched: AtomicBool::new(false),
        };
        // SAFETY: texts end with zero and outlive the calls; each handle is made before it is used, and let go in `drop`.
        unsafe {
            let made = ffi::rados_create(&raw mut one.cluster, id.as_ptr());
            checked(made, name, "Ceph's library does not start")?;
            one.configure(name)?;
            checked(ffi::rados_connect(one.cluster), name, "no cluster answers")?;
            let pool = text(&name.pool)?;
            let context = ffi::rados_ioctx_create(one.cluster, pool.as_ptr(), &raw mut one.context);
            checked(context, name, "there is no such pool")?;
            let image = text(&name.image)?;
            let opened = ffi::rbd_open(one.context, image.as_ptr(), &raw mut one.image, null());
            checked(opened, name, "the image does not open")?;
        }
        Ok(one)
    }

    fn configure(&self, name: &RbdName) -> Result<(), OpenError> {
        let path = name.conf.as_deref().map(Path::to_string_lossy);
        let path = path.map(|path| text(&path)).transpose()?;
        let path = path.as_ref().map_or(null(), |path| path.as_ptr());
        // SAFETY: texts outlive the calls; without a path the library looks where it always does.
        let read = unsafe { ffi::rados_conf_read_file(self.cluster, path) };
        checked(read, name, "no configuration of Ceph can be read")?;
        for key in ["client_mount_timeout", "rados_mon_op_timeout"] {
            let (key, value) = (text(key)?, text(CLUSTER_TIMEOUT_SECONDS)?);
            // SAFETY: as above.
            let set = unsafe { ffi::rados_conf_set(self.cluster, key.as_ptr(), value.as_ptr()) };
            checked(set, name, "Ceph's configuration cannot be set")?;
        }
        Ok(())
    }

    pub(super) fn bytes(&self, name: &RbdName) -> Result<u64, OpenError> {
        let mut bytes = 0;
        // SAFETY: the image is open.
        let code = unsafe { ffi::rbd_get_size(self.image, &raw mut bytes) };
        checked(code, name, "its size cannot be read")?;
        Ok(bytes)
    }

    /// Begins it; the answer comes by mail, or at once if it could not be begun.
    ///
    /// # Safety
    /// `memory`, as large as the range, must be there, and used for nothing else until the answer has come.
    pub(super) unsafe fn begin(&self, what: &Wanted, memory: Option<Memory>, call: Call) {
        let call = Box::into_raw(Box::new(call));
        let mut completion = null_mut();
        // SAFETY: `answered` is called once for each completion that was handed over, and takes the box back.
        let code = unsafe {
            let code = ffi::rbd_aio_create_completion(call.cast(), answered, &raw mut completion);
            match code {
                0 => self.hand_over(what, memory, completion),
                code => code,
            }
        };
        if code < 0 {
            // SAFETY: the library has taken neither of the two.
            unsafe {
                if !completion.is_null() {
                    ffi::rbd_aio_release(completion);
                }
                Box::from_raw(call).say(code as isize);
            }
        }
    }

    /// # Safety
    /// As for `begin`.
    unsafe fn hand_over(&self, what: &Wanted, memory: Option<Memory>, completion: Handle) -> c_int {
        let &Wanted { op, offset, bytes } = what;
        let memory = memory.unwrap_or(Memory {
            at: null_mut(),
            len: 0,
        });
        let (at, len) = (memory.at.cast::<c_char>(), memory.len);
        // SAFETY: the caller's promise; the image is open.
        unsafe {
            match op {
                Operation::Read => ffi::rbd_aio_read(self.image, offset, len, at, completion),
                Operation::Write(_) => ffi::rbd_aio_write(self.image, offset, len, at, completion),
                Operation::WriteZeroes { .. } => {
                    let len = bytes as usize;
                    ffi::rbd_aio_write_zeroes(self.image, offset, len, completion, 0, 0)
                }
                Operation::Deallocate => {
                    ffi::rbd_aio_discard(self.image, offset, bytes, completion)
                }
                Operation::Flush => ffi::rbd_aio_flush(self.image, completion),
            }
        }
    }

    pub(super) fn is_latched(&self) -> bool {
        self.latched.load(Ordering::Acquire)
    }
}

impl Call {
    fn say(self, code: isize) {
        self.mail.post(Answer {
            flight: self.flight,
            code,
        });
    }
}

/// The library has done it; on a thread of its own.
extern "C" fn answered(completion: Handle, arg: *mut c_void) {
    // SAFETY: `arg` is the box of `begin`, and this is the only call with it.
    unsafe {
        let code = ffi::rbd_aio_get_return_value(completion);
        ffi::rbd_aio_release(completion);
        Box::from_raw(arg.cast::<Call>()).say(code);
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: nothing is under way: every queue holds the image until its last answer.
        unsafe {
            if !self.image.is_null() {
                ffi::rbd_close(self.image);
            }
            if !self.context.is_null() {
                ffi::rados_ioctx_destroy(self.context);
            }
            if !self.cluster.is_null() {
                ffi::rados_shutdown(self.cluster);
            }
        }
    }
}
