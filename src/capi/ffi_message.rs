//! Messages between two ranks.

use std::ffi::c_void;

use crate::capi::call_error::CallError;
use crate::capi::ffi_arguments::{array, elements, on_group, start_or_block};
use crate::capi::started_work::StartedWork;
use crate::runtime::{Group, RawSlice};

/// `remuda_message`: elements for one rank, or from one.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PeerMessage {
    /// The elements.
    pub data: *mut c_void,
    /// Number of elements.
    pub count: usize,
    /// Element type: `REMUDA_F32` and so on.
    pub dtype: u32,
    /// The other rank in the group.
    pub peer: u32,
}

/// Sends elements to rank `to`.
///
/// # Safety
/// `group` is null or a group that has not been freed; `count` elements from `data` are initialized and do not change
/// before the operation ends; `work` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_send(
    group: *const Group,
    data: *const c_void,
    count: usize,
    dtype: u32,
    to: u32,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |group: &Group| {
        // SAFETY: the caller promises it; the memory is only read.
        let values = unsafe { elements(data.cast_mut(), count, dtype) }?;
        let to = to as usize;
        let start = |values| group.start_send_raw(values, to);
        // SAFETY: the caller promises it.
        unsafe { start_or_block(work, values, start, |values| group.send_raw(&values, to)) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}

/// Receives elements from rank `from`.
///
/// # Safety
/// `group` is null or a group that has not been freed; `count` elements from `data` are initialized, and no other code
/// uses them before the operation ends; `work` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_recv(
    group: *const Group,
    data: *mut c_void,
    count: usize,
    dtype: u32,
    from: u32,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |group: &Group| {
        // SAFETY: the caller promises it.
        let values = unsafe { elements(data, count, dtype) }?;
        let from = from as usize;
        let start = |values| group.start_recv_raw(values, from);
        // SAFETY: the caller promises it.
        unsafe { start_or_block(work, values, start, |values| group.recv_raw(values, from)) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}

/// Sends and receives several messages at the same time. Messages to one rank, and from one, stay in order.
///
/// # Safety
/// `group` is null or a group that has not been freed; `sends` and `recvs` have as many messages as stated, with the
/// rules of [`remuda_send`] and [`remuda_recv`] for their elements; `work` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_exchange(
    group: *const Group,
    sends: *const PeerMessage,
    send_count: usize,
    recvs: *const PeerMessage,
    recv_count: usize,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |group: &Group| {
        // SAFETY: the caller promises it.
        let (sends, recvs) = unsafe {
            (messages(sends, send_count, "sends")?, messages(recvs, recv_count, "recvs")?)
        };
        let start = |(sends, recvs)| group.start_exchange_raw(sends, recvs);
        let block = |memory| start(memory).wait().map(drop);
        // SAFETY: the caller promises it.
        unsafe { start_or_block(work, (sends, recvs), start, block) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}

/// Ranks and elements of messages.
///
/// # Safety
/// As for the messages of [`remuda_exchange`].
unsafe fn messages(
    messages: *const PeerMessage,
    count: usize,
    name: &str,
) -> Result<Vec<(usize, RawSlice)>, CallError> {
    // SAFETY: the caller promises it.
    let messages = unsafe { array(messages, count, name) }?;
    let parts = messages.iter().map(|message| {
        // SAFETY: the caller promises it.
        let memory = unsafe { elements(message.data, message.count, message.dtype) }?;
        Ok((message.peer as usize, memory))
    });
    parts.collect()
}
