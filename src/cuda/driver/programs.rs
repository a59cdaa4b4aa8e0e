//! [`Programs`]: kernels of a device, compiled when they are first launched.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cuda::device::{DeviceError, SourceKernel};
use crate::cuda::driver::cubin_cache::CubinCache;
use crate::cuda::driver::ffi_calls::{Driver, RawKernel, RawModule};
use crate::cuda::kernels::{Kernel, KernelProgram};
use crate::cuda::nvrtc::{Architecture, Compiler, NvrtcError};

/// Programs that were loaded, and their kernels.
pub(super) struct Programs {
    compiler: Arc<Compiler>,
    architecture: Architecture,
    cache: CubinCache,
    loaded: HashMap<KernelProgram, RawModule>,
    kernels: HashMap<(KernelProgram, Kernel), RawKernel>,
    /// Kernels whose source was made at run time, by name.
    source_kernels: HashMap<String, RawKernel>,
}

impl Programs {
    pub(super) fn new(
        compiler: Arc<Compiler>,
        architecture: Architecture,
        cache: CubinCache,
    ) -> Self {
        let (loaded, kernels, source_kernels) = Default::default();
        Self { compiler, architecture, cache, loaded, kernels, source_kernels }
    }

    /// Returns a kernel.
    pub(super) fn kernel(
        &mut self,
        driver: &Driver,
        program: KernelProgram,
        kernel: Kernel,
    ) -> Result<RawKernel, DeviceError> {
        if let Some(found) = self.kernels.get(&(program, kernel)) {
            return Ok(*found);
        }
        let found = driver.kernel(self.module(driver, program)?, kernel.name())?;
        self.kernels.insert((program, kernel), found);
        Ok(found)
    }

    fn module(
        &mut self,
        driver: &Driver,
        program: KernelProgram,
    ) -> Result<RawModule, DeviceError> {
        if let Some(loaded) = self.loaded.get(&program) {
            return Ok(*loaded);
        }
        let name = program.name();
        let code = self.cache.code(&self.compiler, program, self.architecture);
        let loaded = driver.load(&name, &code.map_err(not_compiled(&name))?)?;
        self.loaded.insert(program, loaded);
        Ok(loaded)
    }

    /// Returns a kernel whose source was made at run time.
    pub(super) fn source_kernel(
        &mut self,
        driver: &Driver,
        kernel: &SourceKernel,
    ) -> Result<RawKernel, DeviceError> {
        let SourceKernel { name, source } = kernel;
        if let Some(found) = self.source_kernels.get(name) {
            return Ok(*found);
        }
        let text = [&**name, &**source];
        let code = self.cache.code_of_source(&self.compiler, text, &[], self.architecture);
        let loaded = driver.load(name, &code.map_err(not_compiled(name))?)?;
        let found = driver.kernel(loaded, name)?;
        self.source_kernels.insert(name.clone(), found);
        Ok(found)
    }
}

/// Converts an error of the compiler.
fn not_compiled(name: &str) -> impl FnOnce(NvrtcError) -> DeviceError + use<> {
    let operation = format!("the compilation of `{name}`");
    |error| DeviceError::Failed { operation, problem: error.to_string() }
}
