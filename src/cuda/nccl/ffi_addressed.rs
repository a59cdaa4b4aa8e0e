//! Operations of a [`Communicator`] on memory that is named by its address.
//!
//! A wrong address is an error of the device, which the library reports; it cannot harm the memory of the host, because
//! the addresses of the two are different. So none of these functions is unsafe to call.

use std::ffi::{c_int, c_void};

use cudarc::driver::CudaStream;

use crate::cuda::device::{DeviceAddress, PeerMemory};
use crate::cuda::driver::RawStream;
use crate::cuda::nccl::error::NcclError;
use crate::cuda::nccl::ffi_communicator::Communicator;
use crate::cuda::nccl::types::{DataType, Reduction};

const BYTES: c_int = DataType::U8 as c_int;
const FLOATS: c_int = DataType::F32 as c_int;
const SUM: c_int = Reduction::Sum as c_int;

impl Communicator {
    /// Starts to collect `bytes` bytes of every rank.
    pub(in crate::cuda) fn all_gather_at(
        &mut self,
        [from, to]: [DeviceAddress; 2],
        bytes: usize,
        stream: RawStream,
    ) -> Result<(), NcclError> {
        let (from, to) = (to_read(from), to_write(to));
        // SAFETY: the communicator and the stream are live; for the addresses see the module.
        self.start("ncclAllGather", |functions, raw| unsafe {
            (functions.all_gather)(from, to, bytes, BYTES, raw, stream.handle())
        })
    }

    /// Starts to sum numbers over all ranks, in place.
    pub(in crate::cuda) fn all_reduce_at(
        &mut self,
        at: DeviceAddress,
        count: usize,
        stream: RawStream,
    ) -> Result<(), NcclError> {
        let (from, to) = (to_read(at), to_write(at));
        // SAFETY: as above.
        self.start("ncclAllReduce", |functions, raw| unsafe {
            (functions.all_reduce)(from, to, count, FLOATS, SUM, raw, stream.handle())
        })
    }

    /// Starts to sum the parts of all ranks, of `count` numbers each, in place; `output` is the part of this rank.
    pub(in crate::cuda) fn reduce_scatter_at(
        &mut self,
        [input, output]: [DeviceAddress; 2],
        count: usize,
        stream: RawStream,
    ) -> Result<(), NcclError> {
        let (from, to) = (to_read(input), to_write(output));
        // SAFETY: as above; NCCL permits an output that is its part of the input.
        self.start("ncclReduceScatter", |functions, raw| unsafe {
            (functions.reduce_scatter)(from, to, count, FLOATS, SUM, raw, stream.handle())
        })
    }

    /// Sends and receives pieces, in one group call.
    pub(in crate::cuda) fn exchange_at(
        &mut self,
        sends: &[PeerMemory],
        recvs: &[PeerMemory],
        stream: RawStream,
    ) -> Result<(), NcclError> {
        self.exchange_in(sends, recvs, stream.handle())
    }

    /// The same in a stream of `cudarc`.
    pub(crate) fn exchange_on(
        &mut self,
        sends: &[PeerMemory],
        recvs: &[PeerMemory],
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        self.exchange_in(sends, recvs, stream.cu_stream().cast())
    }

    fn exchange_in(
        &mut self,
        sends: &[PeerMemory],
        recvs: &[PeerMemory],
        stream: *mut c_void,
    ) -> Result<(), NcclError> {
        // SAFETY: the call begins a group of calls of this thread.
        self.start("ncclGroupStart", |functions, _| unsafe { (functions.group_start)() })?;
        let mut outcome = Ok(());
        for PeerMemory { peer, at, bytes } in sends {
            let (from, peer) = (to_read(*at), *peer as c_int);
            // SAFETY: as above.
            let sent = self.start("ncclSend", |functions, raw| unsafe {
                (functions.send)(from, *bytes, BYTES, peer, raw, stream)
            });
            outcome = outcome.and(sent);
        }
        for PeerMemory { peer, at, bytes } in recvs {
            let (to, peer) = (to_write(*at), *peer as c_int);
            // SAFETY: as above.
            let received = self.start("ncclRecv", |functions, raw| unsafe {
                (functions.recv)(to, *bytes, BYTES, peer, raw, stream)
            });
            outcome = outcome.and(received);
        }
        // SAFETY: the call ends the group, whether its calls succeeded or not.
        let ended = self.start("ncclGroupEnd", |functions, _| unsafe { (functions.group_end)() });
        outcome.and(ended)
    }
}

fn to_read(address: DeviceAddress) -> *const c_void {
    address.0 as *const c_void
}

fn to_write(address: DeviceAddress) -> *mut c_void {
    address.0 as *mut c_void
}
