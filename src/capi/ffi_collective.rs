//! Collectives on the caller's memory.
//!
//! Every function has the same rules. If `work` is null, it returns when the operation has ended; else it starts the
//! operation and sets `work` to its handle, which [`remuda_wait`](crate::capi::remuda_wait) frees.

use std::ffi::c_void;
use std::time::Duration;

use crate::capi::call_error::CallError;
use crate::capi::ffi_arguments::{
    array, elements, of_all_ranks, on_group, reduction, start_or_block,
};
use crate::capi::started_work::StartedWork;
use crate::runtime::{Group, RawSlice};

/// Replaces `count` elements on every rank by their reduction over all ranks.
///
/// # Safety
/// `group` is null or a group that has not been freed; `count` elements from `data` are initialized, and no other code
/// uses them before the operation ends; `work` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_all_reduce(
    group: *const Group,
    data: *mut c_void,
    count: usize,
    dtype: u32,
    op: u32,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |group: &Group| {
        // SAFETY: the caller promises it.
        let data = unsafe { elements(data, count, dtype) }?;
        let op = reduction(op)?;
        let start = |data| group.start_all_reduce_raw(data, op);
        // SAFETY: the caller promises it.
        unsafe { start_or_block(work, data, start, |data| group.all_reduce_raw(data, op)) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}

/// Replaces `count` elements of rank `root` by their reduction over all ranks.
///
/// # Safety
/// `group` is null or a group that has not been freed; `count` elements from `data` are initialized, and no other code
/// uses them before the operation ends; `work` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_reduce(
    group: *const Group,
    data: *mut c_void,
    count: usize,
    dtype: u32,
    op: u32,
    root: u32,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |group: &Group| {
        // SAFETY: the caller promises it.
        let data = unsafe { elements(data, count, dtype) }?;
        let (op, root) = (reduction(op)?, root as usize);
        let start = |data| group.start_reduce_raw(data, op, root);
        // SAFETY: the caller promises it.
        unsafe { start_or_block(work, data, start, |data| group.reduce_raw(data, op, root)) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}

/// Replaces `count` elements of every rank by those of rank `root`.
///
/// # Safety
/// `group` is null or a group that has not been freed; `count` elements from `data` are initialized, and no other code
/// uses them before the operation ends; `work` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_broadcast(
    group: *const Group,
    data: *mut c_void,
    count: usize,
    dtype: u32,
    root: u32,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |group: &Group| {
        // SAFETY: the caller promises it.
        let data = unsafe { elements(data, count, dtype) }?;
        let root = root as usize;
        let start = |data| group.start_broadcast_raw(data, root);
        // SAFETY: the caller promises it.
        unsafe { start_or_block(work, data, start, |data| group.broadcast_raw(data, root)) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}

/// Fills `output` with the `count` elements of `input` of every rank, in rank order.
///
/// # Safety
/// `group` is null or a group that has not been freed; `input` and `output` have as many initialized elements as
/// stated; no other code uses `output`, and none writes `input`, before the operation ends; `work` is null or may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_all_gather(
    group: *const Group,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: u32,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |group: &Group| {
        let all = of_all_ranks(group, count)?;
        // SAFETY: the caller promises it.
        let (input, output) = unsafe { input_and_output((input, count), (output, all), dtype) }?;
        let start = |(input, output)| group.start_all_gather_raw(input, output);
        let block = |(input, output)| group.all_gather_raw(input, output);
        // SAFETY: the caller promises it.
        unsafe { start_or_block(work, (input, output), start, block) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}

/// Fills the `count` elements of `output` with part `rank` of the reduction of `input` over all ranks; `input` has
/// `count` elements for each rank.
///
/// # Safety
/// `group` is null or a group that has not been freed; `input` and `output` have as many initialized elements as
/// stated; no other code uses `output`, and none writes `input`, before the operation ends; `work` is null or may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_reduce_scatter(
    group: *const Group,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: u32,
    op: u32,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |group: &Group| {
        let all = of_all_ranks(group, count)?;
        let op = reduction(op)?;
        // SAFETY: the caller promises it.
        let (input, output) = unsafe { input_and_output((input, all), (output, count), dtype) }?;
        let start = |(input, output)| group.start_reduce_scatter_raw(input, output, op);
        let block = |(input, output)| group.reduce_scatter_raw(input, output, op);
        // SAFETY: the caller promises it.
        unsafe { start_or_block(work, (input, output), start, block) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}

/// Fills `output` of rank `root` with the `count` elements of `input` of every rank, in rank order; other ranks ignore
/// `output`.
///
/// # Safety
/// `group` is null or a group that has not been freed; `input` and `output` have as many initialized elements as
/// stated; no other code uses `output`, and none writes `input`, before the operation ends; `work` is null or may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_gather(
    group: *const Group,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: u32,
    root: u32,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |group: &Group| {
        let root = root as usize;
        let all = if root == group.rank() { of_all_ranks(group, count)? } else { 0 };
        // SAFETY: the caller promises it.
        let (input, output) = unsafe { input_and_output((input, count), (output, all), dtype) }?;
        let start = |(input, output)| group.start_gather_raw(input, output, root);
        let block = |(input, output)| group.gather_raw(input, output, root);
        // SAFETY: the caller promises it.
        unsafe { start_or_block(work, (input, output), start, block) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}

/// Fills the `count` elements of `output` of every rank with part `rank` of `input` of rank `root`; other ranks ignore
/// `input`.
///
/// # Safety
/// `group` is null or a group that has not been freed; `input` and `output` have as many initialized elements as
/// stated; no other code uses `output`, and none writes `input`, before the operation ends; `work` is null or may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_scatter(
    group: *const Group,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: u32,
    root: u32,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |group: &Group| {
        let root = root as usize;
        let all = if root == group.rank() { of_all_ranks(group, count)? } else { 0 };
        // SAFETY: the caller promises it.
        let (input, output) = unsafe { input_and_output((input, all), (output, count), dtype) }?;
        let start = |(input, output)| group.start_scatter_raw(input, output, root);
        let block = |(input, output)| group.scatter_raw(input, output, root);
        // SAFETY: the caller promises it.
        unsafe { start_or_block(work, (input, output), start, block) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}

/// Sends part `r` of `input` to rank `r` and fills part `r` of `output` with the part from rank `r`; a part has `count`
/// elements.
///
/// # Safety
/// `group` is null or a group that has not been freed; `input` and `output` have as many initialized elements as
/// stated; no other code uses `output`, and none writes `input`, before the operation ends; `work` is null or may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_all_to_all(
    group: *const Group,
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    dtype: u32,
    work: *mut *mut StartedWork,
) -> i32 {
    // SAFETY: the caller promises it.
    let ranks = unsafe { group.as_ref() }.map_or(0, Group::world_size);
    let counts = vec![count; ranks];
    // SAFETY: the caller promises it; the counts have one value for each rank.
    unsafe {
        remuda_all_to_all_v(group, input, counts.as_ptr(), output, counts.as_ptr(), dtype, work)
    }
}

/// [`remuda_all_to_all`] with parts of any length: `send_counts` and `recv_counts` have one number for each rank.
///
/// # Safety
/// `group` is null or a group that has not been freed; `input` and `output` have as many initialized elements as
/// stated; no other code uses `output`, and none writes `input`, before the operation ends; `work` is null or may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_all_to_all_v(
    group: *const Group,
    input: *const c_void,
    send_counts: *const usize,
    output: *mut c_void,
    recv_counts: *const usize,
    dtype: u32,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |group: &Group| {
        let ranks = group.world_size();
        // SAFETY: the caller promises it.
        let sends = unsafe { array(send_counts, ranks, "send_counts") }?.to_vec();
        // SAFETY: the caller promises it.
        let recvs = unsafe { array(recv_counts, ranks, "recv_counts") }?.to_vec();
        // SAFETY: the caller promises it.
        let (input, output) =
            unsafe { input_and_output((input, sum(&sends)?), (output, sum(&recvs)?), dtype) }?;
        let start =
            |(input, sends, output, recvs)| group.start_all_to_all_raw(input, sends, output, recvs);
        let block =
            |(input, sends, output, recvs)| group.all_to_all_raw(input, sends, output, recvs);
        // SAFETY: the caller promises it.
        unsafe { start_or_block(work, (input, sends, output, recvs), start, block) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}

/// Waits until every rank has called it.
///
/// # Safety
/// `group` is null or a group that has not been freed; `work` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_barrier(group: *const Group, work: *mut *mut StartedWork) -> i32 {
    let call = |group: &Group| {
        // SAFETY: the caller promises it.
        unsafe { start_or_block(work, (), |()| group.start_barrier(), |()| group.barrier()) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}

/// Waits until every rank has called it, for at most `timeout_ms`; 0 stands for the deadline of the group. See
/// [`Group::monitored_barrier`].
///
/// # Safety
/// `group` is null or a group that has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_monitored_barrier(group: *const Group, timeout_ms: u64) -> i32 {
    let timeout = (timeout_ms != 0).then(|| Duration::from_millis(timeout_ms));
    // SAFETY: the caller promises it.
    unsafe { on_group(group, |group| Ok(group.monitored_barrier(timeout)?)) }
}

/// Address and number of elements of the input and of the output of an operation; the input is only read.
///
/// # Safety
/// As for [`elements`], of both.
unsafe fn input_and_output(
    (input, input_count): (*const c_void, usize),
    (output, output_count): (*mut c_void, usize),
    dtype: u32,
) -> Result<(RawSlice, RawSlice), CallError> {
    // SAFETY: the caller promises it.
    unsafe {
        let input = elements(input.cast_mut(), input_count, dtype)?;
        Ok((input, elements(output, output_count, dtype)?))
    }
}

fn sum(counts: &[usize]) -> Result<usize, CallError> {
    let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
    sum.ok_or_else(|| CallError::argument("the sum of the counts is too large"))
}
