//! What is used of librados and librbd, as their headers (16.2) have it.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

pub(super) type Handle = *mut c_void;
pub(super) type Callback = extern "C" fn(completion: Handle, arg: *mut c_void);

#[link(name = "rados")]
unsafe extern "C" {
    pub(super) fn rados_create(cluster: *mut Handle, id: *const c_char) -> c_int;
    pub(super) fn rados_conf_read_file(cluster: Handle, path: *const c_char) -> c_int;
    pub(super) fn rados_conf_set(
        cluster: Handle,
        key: *const c_char,
        value: *const c_char,
    ) -> c_int;
    pub(super) fn rados_connect(cluster: Handle) -> c_int;
    pub(super) fn rados_shutdown(cluster: Handle);
    pub(super) fn rados_ioctx_create(
        cluster: Handle,
        pool: *const c_char,
        context: *mut Handle,
    ) -> c_int;
    pub(super) fn rados_ioctx_destroy(context: Handle);
}

#[link(name = "rbd")]
unsafe extern "C" {
    pub(super) fn rbd_open(
        context: Handle,
        name: *const c_char,
        image: *mut Handle,
        snapshot: *const c_char,
    ) -> c_int;
    pub(super) fn rbd_close(image: Handle) -> c_int;
    pub(super) fn rbd_get_size(image: Handle, bytes: *mut u64) -> c_int;
    pub(super) fn rbd_aio_create_completion(
        arg: *mut c_void,
        callback: Callback,
        completion: *mut Handle,
    ) -> c_int;
    pub(super) fn rbd_aio_release(completion: Handle);
    pub(super) fn rbd_aio_get_return_value(completion: Handle) -> isize;
    pub(super) fn rbd_aio_read(
        image: Handle,
        offset: u64,
        len: usize,
        to: *mut c_char,
        completion: Handle,
    ) -> c_int;
    pub(super) fn rbd_aio_write(
        image: Handle,
        offset: u64,
        len: usize,
        from: *const c_char,
        completion: Handle,
    ) -> c_int;
    pub(super) fn rbd_aio_write_zeroes(
        image: Handle,
        offset: u64,
        len: usize,
        completion: Handle,
        zero_flags: c_int,
        op_flags: c_int,
    ) -> c_int;
    pub(super) fn rbd_aio_discard(
        image: Handle,
        offset: u64,
        len: u64,
        completion: Handle,
    ) -> c_int;
    pub(super) fn rbd_aio_flush(image: Handle, completion: Handle) -> c_int;
}
