//! Collectives on the caller's memory of GPUs, through NCCL or, where it cannot be used, through host memory.
//! Experimental: they have not run on a GPU yet.
//!
//! Every operation waits for the work that the caller's stream has when it is called. It blocks until it has ended, or is
//! started and returns at once: then the communication thread of the group watches it, so that the deadline of the group
//! holds and a lost rank is named. See [`DeviceGroup`].

use std::ffi::c_void;
use std::ptr::null;

use crate::capi::call_error::CallError;
use crate::capi::ffi_arguments::{
    CallResult, array, dtype_of, guarded, of_all_ranks, on_group, place, reduction,
};
use crate::capi::ffi_message::PeerMessage;
use crate::capi::started_work::StartedWork;
use crate::runtime::Group;
use crate::runtime::device::{
    CallerStream, DeviceBackend, DeviceCollective, DeviceGroup, DeviceMessage, open_device,
};

/// Memory of a call: the elements of the caller from two addresses, and the stream in which the caller uses them.
#[derive(Clone, Copy)]
struct Operands {
    input: (u64, usize),
    output: (u64, usize),
    dtype: u32,
    stream: *mut c_void,
}

impl Operands {
    /// Memory of an operation in place.
    fn in_place(data: u64, count: usize, dtype: u32, stream: *mut c_void) -> Self {
        Self { input: (0, 0), output: (data, count), dtype, stream }
    }

    /// Runs an operation, or starts it if the caller wants a handle.
    ///
    /// # Safety
    /// As for [`CallerStream::record`], [`CallerStream::memory`] and [`on_call`].
    unsafe fn run(
        self,
        devices: &DeviceGroup,
        collective: DeviceCollective,
        work: *mut *mut StartedWork,
    ) -> CallResult {
        let dtype = dtype_of(self.dtype)?;
        for (address, count) in [self.input, self.output] {
            check_address(address, count, dtype.bytes())?;
        }
        let call = |devices: &DeviceGroup| {
            // SAFETY: the caller promises it.
            let stream = unsafe { CallerStream::record(devices, self.stream) }?;
            // SAFETY: the caller promises it.
            let memory = |(address, count)| unsafe { stream.memory(address, count, dtype) };
            Ok(devices.run(collective, &mut memory(self.input), &mut memory(self.output))?)
        };
        // SAFETY: the caller promises it.
        unsafe { on_call(devices, work, call) }
    }
}

fn check_address(address: u64, count: usize, alignment: usize) -> CallResult {
    if count != 0 && (address == 0 || !address.is_multiple_of(alignment as u64)) {
        let problem = format!("the address {address:#x} is null or not aligned");
        return Err(CallError::argument(problem));
    }
    Ok(())
}

/// Makes a call, or starts its operation if the caller wants a handle.
///
/// # Safety
/// `work` is null or may be written; for the memory of the operation see [`DeviceGroup::start`].
unsafe fn on_call(
    devices: &DeviceGroup,
    work: *mut *mut StartedWork,
    call: impl FnOnce(&DeviceGroup) -> CallResult,
) -> CallResult {
    // SAFETY: the caller promises it.
    let Some(work) = (unsafe { work.as_mut() }) else { return call(devices) };
    // SAFETY: the caller promises it.
    let started = unsafe { devices.start(call) }?;
    *work = Box::into_raw(Box::new(StartedWork::Device(started)));
    Ok(())
}

/// Connects the GPUs of the ranks of `group`: every rank calls it with a device of its own, numbered as CUDA does in
/// this process.
///
/// # Safety
/// `group` is null or a group that has not been freed; `devices` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_devices_connect(
    group: *const Group,
    device: u32,
    devices: *mut *mut DeviceGroup,
) -> i32 {
    let call = |group: &Group| {
        // SAFETY: the caller promises it.
        let devices = unsafe { place(devices, "devices") }?;
        let context = open_device(device as usize)?;
        let connected = DeviceGroup::new(group, &context, DeviceBackend::Auto)?;
        *devices = Box::into_raw(Box::new(connected));
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}

/// Disconnects the GPUs; null is allowed. The group remains.
///
/// # Safety
/// `devices` is null or was returned by [`remuda_devices_connect`] and has not been freed, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_devices_free(devices: *mut DeviceGroup) -> i32 {
    guarded(|| {
        if !devices.is_null() {
            // SAFETY: the caller promises it; a function of this interface made the box.
            drop(unsafe { Box::from_raw(devices) });
        }
        Ok(())
    })
}

/// Whether NCCL moves the data: 1, or 0 for host memory and for null.
///
/// # Safety
/// `devices` is null or has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_devices_nccl(devices: *const DeviceGroup) -> i32 {
    // SAFETY: the caller promises it.
    let devices = unsafe { devices.as_ref() };
    devices.map_or(0, |devices| i32::from(devices.library().is_some()))
}

/// Replaces `count` elements on every rank by their reduction over all ranks.
///
/// # Safety
/// `devices` is null or has not been freed; `count` elements from `data` are on its device, and no other code uses them
/// until the operation has ended, except for earlier work of `stream`, which is null or a stream of the device; `work` is
/// null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_device_all_reduce(
    devices: *const DeviceGroup,
    data: u64,
    count: usize,
    dtype: u32,
    op: u32,
    stream: *mut c_void,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |devices: &DeviceGroup| {
        let collective = DeviceCollective::AllReduce { op: reduction(op)? };
        let operands = Operands::in_place(data, count, dtype, stream);
        // SAFETY: the caller promises it.
        unsafe { operands.run(devices, collective, work) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_devices(devices, call) }
}

/// Replaces `count` elements of rank `root` by their reduction over all ranks.
///
/// # Safety
/// As for [`remuda_device_all_reduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_device_reduce(
    devices: *const DeviceGroup,
    data: u64,
    count: usize,
    dtype: u32,
    op: u32,
    root: u32,
    stream: *mut c_void,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |devices: &DeviceGroup| {
        let collective = DeviceCollective::Reduce { op: reduction(op)?, root: root as usize };
        let operands = Operands::in_place(data, count, dtype, stream);
        // SAFETY: the caller promises it.
        unsafe { operands.run(devices, collective, work) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_devices(devices, call) }
}

/// Replaces `count` elements of every rank by those of rank `root`.
///
/// # Safety
/// As for [`remuda_device_all_reduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_device_broadcast(
    devices: *const DeviceGroup,
    data: u64,
    count: usize,
    dtype: u32,
    root: u32,
    stream: *mut c_void,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |devices: &DeviceGroup| {
        let collective = DeviceCollective::Broadcast { root: root as usize };
        let operands = Operands::in_place(data, count, dtype, stream);
        // SAFETY: the caller promises it.
        unsafe { operands.run(devices, collective, work) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_devices(devices, call) }
}

/// Fills `output` with the `count` elements of `input` of every rank, in rank order.
///
/// # Safety
/// As for [`remuda_device_all_reduce`], of both memories.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_device_all_gather(
    devices: *const DeviceGroup,
    input: u64,
    output: u64,
    count: usize,
    dtype: u32,
    stream: *mut c_void,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |devices: &DeviceGroup| {
        let all = of_all_ranks(devices.group(), count)?;
        let operands = Operands { input: (input, count), output: (output, all), dtype, stream };
        // SAFETY: the caller promises it.
        unsafe { operands.run(devices, DeviceCollective::AllGather, work) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_devices(devices, call) }
}

/// Fills the `count` elements of `output` with part `rank` of the reduction of `input` over all ranks.
///
/// # Safety
/// As for [`remuda_device_all_reduce`], of both memories.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_device_reduce_scatter(
    devices: *const DeviceGroup,
    input: u64,
    output: u64,
    count: usize,
    dtype: u32,
    op: u32,
    stream: *mut c_void,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |devices: &DeviceGroup| {
        let all = of_all_ranks(devices.group(), count)?;
        let collective = DeviceCollective::ReduceScatter { op: reduction(op)? };
        let operands = Operands { input: (input, all), output: (output, count), dtype, stream };
        // SAFETY: the caller promises it.
        unsafe { operands.run(devices, collective, work) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_devices(devices, call) }
}

/// Sends part `r` of `input` to rank `r` and fills part `r` of `output` with the part from rank `r`; a part has `count`
/// elements.
///
/// # Safety
/// As for [`remuda_device_all_reduce`], of both memories.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_device_all_to_all(
    devices: *const DeviceGroup,
    input: u64,
    output: u64,
    count: usize,
    dtype: u32,
    stream: *mut c_void,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |devices: &DeviceGroup| {
        let all = of_all_ranks(devices.group(), count)?;
        let operands = Operands { input: (input, all), output: (output, all), dtype, stream };
        // SAFETY: the caller promises it.
        unsafe { operands.run(devices, DeviceCollective::AllToAll, work) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_devices(devices, call) }
}

/// Fills `output` of rank `root` with the `count` elements of `input` of every rank, in rank order; other ranks pass 0.
///
/// # Safety
/// As for [`remuda_device_all_reduce`], of both memories.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_device_gather(
    devices: *const DeviceGroup,
    input: u64,
    output: u64,
    count: usize,
    dtype: u32,
    root: u32,
    stream: *mut c_void,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |devices: &DeviceGroup| {
        let root = root as usize;
        let all = of_root(devices.group(), count, root)?;
        let operands = Operands { input: (input, count), output: (output, all), dtype, stream };
        // SAFETY: the caller promises it.
        unsafe { operands.run(devices, DeviceCollective::Gather { root }, work) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_devices(devices, call) }
}

/// Fills the `count` elements of `output` of every rank with part `rank` of `input` of rank `root`; other ranks pass 0.
///
/// # Safety
/// As for [`remuda_device_all_reduce`], of both memories.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_device_scatter(
    devices: *const DeviceGroup,
    input: u64,
    output: u64,
    count: usize,
    dtype: u32,
    root: u32,
    stream: *mut c_void,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |devices: &DeviceGroup| {
        let root = root as usize;
        let all = of_root(devices.group(), count, root)?;
        let operands = Operands { input: (input, all), output: (output, count), dtype, stream };
        // SAFETY: the caller promises it.
        unsafe { operands.run(devices, DeviceCollective::Scatter { root }, work) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_devices(devices, call) }
}

/// Sends and receives several messages at the same time; the address of a message is one of the device.
///
/// # Safety
/// As for [`remuda_device_all_reduce`], of all memories; `sends` and `recvs` have that many messages.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_device_exchange(
    devices: *const DeviceGroup,
    sends: *const PeerMessage,
    send_count: usize,
    recvs: *const PeerMessage,
    recv_count: usize,
    stream: *mut c_void,
    work: *mut *mut StartedWork,
) -> i32 {
    let call = |devices: &DeviceGroup| {
        // SAFETY: the caller promises it.
        let sends = messages_of(unsafe { array(sends, send_count, "sends") }?)?;
        // SAFETY: the caller promises it.
        let recvs = messages_of(unsafe { array(recvs, recv_count, "recvs") }?)?;
        let exchange = |devices: &DeviceGroup| {
            // SAFETY: the caller promises it.
            let after = unsafe { CallerStream::record(devices, stream) }?;
            // SAFETY: the caller promises it.
            Ok(unsafe { devices.exchange(&sends, &recvs, &after) }?)
        };
        // SAFETY: the caller promises it.
        unsafe { on_call(devices, work, exchange) }
    };
    // SAFETY: the caller promises it.
    unsafe { on_devices(devices, call) }
}

/// Sends elements to another rank.
///
/// # Safety
/// As for [`remuda_device_all_reduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_device_send(
    devices: *const DeviceGroup,
    data: u64,
    count: usize,
    dtype: u32,
    to: u32,
    stream: *mut c_void,
    work: *mut *mut StartedWork,
) -> i32 {
    let message = PeerMessage { data: data as *mut c_void, count, dtype, peer: to };
    // SAFETY: the caller promises it.
    unsafe { remuda_device_exchange(devices, &raw const message, 1, null(), 0, stream, work) }
}

/// Receives elements from another rank.
///
/// # Safety
/// As for [`remuda_device_all_reduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_device_recv(
    devices: *const DeviceGroup,
    data: u64,
    count: usize,
    dtype: u32,
    from: u32,
    stream: *mut c_void,
    work: *mut *mut StartedWork,
) -> i32 {
    let message = PeerMessage { data: data as *mut c_void, count, dtype, peer: from };
    // SAFETY: the caller promises it.
    unsafe { remuda_device_exchange(devices, null(), 0, &raw const message, 1, stream, work) }
}

/// Makes later work of `stream` wait until an operation has ended; the host does not wait, and the handle remains.
///
/// # Safety
/// `work` is null or a handle that was not freed, and no other thread uses it now; `stream` is null or a stream of the
/// device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_device_wait(work: *mut StartedWork, stream: *mut c_void) -> i32 {
    guarded(|| {
        // SAFETY: the caller promises it.
        match unsafe { place(work, "work") }? {
            // SAFETY: the caller promises it.
            StartedWork::Device(work) => Ok(unsafe { work.order(stream) }?),
            StartedWork::Host(_) => Err(CallError::argument("the operation is not one of GPUs")),
        }
    })
}

/// Frees the handle of an operation on GPUs without a wait; null is allowed. The operation goes on.
///
/// # Safety
/// `work` is null or a handle of an operation on GPUs that was not freed, and no other thread uses it now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_device_release(work: *mut StartedWork) -> i32 {
    guarded(|| {
        if !work.is_null() {
            // SAFETY: the caller promises it; a started operation made the box.
            drop(unsafe { Box::from_raw(work) });
        }
        Ok(())
    })
}

/// Number of elements of all ranks' parts on the root; none on other ranks.
fn of_root(group: &Group, count: usize, root: usize) -> Result<usize, CallError> {
    if group.rank() == root { of_all_ranks(group, count) } else { Ok(0) }
}

/// Messages of the caller.
fn messages_of(messages: &[PeerMessage]) -> Result<Vec<DeviceMessage>, CallError> {
    let message = |own: &PeerMessage| {
        let (dtype, address) = (dtype_of(own.dtype)?, own.data as u64);
        check_address(address, own.count, dtype.bytes())?;
        Ok(DeviceMessage { peer: own.peer as usize, address, count: own.count, dtype })
    };
    messages.iter().map(message).collect()
}

/// A guarded call on connected GPUs, whose panic aborts their group.
///
/// # Safety
/// `devices` is null or has not been freed.
unsafe fn on_devices(
    devices: *const DeviceGroup,
    call: impl FnOnce(&DeviceGroup) -> CallResult,
) -> i32 {
    // SAFETY: the caller promises it.
    let Some(devices) = (unsafe { devices.as_ref() }) else {
        return guarded(|| Err(CallError::argument("the devices are null")));
    };
    // SAFETY: the group lives as long as its devices.
    unsafe { on_group(devices.group(), |_| call(devices)) }
}
