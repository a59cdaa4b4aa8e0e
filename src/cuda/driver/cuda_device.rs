//! [`CudaDevice`]: a GPU as a [`Device`].

use std::sync::{Arc, Mutex, MutexGuard};

use cudarc::driver::CudaContext;

use crate::base::{clock, env_vars, lock};
use crate::cuda::cublaslt::{
    AlgorithmChoice, CublasLt, CublasLtError, LtAddresses, LtAlgorithms, LtHandle, LtMethod,
    LtPlan, LtProduct, LtWorkspace, ShareChoices,
};
use crate::cuda::device::{
    CommunicatorOffer, Device, DeviceAddress, DeviceCommunicator, DeviceError, DeviceMatrix,
    DeviceMemory, EventId, KernelArgument, Matmul, MatmulBatch, PinnedId, SourceKernel, StreamId,
};
use crate::cuda::driver::cubin_cache::CubinCache;
use crate::cuda::driver::ffi_calls::{Driver, PinnedMemory, RawEvent, RawStream};
use crate::cuda::driver::nccl_ranks::{NcclRanks, exchange_failed};
use crate::cuda::driver::programs::Programs;
use crate::cuda::kernels::{Kernel, KernelLaunch, KernelProgram};
use crate::cuda::nccl::{NcclLibrary, NcclMemory, UniqueId};
use crate::cuda::nvrtc::{Architecture, Compiler};

/// Memory of a stream that algorithms of products may use: what NVIDIA recommends for Hopper, and enough for others.
pub(crate) const WORKSPACE_BYTES: usize = 32 << 20;
/// Products whose time is that of an algorithm, after one that is not timed.
const TIMED_PRODUCTS: u32 = 5;
/// Oldest compute capability of the kernels: that of the first tensor cores for bfloat16.
pub(crate) const OLDEST_ARCHITECTURE: Architecture = Architecture { major: 8, minor: 0 };

/// GPU of this machine. Its libraries are opened when it is created, so that a missing one is found before anything
/// is computed.
pub struct CudaDevice {
    driver: Driver,
    state: Mutex<State>,
    /// Apart from the state: while ranks agree on an algorithm, other threads use the device.
    algorithms: Mutex<LtAlgorithms>,
}

/// What grows while a device is used.
struct State {
    streams: Vec<Stream>,
    events: Vec<RawEvent>,
    pinned: Vec<PinnedMemory>,
    programs: Programs,
}

struct Stream {
    raw: RawStream,
    /// Memory for products, from the first one on.
    workspace: Option<Box<dyn DeviceMemory>>,
}

/// A stream to which products are submitted.
#[derive(Clone, Copy)]
struct ProductStream {
    stream: StreamId,
    raw: RawStream,
    workspace: LtWorkspace,
}

struct CudaMemory {
    driver: Driver,
    address: DeviceAddress,
    bytes: usize,
    /// The memory if NCCL has allocated it, else the driver has.
    of_nccl: Option<NcclMemory>,
}

impl CudaDevice {
    /// Opens the libraries for a device. Products have the first algorithm that cuBLASLt proposes.
    ///
    /// # Errors
    /// If a library is missing, the driver fails, or the device is too old.
    pub fn new(context: Arc<CudaContext>, cache: CubinCache) -> Result<Self, DeviceError> {
        Self::with_algorithms(context, cache, AlgorithmChoice::First, None)
    }

    /// The same with another choice of algorithms, or that of rank 0: then all ranks call it.
    ///
    /// # Errors
    /// Those of [`new`](Self::new); [`DeviceError::Differs`] if algorithms have to be those of rank 0 and cannot be.
    pub fn with_algorithms(
        context: Arc<CudaContext>,
        cache: CubinCache,
        choice: AlgorithmChoice,
        share: Option<Arc<dyn ShareChoices>>,
    ) -> Result<Self, DeviceError> {
        let driver = Driver::new(context);
        let compiler = Compiler::open().map_err(|error| unsupported(error.to_string()))?;
        let library = CublasLt::open().map_err(|error| unsupported(error.to_string()))?;
        let architecture = driver.architecture()?;
        check_architecture(&driver.name(), architecture)?;
        let handle = LtHandle::new(library).map_err(|error| lt_failed(&error))?;
        let algorithms =
            LtAlgorithms::new(Arc::new(handle), &driver.name(), WORKSPACE_BYTES, choice, share);
        let algorithms = algorithms.map_err(|error| lt_failed(&error))?;
        let programs = Programs::new(compiler, architecture, cache);
        let (streams, events, pinned) = (Vec::new(), Vec::new(), Vec::new());
        let state = Mutex::new(State { streams, events, pinned, programs });
        Ok(Self { driver, state, algorithms: Mutex::new(algorithms) })
    }

    /// Returns why this rank uses other algorithms for products than rank 0, if it does.
    pub fn refused_algorithms(&self) -> Option<String> {
        lock(&self.algorithms).refusal().map(ToString::to_string)
    }

    /// Lets this GPU use the memory of another one, if the machine can; returns whether it can. If it cannot, copies
    /// between them go through the memory of the host.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn enable_peer(&self, other: &Self) -> Result<bool, DeviceError> {
        self.driver.enable_peer(&other.driver)
    }

    /// Submits a copy of `bytes` bytes of another GPU. What wrote them must be complete.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn copy_from_peer(
        &self,
        stream: StreamId,
        (other, from): (&Self, DeviceAddress),
        to: DeviceAddress,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        self.driver.copy_from_peer(self.stream(stream), &other.driver, [from, to], bytes)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is valid after each of its changes.
        lock(&self.state)
    }

    fn stream(&self, stream: StreamId) -> RawStream {
        self.state().streams[stream.0 as usize].raw
    }

    fn event(&self, event: EventId) -> RawEvent {
        self.state().events[event.0 as usize]
    }

    /// The method of a product, which is chosen at its first use.
    fn method(&self, on: ProductStream, product: &Matmul) -> Result<LtMethod, DeviceError> {
        let described = LtProduct::of(product);
        if let Some(method) = lock(&self.algorithms).known(&described) {
            return Ok(method);
        }
        let plain = product.with_epilogue_apart().map(|(plain, _)| self.method(on, &plain));
        let apart = plain.transpose()?.map(LtMethod::into_plan);
        let mut time =
            |method: &LtMethod| self.time(on, method, product).map_err(|error| error.to_string());
        lock(&self.algorithms)
            .choose(described, apart, &mut time)
            .map_err(|error| lt_failed(&error))
    }

    /// Seconds of a product with a method. What is there may be overwritten, unless the product is added to it: then the
    /// result is written to other memory. If there is too little of it, all methods take the same time.
    fn time(
        &self,
        on: ProductStream,
        method: &LtMethod,
        product: &Matmul,
    ) -> Result<f64, DeviceError> {
        let c = product.c;
        let MatmulBatch { count, strides: [.., of_c] } = product.batch;
        let elements = (count as usize - 1) * of_c as usize + c.rows as usize * c.stride as usize;
        let bytes = elements * c.element.bytes();
        let other = match product.adds.then(|| self.alloc(bytes)).transpose() {
            Err(DeviceError::OutOfMemory { .. }) => return Ok(0.0),
            other => other?,
        };
        let address = other.as_ref().map_or(c.address, |memory| memory.address());
        let product = Matmul { c: DeviceMatrix { address, ..c }, ..*product };
        // A download waits for what was submitted before.
        let wait = || self.driver.download(on.raw, address, &mut [0; 2]);
        self.multiply(on, method, &product)?;
        wait()?;
        let start = clock::now();
        (0..TIMED_PRODUCTS).try_for_each(|_| self.multiply(on, method, &product))?;
        wait()?;
        Ok((clock::now() - start).as_secs_f64())
    }

    /// Submits a product with a method.
    fn multiply(
        &self,
        on: ProductStream,
        method: &LtMethod,
        product: &Matmul,
    ) -> Result<(), DeviceError> {
        let submit = |plan: &LtPlan, product: &Matmul| {
            self.driver.multiply(on.raw, plan, LtAddresses::of(product), on.workspace)
        };
        match method {
            LtMethod::Whole(plan) => submit(plan, product),
            LtMethod::EpilogueApart(plan) => {
                let apart = product.with_epilogue_apart();
                let (plain, kernel) = apart.expect("only an epilogue has this method");
                submit(plan, &plain)?;
                self.launch(on.stream, kernel.kernel, kernel.size, &kernel.arguments)
            }
        }
    }

    /// The memory of a stream for products.
    fn workspace(&self, stream: &mut Stream) -> Result<LtWorkspace, DeviceError> {
        if stream.workspace.is_none() {
            stream.workspace = Some(self.alloc(WORKSPACE_BYTES)?);
        }
        let memory = stream.workspace.as_ref().expect("it was allocated");
        Ok(LtWorkspace { address: memory.address(), bytes: memory.bytes() })
    }
}

fn unsupported(problem: String) -> DeviceError {
    DeviceError::Unsupported { problem }
}

/// Refuses devices for which the kernels cannot be compiled.
fn check_architecture(name: &str, found: Architecture) -> Result<(), DeviceError> {
    let Architecture { major, minor } = found;
    if OLDEST_ARCHITECTURE.major <= major {
        return Ok(());
    }
    Err(unsupported(format!(
        "{name} has compute capability {major}.{minor}; the kernels need {}.{} or newer",
        OLDEST_ARCHITECTURE.major, OLDEST_ARCHITECTURE.minor
    )))
}

fn lt_failed(error: &CublasLtError) -> DeviceError {
    if let CublasLtError::OtherMachine { .. } = error {
        return DeviceError::Differs { problem: error.to_string() };
    }
    DeviceError::Failed { operation: "a product".to_owned(), problem: error.to_string() }
}

impl DeviceMemory for CudaMemory {
    fn address(&self) -> DeviceAddress {
        self.address
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        match self.of_nccl.take() {
            None => self.driver.free(self.address),
            // Unlike the driver, NCCL does not wait for the operations on the memory.
            Some(memory) => self.driver.free_after_operations(memory),
        }
    }
}

impl Device for CudaDevice {
    fn name(&self) -> String {
        self.driver.name()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.driver.free_bytes()
    }

    fn alloc(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>, DeviceError> {
        let address = self.driver.alloc(bytes)?;
        Ok(Box::new(CudaMemory { driver: self.driver.clone(), address, bytes, of_nccl: None }))
    }

    fn alloc_exchanged(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>, DeviceError> {
        let Ok(library) = NcclLibrary::open() else { return self.alloc(bytes) };
        self.driver.enter()?;
        match NcclMemory::alloc(&library, bytes) {
            Ok(Some(memory)) => {
                let (driver, address) = (self.driver.clone(), memory.address());
                Ok(Box::new(CudaMemory { driver, address, bytes, of_nccl: Some(memory) }))
            }
            // The driver has memory, or says why it has none.
            Ok(None) | Err(_) => self.alloc(bytes),
        }
    }

    fn create_stream(&self) -> Result<StreamId, DeviceError> {
        let raw = self.driver.create_stream()?;
        let streams = &mut self.state().streams;
        streams.push(Stream { raw, workspace: None });
        Ok(StreamId(streams.len() as u32 - 1))
    }

    fn create_event(&self) -> Result<EventId, DeviceError> {
        let raw = self.driver.create_event()?;
        let events = &mut self.state().events;
        events.push(raw);
        Ok(EventId(events.len() as u32 - 1))
    }

    fn record(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        self.driver.record(self.stream(stream), self.event(event))
    }

    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        self.driver.wait(self.stream(stream), self.event(event))
    }

    fn is_complete(&self, event: EventId) -> Result<bool, DeviceError> {
        self.driver.is_complete(self.event(event))
    }

    fn upload(&self, stream: StreamId, from: &[u8], to: DeviceAddress) -> Result<(), DeviceError> {
        self.driver.upload(self.stream(stream), from, to)
    }

    fn create_pinned(&self, bytes: usize) -> Result<Option<PinnedId>, DeviceError> {
        let Some(memory) = self.driver.alloc_pinned(bytes)? else { return Ok(None) };
        let pinned = &mut self.state().pinned;
        pinned.push(memory);
        Ok(Some(PinnedId(pinned.len() as u32 - 1)))
    }

    fn upload_pinned(
        &self,
        stream: StreamId,
        through: PinnedId,
        from: &[u8],
        to: DeviceAddress,
    ) -> Result<(), DeviceError> {
        let state = self.state();
        let stream = state.streams[stream.0 as usize].raw;
        self.driver.upload_pinned(stream, &state.pinned[through.0 as usize], from, to)
    }

    fn download(
        &self,
        stream: StreamId,
        from: DeviceAddress,
        to: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.driver.download(self.stream(stream), from, to)
    }

    fn copy(
        &self,
        stream: StreamId,
        from: DeviceAddress,
        to: DeviceAddress,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        self.driver.copy(self.stream(stream), [from, to], bytes)
    }

    fn clear(&self, stream: StreamId, at: DeviceAddress, bytes: usize) -> Result<(), DeviceError> {
        self.driver.clear(self.stream(stream), at, bytes)
    }

    fn launch(
        &self,
        stream: StreamId,
        (program, kernel): (KernelProgram, Kernel),
        size: KernelLaunch,
        arguments: &[KernelArgument],
    ) -> Result<(), DeviceError> {
        let raw = self.state().programs.kernel(&self.driver, program, kernel)?;
        self.driver.launch(self.stream(stream), (raw, kernel.name()), size, arguments)
    }

    fn matmul(&self, stream: StreamId, product: &Matmul) -> Result<(), DeviceError> {
        // Operands that do not fit are a mistake of the caller, as for every device.
        product.shape();
        let on = {
            let of_stream = &mut self.state().streams[stream.0 as usize];
            let (raw, workspace) = (of_stream.raw, self.workspace(of_stream)?);
            ProductStream { stream, raw, workspace }
        };
        self.multiply(on, &self.method(on, product)?, product)
    }

    fn launch_source(
        &self,
        stream: StreamId,
        kernel: &SourceKernel,
        size: KernelLaunch,
        arguments: &[KernelArgument],
    ) -> Result<(), DeviceError> {
        let raw = self.state().programs.source_kernel(&self.driver, kernel)?;
        self.driver.launch(self.stream(stream), (raw, &kernel.name), size, arguments)
    }

    fn load_source(&self, kernel: &SourceKernel) -> Result<(), DeviceError> {
        self.state().programs.source_kernel(&self.driver, kernel).map(drop)
    }

    fn communicator_offer(&self) -> Option<CommunicatorOffer> {
        let (library, uuid) = (NcclLibrary::open().ok()?, self.driver.uuid().ok()?);
        let sharing = env_vars::get_text(env_vars::NCCL_MULTI_RANK_GPU_ENABLE);
        let may_share = sharing.as_deref() == Some("1");
        Some(CommunicatorOffer { uuid, version: library.version(), may_share })
    }

    fn create_communicator_id(&self) -> Result<UniqueId, DeviceError> {
        NcclLibrary::open()
            .and_then(|library| library.unique_id())
            .map_err(|error| exchange_failed(&error))
    }

    fn connect(
        &self,
        stream: StreamId,
        id: UniqueId,
        ranks: (usize, usize),
    ) -> Result<Box<dyn DeviceCommunicator>, DeviceError> {
        let library = NcclLibrary::open().map_err(|error| exchange_failed(&error))?;
        let on = (self.driver.clone(), self.stream(stream));
        Ok(Box::new(NcclRanks::start(on, &library, id, ranks)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_are_too_old_are_refused_with_the_reason() {
        let check = |major, minor| check_architecture("NVIDIA T4", Architecture { major, minor });
        assert!(check(8, 0).is_ok() && check(12, 0).is_ok());
        let refused = check(7, 5).expect_err("it is too old").to_string();
        let expected = "NVIDIA T4 has compute capability 7.5; the kernels need 8.0 or newer";
        assert_eq!(refused, expected);
    }
}
