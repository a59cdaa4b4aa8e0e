//! Nonblocking communicator of NCCL: every call starts an operation, and [`Communicator::progress`]
//! returns its state.
//!
//! Lengths are checked here, and memory is passed as `cudarc`'s slices, which wait for earlier users and are
//! not freed before the stream has finished with them. Therefore none of these functions is unsafe to
//! call.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, SyncOnDrop};

use super::error::NcclError;
use super::ffi::{
    Comm, Config, Functions, IN_PROGRESS, Library, Registration, SUCCESS, Stream, UniqueId,
};
use crate::runtime::element::{Dtype, Element, ReduceOp};

/// How far what was begun last is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Underway,
    Done,
}

/// One rank's end of a communicator.
pub(crate) struct Communicator {
    library: Arc<Library>,
    raw: Comm,
}

// SAFETY: NCCL lets any thread use a communicator, one at a time, and all uses are through `&mut`.
unsafe impl Send for Communicator {}

/// What goes to a peer or comes from it: the peer, and which elements of the memory of the call.
pub(crate) type Piece = (usize, std::ops::Range<usize>);

impl Communicator {
    /// Begins to make a communicator; every rank does, on its device, with the same id.
    pub(crate) fn begin(
        library: &Arc<Library>,
        id: UniqueId,
        rank: usize,
        world: usize,
    ) -> Result<Self, NcclError> {
        let mut raw = std::ptr::null_mut();
        let mut config = Config::without_blocking();
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
        begun(library, "ncclCommInitRankConfig", code)?;
        Ok(Self { library: library.clone(), raw })
    }

    /// Begins to make communicators of the ranks that name the same color; all ranks take part.
    /// A rank without a color gets none.
    pub(crate) fn begin_split(
        &mut self,
        color: Option<usize>,
        key: usize,
    ) -> Result<Option<Self>, NcclError> {
        const NO_COLOR: c_int = -1;
        let mut raw = std::ptr::null_mut();
        let mut config = Config::without_blocking();
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
        begun(&self.library, "ncclCommSplit", code)?;
        Ok(color.map(|_| Self { library: self.library.clone(), raw }))
    }

    /// Whose it is.
    pub(crate) fn library(&self) -> &Arc<Library> {
        &self.library
    }

    /// Whether what was begun last has been taken up, or what went wrong since, here or elsewhere.
    pub(crate) fn progress(&self) -> Result<Progress, NcclError> {
        let mut state = SUCCESS;
        // SAFETY: a live communicator; it writes one number.
        let code =
            unsafe { (self.library.functions.comm_get_async_error)(self.raw, &raw mut state) };
        self.library.check("ncclCommGetAsyncError", code)?;
        match state {
            SUCCESS => Ok(Progress::Done),
            IN_PROGRESS => Ok(Progress::Underway),
            code => self.library.check("the communicator of NCCL", code).map(|()| Progress::Done),
        }
    }

    /// Replaces the data of all ranks by their reduction.
    pub(crate) fn all_reduce<T: Element>(
        &mut self,
        data: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let count = data.len();
        self.in_place(
            "ncclAllReduce",
            data,
            stream,
            |nccl, Memory { from, to, dtype }, comm, on| {
                // SAFETY: as `in_place` says.
                unsafe { (nccl.all_reduce)(from, to, count, dtype, op_code(op), comm, on) }
            },
        )
    }

    /// Replaces the data of all ranks by the root's.
    pub(crate) fn broadcast<T: Element>(
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
                // SAFETY: as `in_place` says.
                unsafe { (nccl.broadcast)(from, to, count, dtype, root as c_int, comm, on) }
            },
        )
    }

    /// Replaces the root's data by the reduction; the data of other ranks does not change.
    pub(crate) fn reduce<T: Element>(
        &mut self,
        data: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
        root: usize,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let count = data.len();
        self.in_place("ncclReduce", data, stream, |nccl, Memory { from, to, dtype }, comm, on| {
            // SAFETY: as `in_place` says; only the root's memory is written.
            unsafe { (nccl.reduce)(from, to, count, dtype, op_code(op), root as c_int, comm, on) }
        })
    }

    /// Gathers every rank's `ours`, in rank order; `all` is world size times as long.
    pub(crate) fn all_gather<T: Element>(
        &mut self,
        ours: &impl DevicePtr<T>,
        all: &mut impl DevicePtrMut<T>,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let count = ours.len();
        self.apart("ncclAllGather", (ours, all), stream, |nccl, memory, comm, on| {
            let Memory { from, to, dtype } = memory;
            // SAFETY: as `apart` says; the lengths were checked by who calls.
            unsafe { (nccl.all_gather)(from, to, count, dtype, comm, on) }
        })
    }

    /// Our part of the reduction; `all` is world size times as long as `ours`.
    pub(crate) fn reduce_scatter<T: Element>(
        &mut self,
        all: &impl DevicePtr<T>,
        ours: &mut impl DevicePtrMut<T>,
        op: ReduceOp,
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let count = ours.len();
        self.apart("ncclReduceScatter", (all, ours), stream, |nccl, memory, comm, on| {
            let Memory { from, to, dtype } = memory;
            // SAFETY: as `apart` says; the lengths were checked by who calls.
            unsafe { (nccl.reduce_scatter)(from, to, count, dtype, op_code(op), comm, on) }
        })
    }

    /// Begins a call on one memory, which outlives the work on the stream.
    fn in_place<T: Element>(
        &mut self,
        function: &'static str,
        data: &mut impl DevicePtrMut<T>,
        stream: &CudaStream,
        call: impl FnOnce(&Functions, Memory, Comm, Stream) -> c_int,
    ) -> Result<(), NcclError> {
        let (at, _guard) = data.device_ptr_mut(stream);
        let memory = Memory::of::<T>(at, at);
        let code = call(&self.library.functions, memory, self.raw, raw(stream));
        begun(&self.library, function, code)
    }

    /// The same on two: one is read, the other written.
    fn apart<T: Element>(
        &mut self,
        function: &'static str,
        (given, taken): (&impl DevicePtr<T>, &mut impl DevicePtrMut<T>),
        stream: &CudaStream,
        call: impl FnOnce(&Functions, Memory, Comm, Stream) -> c_int,
    ) -> Result<(), NcclError> {
        let (from, _reads) = given.device_ptr(stream);
        let (to, _writes) = taken.device_ptr_mut(stream);
        let code = call(&self.library.functions, Memory::of::<T>(from, to), self.raw, raw(stream));
        begun(&self.library, function, code)
    }

    /// Pieces of `given` to peers and pieces of `taken` from peers, all at once.
    pub(crate) fn exchange<T: Element>(
        &mut self,
        (given, sends): (&impl DevicePtr<T>, &[Piece]),
        (taken, recvs): (&mut impl DevicePtrMut<T>, &[Piece]),
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let (given, taken) = (Held::to_read(given, stream), Held::to_write(taken, stream));
        self.exchange_held((&given, sends), (&taken, recvs), stream)
    }

    /// The same on memory that the stream holds.
    pub(crate) fn exchange_held<T: Element>(
        &mut self,
        (given, sends): (&Held<'_, T>, &[Piece]),
        (taken, recvs): (&Held<'_, T>, &[Piece]),
        stream: &CudaStream,
    ) -> Result<(), NcclError> {
        let inside = |len: usize, piece: &Piece| piece.1.start <= piece.1.end && piece.1.end <= len;
        assert!(sends.iter().all(|piece| inside(given.len, piece)), "a part lies inside the whole");
        assert!(recvs.iter().all(|piece| inside(taken.len, piece)), "a part lies inside the whole");
        let (from, to) = (given.at, taken.at);
        let functions = &self.library.functions;
        let address = |start: u64, piece: &Piece| start + (piece.1.start * size_of::<T>()) as u64;
        let dtype = dtype_code(T::DTYPE);
        // SAFETY: it begins a list of calls of this thread.
        begun(&self.library, "ncclGroupStart", unsafe { (functions.group_start)() })?;
        let mut outcome = Ok(());
        for piece in sends {
            let at = address(from, piece) as *const c_void;
            // SAFETY: the piece was checked above; the memory outlives the work on the stream.
            let code = unsafe {
                (functions.send)(at, piece.1.len(), dtype, piece.0 as c_int, self.raw, raw(stream))
            };
            outcome = outcome.and_then(|()| begun(&self.library, "ncclSend", code));
        }
        for piece in recvs {
            let at = address(to, piece) as *mut c_void;
            // SAFETY: as for sends.
            let code = unsafe {
                (functions.recv)(at, piece.1.len(), dtype, piece.0 as c_int, self.raw, raw(stream))
            };
            outcome = outcome.and_then(|()| begun(&self.library, "ncclRecv", code));
        }
        // SAFETY: it ends the list, whatever became of its calls.
        let ended = begun(&self.library, "ncclGroupEnd", unsafe { (functions.group_end)() });
        outcome.and(ended)
    }

    /// Shows NCCL memory of the device, which it may then read and write without a copy of its own; `None`
    /// where it is too old for that (2.19).
    pub(crate) fn register<T>(
        &mut self,
        memory: &Held<'_, T>,
    ) -> Result<Option<Registered>, NcclError> {
        let Functions { comm_register: Some(register), comm_deregister: Some(_), .. } =
            &self.library.functions
        else {
            return Ok(None);
        };
        let mut raw = std::ptr::null_mut();
        let (at, bytes) = (memory.at as *mut c_void, memory.len * size_of::<T>());
        // SAFETY: a live communicator, memory of the device, and one place that is written.
        let code = unsafe { register(self.raw, at, bytes, &raw mut raw) };
        begun(&self.library, "ncclCommRegister", code)?;
        Ok(Some(Registered(raw)))
    }

    /// Makes NCCL forget memory, before it is freed.
    pub(crate) fn deregister(&mut self, Registered(raw): Registered) {
        if let Some(deregister) = self.library.functions.comm_deregister {
            // SAFETY: a live communicator, and what it gave. Nothing can be done about a refusal.
            let _ = unsafe { deregister(self.raw, raw) };
        }
    }

    /// Begins to bring everything to an end that was begun.
    pub(crate) fn begin_finalize(&mut self) -> Result<(), NcclError> {
        // SAFETY: a live communicator.
        let code = unsafe { (self.library.functions.comm_finalize)(self.raw) };
        begun(&self.library, "ncclCommFinalize", code)
    }

    /// Gives back what a communicator held that came to its end.
    pub(crate) fn destroy(mut self) {
        let raw = std::mem::replace(&mut self.raw, std::ptr::null_mut());
        // SAFETY: a live communicator, the last use of it. Nothing can be done about a refusal.
        let _ = unsafe { (self.library.functions.comm_destroy)(raw) };
    }
}

impl Drop for Communicator {
    /// Ends it at once: operations under way leave the device with an error.
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: a live communicator, the last use of it.
            let _ = unsafe { (self.library.functions.comm_abort)(self.raw) };
        }
    }
}

/// Memory that a communicator was shown.
pub(crate) struct Registered(Registration);

// SAFETY: a name that only its communicator understands, which any thread may use.
unsafe impl Send for Registered {}
// SAFETY: as above; nothing can be done with a shared one.
unsafe impl Sync for Registered {}

/// Device memory that a stream can use until this is dropped: the stream waits for earlier users, and
/// later users wait for the stream.
pub(crate) struct Held<'a, T> {
    at: u64,
    len: usize,
    #[expect(dead_code, reason = "it is there to be dropped")]
    guard: SyncOnDrop<'a>,
    element: PhantomData<T>,
}

impl<'a, T> Held<'a, T> {
    /// Creates a handle for reading; the memory cannot be written through it.
    pub(crate) fn to_read(data: &'a impl DevicePtr<T>, stream: &'a CudaStream) -> Self {
        let (len, (at, guard)) = (data.len(), data.device_ptr(stream));
        Self { at, len, guard, element: PhantomData }
    }

    pub(crate) fn to_write(data: &'a mut impl DevicePtrMut<T>, stream: &'a CudaStream) -> Self {
        let len = data.len();
        let (at, guard) = data.device_ptr_mut(stream);
        Self { at, len, guard, element: PhantomData }
    }
}

/// Memory of a call as NCCL takes it.
struct Memory {
    from: *const c_void,
    to: *mut c_void,
    dtype: c_int,
}

impl Memory {
    fn of<T: Element>(from: u64, to: u64) -> Self {
        let dtype = dtype_code(T::DTYPE);
        Self { from: from as *const c_void, to: to as *mut c_void, dtype }
    }
}

/// Begun or already over.
fn begun(library: &Library, function: &'static str, code: c_int) -> Result<(), NcclError> {
    if code == IN_PROGRESS { Ok(()) } else { library.check(function, code) }
}

fn raw(stream: &CudaStream) -> Stream {
    stream.cu_stream().cast()
}

/// `ncclDataType_t`.
fn dtype_code(dtype: Dtype) -> c_int {
    match dtype {
        Dtype::U8 => 1,
        Dtype::I32 => 2,
        Dtype::I64 => 4,
        Dtype::F16 => 6,
        Dtype::F32 => 7,
        Dtype::F64 => 8,
        Dtype::Bf16 => 9,
    }
}

/// `ncclRedOp_t`.
fn op_code(op: ReduceOp) -> c_int {
    match op {
        ReduceOp::Sum => 0,
        ReduceOp::Prod => 1,
        ReduceOp::Max => 2,
        ReduceOp::Min => 3,
        ReduceOp::Avg => 4,
    }
}
