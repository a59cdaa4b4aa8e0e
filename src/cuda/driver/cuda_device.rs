//! [`CudaDevice`]: a GPU as a [`Device`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use cudarc::driver::CudaContext;

use crate::base::lock;
use crate::cuda::cublaslt::{CublasLt, CublasLtError, LtHandle, LtPlan, LtProduct, LtWorkspace};
use crate::cuda::device::{
    Device, DeviceAddress, DeviceError, DeviceMemory, EventId, KernelArgument, Matmul, StreamId,
};
use crate::cuda::driver::cubin_cache::CubinCache;
use crate::cuda::driver::ffi_calls::{Driver, RawEvent, RawStream};
use crate::cuda::driver::programs::Programs;
use crate::cuda::kernels::{Kernel, KernelLaunch, KernelProgram};
use crate::cuda::nvrtc::Compiler;

/// Memory of a stream that algorithms of products may use: what NVIDIA recommends for Hopper, and enough for others.
pub(crate) const WORKSPACE_BYTES: usize = 32 << 20;

/// GPU of this machine. Its libraries are opened when it is created, so that a missing one is found before anything
/// is computed.
pub struct CudaDevice {
    driver: Driver,
    products: Arc<LtHandle>,
    state: Mutex<State>,
}

/// What grows while a device is used.
struct State {
    streams: Vec<Stream>,
    events: Vec<RawEvent>,
    programs: Programs,
    plans: HashMap<LtProduct, Arc<LtPlan>>,
}

struct Stream {
    raw: RawStream,
    /// Memory for products, from the first one on.
    workspace: Option<Box<dyn DeviceMemory>>,
}

struct CudaMemory {
    driver: Driver,
    address: DeviceAddress,
    bytes: usize,
}

impl CudaDevice {
    /// Opens the libraries for a device.
    ///
    /// # Errors
    /// If a library is missing, or the driver fails.
    pub fn new(context: Arc<CudaContext>, cache: CubinCache) -> Result<Self, DeviceError> {
        let driver = Driver::new(context);
        let compiler = Compiler::open().map_err(|error| unsupported(error.to_string()))?;
        let library = CublasLt::open().map_err(|error| unsupported(error.to_string()))?;
        let architecture = driver.architecture()?;
        let products = LtHandle::new(library).map_err(|error| lt_failed(&error))?;
        let programs = Programs::new(compiler, architecture, cache);
        let (streams, events, plans) = (Vec::new(), Vec::new(), HashMap::new());
        let state = Mutex::new(State { streams, events, programs, plans });
        Ok(Self { driver, products: Arc::new(products), state })
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

    /// The plan of a product, which is made at its first use.
    fn plan(&self, state: &mut State, product: LtProduct) -> Result<Arc<LtPlan>, DeviceError> {
        if let Some(plan) = state.plans.get(&product) {
            return Ok(plan.clone());
        }
        let plan = self.products.plan(&product, WORKSPACE_BYTES);
        let plan = Arc::new(plan.map_err(|error| lt_failed(&error))?);
        state.plans.insert(product, plan.clone());
        Ok(plan)
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

fn lt_failed(error: &CublasLtError) -> DeviceError {
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
        self.driver.free(self.address);
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
        Ok(Box::new(CudaMemory { driver: self.driver.clone(), address, bytes }))
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
        let mut state = self.state();
        let plan = self.plan(&mut state, LtProduct::of(product))?;
        let stream = &mut state.streams[stream.0 as usize];
        let workspace = self.workspace(stream)?;
        let addresses = [product.b, product.a, product.c].map(|matrix| matrix.address);
        self.driver.multiply(stream.raw, &plan, addresses, workspace)
    }
}
