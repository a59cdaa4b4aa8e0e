//! NCCL communicator with non-blocking calls: every call starts an operation, and
//! [`Communicator::progress`] returns its state.
//!
//! Lengths are checked here, and memory is passed as leases, which wait for earlier users and keep the memory until
//! the stream has finished with it. Therefore none of these functions is unsafe to call.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::{CudaStream, SyncOnDrop};

use crate::cuda::device::{DeviceAddress, PeerMemory};
use crate::cuda::nccl::error::NcclError;
use crate::cuda::nccl::ffi::{
    Comm, Config, CudaStreamHandle, Functions, IN_PROGRESS, NcclLibrary, SUCCESS, UniqueId,
};
use crate::cuda::nccl::types::{DataType, Reduction};

/// State of the operation that was started last; see `ncclCommGetAsyncError`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommProgress {
    InProgress,
    Done,
}

/// Communicator of one rank.
pub(crate) struct Communicator {
    pub(super) library: Arc<NcclLibrary>,
    pub(super) raw: Comm,
}

// SAFETY: NCCL permits any thread to use a communicator, one at a time, and all uses are through
// `&mut`.
unsafe impl Send for Communicator {}

/// Piece of data to or from a peer: the peer, and the range of elements in the memory of the call.
pub(crate) type PeerSlice = (usize, Range<usize>);

impl Communicator {
    /// Starts to create a communicator; every rank calls it, on its device, with the same id. Its kernels have at most
    /// `ctas_max` blocks, which take multiprocessors from other kernels; `None`: as many as NCCL chooses.
    pub(crate) fn start_init(
        library: &Arc<NcclLibrary>,
        id: UniqueId,
        (rank, world): (usize, usize),
        ctas_max: Option<c_int>,
    ) -> Result<Self, NcclError> {
        let mut raw = std::ptr::null_mut();
        let mut config = Config::nonblocking(ctas_max);
        // SAFETY: both pointers are read and written before the call returns.
        let code = unsafe {
            (library.functions.comm_init_rank_config)(
                &raw mut raw,
                world as c_int,
                id,
                rank as c_int,
                &raw mut config,
            )
        };
        check_started(library, "ncclCommInitRankConfig", code)?;
        Ok(Self { library: library.clone(), raw })
    }

    /// Starts to create communicators of the ranks with the same color; all ranks call it. A rank
    /// without a color is in none.
    pub(crate) fn start_split(
        &mut self,
        color: Option<usize>,
        key: usize,
    ) -> Result<Option<Self>, NcclError> {
        const NO_COLOR: c_int = -1;
        let mut raw = std::ptr::null_mut();
        let mut config = Config::nonblocking(None);
        let color_code = color.map_or(NO_COLOR, |color| color as c_int);
        // SAFETY: a live communicator; both pointers are read and written before the call returns.
        let code = unsafe {
            (self.library.functions.comm_split)(
                self.raw,
                color_code,
                key as c_int,
                &raw mut raw,
                &raw mut config,
            )
        };
        check_started(&self.library, "ncclCommSplit", code)?;
        Ok(color.map(|_| Self { library: self.library.clone(), raw }))
    }

    /// The library that the communicator belongs to.
    pub(crate) fn library(&self) -> &Arc<NcclLibrary> {
        &self.library
    }

    /// State of the operation that was started last, or an error since then, on this rank or
    /// another.
    pub(crate) fn progress(&self) -> Result<CommProgress, NcclError> {
        let mut state = SUCCESS;
        // SAFETY: the communicator is live; the call writes one number.
        let code =
            unsafe { (self.library.functions.comm_get_async_error)(self.raw, &raw mut state) };
        self.library.check("ncclCommGetAsyncError", code)?;
        match state {
            SUCCESS => Ok(CommProgress::Done),
            IN_PROGRESS => Ok(CommProgress::InProgress),
            code => self.library.check("NCCL communicator", code).map(|()| CommProgress::Done),
        }
    }

    /// Replaces the data of all ranks by their reduction.
    pub(crate) fn all_reduce(
        &mut self,
        data: &BufferLease<'_>,
        op: Reduction,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let (from, to, count, dtype) = (data.to_read(), data.to_write(), data.len, data.code());
        // SAFETY: the communicator and the stream are live; the lease keeps the memory for the stream.
        self.start("ncclAllReduce", |nccl, raw| unsafe {
            (nccl.all_reduce)(from, to, count, dtype, op as c_int, raw, stream_handle(stream))
        })
    }

    /// Replaces the data of all ranks by the root's.
    pub(crate) fn broadcast(
        &mut self,
        data: &BufferLease<'_>,
        root: usize,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let (from, to, count, dtype) = (data.to_read(), data.to_write(), data.len, data.code());
        // SAFETY: as above.
        self.start("ncclBroadcast", |nccl, raw| unsafe {
            (nccl.broadcast)(from, to, count, dtype, root as c_int, raw, stream_handle(stream))
        })
    }

    /// Replaces the root's data by the reduction; the data of other ranks does not change.
    pub(crate) fn reduce(
        &mut self,
        data: &BufferLease<'_>,
        op: Reduction,
        root: usize,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let (from, to, count, dtype) = (data.to_read(), data.to_write(), data.len, data.code());
        let (op, root) = (op as c_int, root as c_int);
        // SAFETY: as above; only the root's memory is written.
        self.start("ncclReduce", |nccl, raw| unsafe {
            (nccl.reduce)(from, to, count, dtype, op, root, raw, stream_handle(stream))
        })
    }

    /// Gathers the `input` of all ranks, in rank order; `output` is world size times as long, and may contain the input
    /// as this rank's part.
    pub(crate) fn all_gather(
        &mut self,
        input: &BufferLease<'_>,
        output: &BufferLease<'_>,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let (from, to, count, dtype) =
            (input.to_read(), output.to_write(), input.len, input.code());
        // SAFETY: as above; the caller has checked the lengths.
        self.start("ncclAllGather", |nccl, raw| unsafe {
            (nccl.all_gather)(from, to, count, dtype, raw, stream_handle(stream))
        })
    }

    /// Writes this rank's part of the reduction to `output`; `input` is world size times as long, and may contain the
    /// output as this rank's part.
    pub(crate) fn reduce_scatter(
        &mut self,
        input: &BufferLease<'_>,
        output: &BufferLease<'_>,
        op: Reduction,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let (from, to, count, dtype) =
            (input.to_read(), output.to_write(), output.len, output.code());
        // SAFETY: as above; the caller has checked the lengths.
        self.start("ncclReduceScatter", |nccl, raw| unsafe {
            (nccl.reduce_scatter)(from, to, count, dtype, op as c_int, raw, stream_handle(stream))
        })
    }

    /// Sends pieces of `input` to peers and receives pieces of `output` from peers, in one group call.
    pub(crate) fn exchange(
        &mut self,
        (input, sends): (&BufferLease<'_>, &[PeerSlice]),
        (output, recvs): (&BufferLease<'_>, &[PeerSlice]),
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let memory = |lease: &BufferLease<'_>, pieces: &[PeerSlice]| -> Vec<PeerMemory> {
            let piece = |(peer, range): &PeerSlice| lease.part(range).of_peer(*peer);
            pieces.iter().map(piece).collect()
        };
        self.exchange_on(&memory(input, sends), &memory(output, recvs), stream)
    }

    /// Starts a call of the library.
    pub(super) fn start(
        &self,
        function: &'static str,
        call: impl FnOnce(&Functions, Comm) -> c_int,
    ) -> Result<(), NcclError> {
        check_started(&self.library, function, call(&self.library.functions, self.raw))
    }

    /// Starts to complete all operations and to release the communicator's resources.
    pub(crate) fn start_finalize(&mut self) -> Result<(), NcclError> {
        // SAFETY: the communicator is live.
        let code = unsafe { (self.library.functions.comm_finalize)(self.raw) };
        check_started(&self.library, "ncclCommFinalize", code)
    }

    /// Releases a finalized communicator.
    pub(crate) fn destroy(mut self) {
        let raw = std::mem::replace(&mut self.raw, std::ptr::null_mut());
        // SAFETY: the communicator is live, and this is its last use. An error cannot be handled.
        let _ = unsafe { (self.library.functions.comm_destroy)(raw) };
    }
}

impl Drop for Communicator {
    /// Aborts the communicator: operations in progress end with an error.
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: the communicator is live, and this is its last use.
            let _ = unsafe { (self.library.functions.comm_abort)(self.raw) };
        }
    }
}

/// Device memory that a stream can use until this is dropped: the stream waits for earlier users, and
/// later users wait for the stream.
pub(crate) struct BufferLease<'a> {
    address: u64,
    len: usize,
    dtype: DataType,
    #[expect(dead_code, reason = "dropping it releases the memory")]
    guard: SyncOnDrop<'a>,
}

impl<'a> BufferLease<'a> {
    /// Leases `len` elements from an address until the guard is dropped.
    pub(crate) fn new(
        (address, guard): (u64, SyncOnDrop<'a>),
        len: usize,
        dtype: DataType,
    ) -> Self {
        Self { address, len, dtype, guard }
    }

    /// Address of the first element.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.len * self.dtype.bytes()
    }

    /// Lease of a range of the memory.
    pub(crate) fn part(&self, range: &Range<usize>) -> BufferLease<'_> {
        assert!(range.start <= range.end && range.end <= self.len, "a part exceeds its memory");
        let address = self.address + (range.start * self.dtype.bytes()) as u64;
        // The lease of the whole memory releases it.
        let guard = SyncOnDrop::Record(None);
        BufferLease { address, len: range.len(), dtype: self.dtype, guard }
    }

    /// The memory as a message to or from a rank.
    fn of_peer(&self, peer: usize) -> PeerMemory {
        PeerMemory { peer, at: DeviceAddress(self.address), bytes: self.bytes() }
    }

    fn to_read(&self) -> *const c_void {
        self.address as *const c_void
    }

    fn to_write(&self) -> *mut c_void {
        self.address as *mut c_void
    }

    /// The element type, as the library numbers it.
    fn code(&self) -> c_int {
        self.dtype as c_int
    }
}

/// Checks that a call has been started or has already completed.
pub(super) fn check_started(
    library: &NcclLibrary,
    function: &'static str,
    code: c_int,
) -> Result<(), NcclError> {
    if code == IN_PROGRESS { Ok(()) } else { library.check(function, code) }
}

fn stream_handle(stream: &CudaStream) -> CudaStreamHandle {
    stream.cu_stream().cast()
}
