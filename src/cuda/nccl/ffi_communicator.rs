//! NCCL communicator with non-blocking calls: every call starts an operation, and
//! [`Communicator::progress`] returns its state.
//!
//! Lengths are checked here, and memory is passed as `cudarc`'s slices, which wait for earlier users and are
//! not freed before the stream has finished with them. Therefore none of these functions is unsafe to
//! call.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, SyncOnDrop};

use crate::cuda::device::DeviceAddress;
use crate::cuda::nccl::error::NcclError;
use crate::cuda::nccl::ffi::{
    Comm, Config, CudaStreamHandle, Functions, IN_PROGRESS, NcclLibrary, SUCCESS, UniqueId,
};
use crate::cuda::nccl::types::{NcclElement, Reduction};

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
    pub(crate) fn all_reduce<T: NcclElement>(
        &mut self,
        data: &mut impl DevicePtrMut<T>,
        op: Reduction,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let count = data.len();
        self.in_place(
            "ncclAllReduce",
            data,
            stream,
            |nccl, Memory { from, to, dtype }, comm, on| {
                // SAFETY: as documented on `in_place`.
                unsafe { (nccl.all_reduce)(from, to, count, dtype, op as c_int, comm, on) }
            },
        )
    }

    /// Replaces the data of all ranks by the root's.
    pub(crate) fn broadcast<T: NcclElement>(
        &mut self,
        data: &mut impl DevicePtrMut<T>,
        root: usize,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let count = data.len();
        self.in_place(
            "ncclBroadcast",
            data,
            stream,
            |nccl, Memory { from, to, dtype }, comm, on| {
                // SAFETY: as documented on `in_place`.
                unsafe { (nccl.broadcast)(from, to, count, dtype, root as c_int, comm, on) }
            },
        )
    }

    /// Replaces the root's data by the reduction; the data of other ranks does not change.
    pub(crate) fn reduce<T: NcclElement>(
        &mut self,
        data: &mut impl DevicePtrMut<T>,
        op: Reduction,
        root: usize,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let count = data.len();
        self.in_place("ncclReduce", data, stream, |nccl, Memory { from, to, dtype }, comm, on| {
            // SAFETY: as documented on `in_place`; only the root's memory is written.
            unsafe { (nccl.reduce)(from, to, count, dtype, op as c_int, root as c_int, comm, on) }
        })
    }

    /// Gathers the `input` of all ranks, in rank order; `output` is world size times as long.
    pub(crate) fn all_gather<T: NcclElement>(
        &mut self,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let count = input.len();
        self.out_of_place("ncclAllGather", (input, output), stream, |nccl, memory, comm, on| {
            let Memory { from, to, dtype } = memory;
            // SAFETY: as documented on `out_of_place`; the caller has checked the lengths.
            unsafe { (nccl.all_gather)(from, to, count, dtype, comm, on) }
        })
    }

    /// Writes this rank's part of the reduction to `output`; `input` is world size times as long.
    pub(crate) fn reduce_scatter<T: NcclElement>(
        &mut self,
        input: &impl DevicePtr<T>,
        output: &mut impl DevicePtrMut<T>,
        op: Reduction,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let count = output.len();
        self.out_of_place("ncclReduceScatter", (input, output), stream, |nccl, memory, comm, on| {
            let Memory { from, to, dtype } = memory;
            // SAFETY: as documented on `out_of_place`; the caller has checked the lengths.
            unsafe { (nccl.reduce_scatter)(from, to, count, dtype, op as c_int, comm, on) }
        })
    }

    /// Gathers part `r` of the data of every rank `r`; the data has an equal part for each rank.
    pub(crate) fn all_gather_in_place<T: NcclElement>(
        &mut self,
        data: &mut impl DevicePtrMut<T>,
        (rank, world): (usize, usize),
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let count = data.len() / world;
        let starts = InPlace { input: rank * count, output: 0 };
        self.within("ncclAllGather", (data, starts), stream, |nccl, memory, comm, on| {
            let Memory { from, to, dtype } = memory;
            // SAFETY: as documented on `within`; NCCL permits an input that is its part of the output.
            unsafe { (nccl.all_gather)(from, to, count, dtype, comm, on) }
        })
    }

    /// Replaces this rank's part of the data by that part of the reduction; the data has an equal part for each
    /// rank.
    pub(crate) fn reduce_scatter_in_place<T: NcclElement>(
        &mut self,
        data: &mut impl DevicePtrMut<T>,
        op: Reduction,
        (rank, world): (usize, usize),
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let count = data.len() / world;
        let starts = InPlace { input: 0, output: rank * count };
        self.within("ncclReduceScatter", (data, starts), stream, |nccl, memory, comm, on| {
            let Memory { from, to, dtype } = memory;
            // SAFETY: as documented on `within`; NCCL permits an output that is its part of the input.
            unsafe { (nccl.reduce_scatter)(from, to, count, dtype, op as c_int, comm, on) }
        })
    }

    /// Starts an in-place call; the memory outlives the work on the stream.
    fn in_place<T: NcclElement>(
        &mut self,
        function: &'static str,
        data: &mut impl DevicePtrMut<T>,
        stream: &CudaStream,
        call: impl FnOnce(&Functions, Memory, Comm, CudaStreamHandle) -> c_int,
    ) -> Result<(), NcclError> {
        self.within(function, (data, InPlace { input: 0, output: 0 }), stream, call)
    }

    /// Starts a call with input and output in one memory, which outlives the work on the stream.
    fn within<T: NcclElement>(
        &mut self,
        function: &'static str,
        (data, starts): (&mut impl DevicePtrMut<T>, InPlace),
        stream: &CudaStream,
        call: impl FnOnce(&Functions, Memory, Comm, CudaStreamHandle) -> c_int,
    ) -> Result<(), NcclError> {
        let (at, _guard) = data.device_ptr_mut(stream);
        let address = |start: usize| at + (start * size_of::<T>()) as u64;
        let memory = Memory::of::<T>(address(starts.input), address(starts.output));
        let code = call(&self.library.functions, memory, self.raw, stream_handle(stream));
        check_started(&self.library, function, code)
    }

    /// Starts an out-of-place call, which reads the input and writes the output.
    fn out_of_place<T: NcclElement>(
        &mut self,
        function: &'static str,
        (input, output): (&impl DevicePtr<T>, &mut impl DevicePtrMut<T>),
        stream: &CudaStream,
        call: impl FnOnce(&Functions, Memory, Comm, CudaStreamHandle) -> c_int,
    ) -> Result<(), NcclError> {
        let (from, _reads) = input.device_ptr(stream);
        let (to, _writes) = output.device_ptr_mut(stream);
        let code = call(
            &self.library.functions,
            Memory::of::<T>(from, to),
            self.raw,
            stream_handle(stream),
        );
        check_started(&self.library, function, code)
    }

    /// Sends pieces of `input` to peers and receives pieces of `output` from peers, in one group call.
    pub(crate) fn exchange<T: NcclElement>(
        &mut self,
        (input, sends): (&impl DevicePtr<T>, &[PeerSlice]),
        (output, recvs): (&mut impl DevicePtrMut<T>, &[PeerSlice]),
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let (input, output) =
            (BufferLease::to_read(input, stream), BufferLease::to_write(output, stream));
        self.exchange_leased((&input, sends), (&output, recvs), stream)
    }

    /// Same as [`Self::exchange`], for memory that is already leased to the stream.
    pub(crate) fn exchange_leased<T: NcclElement>(
        &mut self,
        (input, sends): (&BufferLease<'_, T>, &[PeerSlice]),
        (output, recvs): (&BufferLease<'_, T>, &[PeerSlice]),
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let inside =
            |len: usize, piece: &PeerSlice| piece.1.start <= piece.1.end && piece.1.end <= len;
        assert!(sends.iter().all(|piece| inside(input.len, piece)), "a piece exceeds the input");
        assert!(recvs.iter().all(|piece| inside(output.len, piece)), "a piece exceeds the output");
        let (from, to) = (input.address, output.address);
        let functions = &self.library.functions;
        let address =
            |start: u64, piece: &PeerSlice| start + (piece.1.start * size_of::<T>()) as u64;
        let dtype = T::DATA_TYPE as c_int;
        // SAFETY: the call begins a group of calls of this thread.
        check_started(&self.library, "ncclGroupStart", unsafe { (functions.group_start)() })?;
        let mut outcome = Ok(());
        for piece in sends {
            let at = address(from, piece) as *const c_void;
            // SAFETY: the piece was checked above; the memory outlives the work on the stream.
            let code = unsafe {
                (functions.send)(
                    at,
                    piece.1.len(),
                    dtype,
                    piece.0 as c_int,
                    self.raw,
                    stream_handle(stream),
                )
            };
            outcome = outcome.and_then(|()| check_started(&self.library, "ncclSend", code));
        }
        for piece in recvs {
            let at = address(to, piece) as *mut c_void;
            // SAFETY: as for sends.
            let code = unsafe {
                (functions.recv)(
                    at,
                    piece.1.len(),
                    dtype,
                    piece.0 as c_int,
                    self.raw,
                    stream_handle(stream),
                )
            };
            outcome = outcome.and_then(|()| check_started(&self.library, "ncclRecv", code));
        }
        // SAFETY: the call ends the group, whether its calls succeeded or not.
        let ended =
            check_started(&self.library, "ncclGroupEnd", unsafe { (functions.group_end)() });
        outcome.and(ended)
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
pub(crate) struct BufferLease<'a, T> {
    address: u64,
    len: usize,
    #[expect(dead_code, reason = "dropping it releases the memory")]
    guard: SyncOnDrop<'a>,
    element: PhantomData<T>,
}

impl<'a, T> BufferLease<'a, T> {
    /// Leases memory for reading; it cannot be written through the lease.
    pub(crate) fn to_read(data: &'a impl DevicePtr<T>, stream: &'a CudaStream) -> Self {
        let (len, (at, guard)) = (data.len(), data.device_ptr(stream));
        Self { address: at, len, guard, element: PhantomData }
    }

    /// Leases memory for reading and writing.
    pub(crate) fn to_write(data: &'a mut impl DevicePtrMut<T>, stream: &'a CudaStream) -> Self {
        let len = data.len();
        let (at, guard) = data.device_ptr_mut(stream);
        Self { address: at, len, guard, element: PhantomData }
    }

    /// Address of the first byte.
    pub(crate) fn address(&self) -> DeviceAddress {
        DeviceAddress(self.address)
    }

    /// Number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Lease of a range of the memory.
    pub(crate) fn part(&self, range: &Range<usize>) -> BufferLease<'_, T> {
        assert!(range.start <= range.end && range.end <= self.len, "a part exceeds its memory");
        let address = self.address + (range.start * size_of::<T>()) as u64;
        // The lease of the whole memory releases it.
        let guard = SyncOnDrop::Record(None);
        BufferLease { address, len: range.len(), guard, element: PhantomData }
    }
}

/// First elements of input and output in the memory of an in-place call.
#[derive(Clone, Copy)]
struct InPlace {
    input: usize,
    output: usize,
}

/// Addresses and element type of a call, as NCCL expects them.
struct Memory {
    from: *const c_void,
    to: *mut c_void,
    dtype: c_int,
}

impl Memory {
    fn of<T: NcclElement>(from: u64, to: u64) -> Self {
        let dtype = T::DATA_TYPE as c_int;
        Self { from: from as *const c_void, to: to as *mut c_void, dtype }
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
