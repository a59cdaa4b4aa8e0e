//! The emulated device: a shared object with the kernels, compiled for a CPU (`emulation/`).

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;

use libloading::Library;
use remuda::cuda::device::{DeviceAddress, KernelArgument};
use remuda::cuda::kernels::{KernelLaunch, KernelTraffic};

/// Length of the longest message.
const MESSAGE_BYTES: usize = 512;

/// Order in which the emulated device does what it may do in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schedule {
    /// Copies land when they are waited for, and threads take turns. The number chooses the order of the turns.
    Late(u64),
    /// Copies land at once, and a warp runs as far as it can. The number chooses the warps.
    Early(u64),
}

/// A mistake in a line of a kernel: what the statement of this line does instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) kind: MistakeKind,
    pub(super) line: u32,
}

/// Kinds of mistakes, with the numbers of `machine.hpp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MistakeKind {
    NoBarrier = 1,
    ShortWait = 2,
    NoSeal = 3,
    WrongCopy = 4,
    WrongLoad = 5,
    NoShuffle = 6,
}

/// The layout of `Request` in `launch.hpp`.
#[derive(Clone, Copy)]
#[repr(C)]
struct LaunchRequest {
    kernel: *const c_char,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u64,
    arguments: *mut *mut c_void,
    argument_count: u64,
    schedule: u32,
    mistake: u32,
    mistake_line: u32,
    seed: u64,
    traffic: *mut CountedTraffic,
}

/// The layout of `Traffic` in `traffic.hpp`.
#[repr(C)]
#[derive(Default)]
struct CountedTraffic {
    read: u64,
    written: u64,
}

type Allocate = unsafe extern "C" fn(u64) -> *mut c_void;
type Release = unsafe extern "C" fn(*mut c_void) -> c_int;
type Launch = unsafe extern "C" fn(*const LaunchRequest, *mut c_char, u64) -> c_int;

/// The functions of the shared object, which stays open.
pub(super) struct EmulatedDevice {
    allocate: Allocate,
    release: Release,
    launch: Launch,
    _library: Library,
}

/// Memory of an emulated device; accesses beside it end a launch with an error.
pub(super) struct EmulatedMemory<'d> {
    device: &'d EmulatedDevice,
    data: *mut u8,
    bytes: usize,
}

impl LaunchRequest {
    /// A launch without kernel and arguments.
    fn new(size: KernelLaunch, schedule: Schedule, mistake: Option<Mistake>) -> Self {
        let (schedule, seed) = match schedule {
            Schedule::Late(seed) => (0, seed),
            Schedule::Early(seed) => (1, seed),
        };
        Self {
            kernel: std::ptr::null(),
            grid: size.grid,
            block: [size.threads, 1, 1],
            shared_bytes: u64::from(size.shared_bytes),
            arguments: std::ptr::null_mut(),
            argument_count: 0,
            schedule,
            mistake: mistake.map_or(0, |mistake| mistake.kind as u32),
            mistake_line: mistake.map_or(0, |mistake| mistake.line),
            seed,
            traffic: std::ptr::null_mut(),
        }
    }
}

impl EmulatedDevice {
    /// Opens a shared object that was built for this test.
    pub(super) fn open(path: &Path) -> Self {
        // SAFETY: the object has no code that runs when it is opened; the types are those of `interface.hpp`.
        unsafe {
            let library = Library::new(path).expect("the shared object was built");
            let allocate = *library.get::<Allocate>(b"emulated_allocate\0").expect("it is there");
            let release = *library.get::<Release>(b"emulated_release\0").expect("it is there");
            let launch = *library.get::<Launch>(b"emulated_launch\0").expect("it is there");
            Self { allocate, release, launch, _library: library }
        }
    }

    /// Allocates memory with this content.
    pub(super) fn memory(&self, content: &[u8]) -> EmulatedMemory<'_> {
        // SAFETY: any size may be passed.
        let data = unsafe { (self.allocate)(content.len() as u64) }.cast::<u8>();
        assert!(!data.is_null(), "there are {} bytes of memory", content.len());
        // SAFETY: the new allocation has room for the content.
        unsafe { data.copy_from_nonoverlapping(content.as_ptr(), content.len()) };
        EmulatedMemory { device: self, data, bytes: content.len() }
    }

    /// Runs a kernel, such as `norm_bf16.norm_forward`, to its end. Addresses in the arguments are those of live
    /// memory of this device. An error names the kernel, and block and thread.
    pub(super) fn launch(
        &self,
        kernel: &str,
        size: KernelLaunch,
        arguments: &[KernelArgument],
        schedule: Schedule,
        mistake: Option<Mistake>,
    ) -> Result<(), String> {
        let request = LaunchRequest::new(size, schedule, mistake);
        self.run(kernel, request, arguments)
    }

    /// Runs a kernel and counts the bytes that it touches, if the shared object was compiled for counting.
    pub(super) fn count(
        &self,
        kernel: &str,
        size: KernelLaunch,
        arguments: &[KernelArgument],
    ) -> Result<KernelTraffic, String> {
        let mut counted = CountedTraffic::default();
        let request = LaunchRequest {
            traffic: &raw mut counted,
            ..LaunchRequest::new(size, Schedule::Late(0), None)
        };
        self.run(kernel, request, arguments)?;
        Ok(KernelTraffic { read: counted.read, written: counted.written })
    }

    fn run(
        &self,
        kernel: &str,
        request: LaunchRequest,
        arguments: &[KernelArgument],
    ) -> Result<(), String> {
        let kernel = CString::new(kernel).expect("a name without zero bytes");
        let mut words: Vec<[u8; 8]> = arguments.iter().map(|argument| argument.word()).collect();
        let mut pointers: Vec<*mut c_void> =
            words.iter_mut().map(|word| word.as_mut_ptr().cast()).collect();
        let request = LaunchRequest {
            kernel: kernel.as_ptr(),
            arguments: pointers.as_mut_ptr(),
            argument_count: pointers.len() as u64,
            ..request
        };
        let mut message = [0u8; MESSAGE_BYTES];
        // SAFETY: the request and what it points to live until the call returns. A kernel that accesses other memory
        // than that of its arguments stops at a page without access.
        let status = unsafe {
            (self.launch)(&raw const request, message.as_mut_ptr().cast(), MESSAGE_BYTES as u64)
        };
        if status == 0 {
            return Ok(());
        }
        let end = message.iter().position(|byte| *byte == 0).unwrap_or(message.len());
        Err(String::from_utf8_lossy(&message[..end]).into_owned())
    }
}

impl EmulatedMemory<'_> {
    pub(super) fn address(&self) -> DeviceAddress {
        DeviceAddress(self.data as u64)
    }

    /// The content.
    pub(super) fn read(&self) -> Vec<u8> {
        // SAFETY: the allocation has this length, all of it was written, and no launch is in progress.
        unsafe { std::slice::from_raw_parts(self.data, self.bytes) }.to_vec()
    }
}

// SAFETY: an allocation is used by one thread at a time: the one that runs launches, or its owner.
unsafe impl Send for EmulatedMemory<'_> {}
// SAFETY: as above; a shared reference only tells the address.
unsafe impl Sync for EmulatedMemory<'_> {}

/// Reads memory of the device, which must be allocated.
pub(super) fn read_memory(from: DeviceAddress, bytes: usize) -> Vec<u8> {
    // SAFETY: addresses of this device are those of this process, and no launch is in progress. An address beside
    // an allocation is beside a page without access.
    unsafe { std::slice::from_raw_parts(from.0 as *const u8, bytes) }.to_vec()
}

/// Writes memory of the device, which must be allocated.
pub(super) fn write_memory(to: DeviceAddress, from: &[u8]) {
    // SAFETY: as above.
    unsafe { (to.0 as *mut u8).copy_from_nonoverlapping(from.as_ptr(), from.len()) };
}

impl Drop for EmulatedMemory<'_> {
    fn drop(&mut self) {
        // SAFETY: the memory is that of this device, and this is its last use.
        let status = unsafe { (self.device.release)(self.data.cast()) };
        assert_eq!(status, 0, "the memory was allocated");
    }
}
