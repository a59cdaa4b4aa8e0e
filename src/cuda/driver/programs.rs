//! [`Programs`]: kernels of a device, compiled when they are first launched.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cuda::device::DeviceError;
use crate::cuda::driver::cubin_cache::CubinCache;
use crate::cuda::driver::ffi_calls::{Driver, RawKernel, RawModule};
use crate::cuda::kernels::{Kernel, KernelProgram};
use crate::cuda::nvrtc::{Architecture, Compiler};

/// Programs that were loaded, and their kernels.
pub(super) struct Programs {
    compiler: Arc<Compiler>,
    architecture: Architecture,
    cache: CubinCache,
    loaded: HashMap<KernelProgram, RawModule>,
    kernels: HashMap<(KernelProgram, Kernel), RawKernel>,
}

impl Programs {
    pub(super) fn new(
        compiler: Arc<Compiler>,
        architecture: Architecture,
        cache: CubinCache,
    ) -> Self {
        let (loaded, kernels) = (HashMap::new(), HashMap::new());
        Self { compiler, architecture, cache, loaded, kernels }
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
        let code = code.map_err(|error| DeviceError::Failed {
            operation: format!("the compilation of `{name}`"),
            problem: error.to_string(),
        })?;
        let loaded = driver.load(&name, &code)?;
        self.loaded.insert(program, loaded);
        Ok(loaded)
    }
}
