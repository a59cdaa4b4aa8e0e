//! [`NcclRanks`]: the devices of several ranks, connected by NCCL.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use crate::base::clock;
use crate::cuda::device::{DeviceAddress, DeviceCommunicator, DeviceError, PeerMemory};
use crate::cuda::driver::ffi_calls::{Driver, RawStream};
use crate::cuda::nccl::{
    CommProgress, Communicator, NcclError, NcclLibrary, Registered, UniqueId, ras,
};

/// Most blocks of a kernel of NCCL: exchanges run beside products, which want the multiprocessors. `NCCL_MAX_CTAS` has
/// precedence.
const CTAS_MAX: c_int = 16;
/// Time limit for the operations in progress when a communicator is dropped.
const FINALIZE_MAX: Duration = Duration::from_secs(10);

/// Communicator of NCCL for a stream.
pub(super) struct NcclRanks {
    driver: Driver,
    stream: RawStream,
    rank: usize,
    /// `None` once it was aborted.
    communicator: Option<Communicator>,
    /// Memory that is registered, by its address.
    registered: Vec<(DeviceAddress, Registered)>,
}

/// Converts an error of NCCL.
pub(super) fn exchange_failed(error: &NcclError) -> DeviceError {
    DeviceError::Exchange { problem: error.to_string() }
}

impl NcclRanks {
    /// Starts to connect the ranks.
    pub(super) fn start(
        (driver, stream): (Driver, RawStream),
        library: &Arc<NcclLibrary>,
        id: UniqueId,
        ranks @ (rank, _): (usize, usize),
    ) -> Result<Self, DeviceError> {
        driver.enter()?;
        let started = Communicator::start_init(library, id, ranks, Some(CTAS_MAX));
        let communicator = Some(started.map_err(|error| exchange_failed(&error))?);
        Ok(Self { driver, stream, rank, communicator, registered: Vec::new() })
    }

    /// Calls the library, with the device of this rank as that of the thread.
    fn call(
        &mut self,
        start: impl FnOnce(&mut Communicator, RawStream) -> Result<(), NcclError>,
    ) -> Result<(), DeviceError> {
        self.driver.enter()?;
        let communicator = self.communicator.as_mut().ok_or_else(was_aborted)?;
        start(communicator, self.stream).map_err(|error| exchange_failed(&error))
    }
}

fn was_aborted() -> DeviceError {
    DeviceError::Exchange { problem: "an earlier exchange was aborted".to_owned() }
}

impl DeviceCommunicator for NcclRanks {
    fn exchange(&mut self, sends: &[PeerMemory], recvs: &[PeerMemory]) -> Result<(), DeviceError> {
        self.call(|nccl, stream| nccl.exchange_at(sends, recvs, stream))
    }

    fn all_gather(
        &mut self,
        from: DeviceAddress,
        to: DeviceAddress,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        self.call(|nccl, stream| nccl.all_gather_at([from, to], bytes, stream))
    }

    fn all_reduce(&mut self, at: DeviceAddress, count: usize) -> Result<(), DeviceError> {
        self.call(|nccl, stream| nccl.all_reduce_at(at, count, stream))
    }

    fn reduce_scatter(&mut self, at: DeviceAddress, count: usize) -> Result<(), DeviceError> {
        let own = at.offset(self.rank * count * size_of::<f32>());
        self.call(|nccl, stream| nccl.reduce_scatter_at([at, own], count, stream))
    }

    fn register(&mut self, at: DeviceAddress, bytes: usize) -> Result<(), DeviceError> {
        self.driver.enter()?;
        let communicator = self.communicator.as_mut().ok_or_else(was_aborted)?;
        // NCCL copies memory that it cannot register.
        if let Ok(Some(registered)) = communicator.register_at(at, bytes) {
            self.registered.push((at, registered));
        }
        Ok(())
    }

    fn release(&mut self, at: DeviceAddress) {
        let found = self.registered.iter().position(|(registered, _)| *registered == at);
        let Some((_, registered)) = found.map(|found| self.registered.swap_remove(found)) else {
            return;
        };
        if let (Ok(()), Some(communicator)) = (self.driver.enter(), &mut self.communicator) {
            communicator.deregister(registered);
        }
    }

    fn is_submitted(&self) -> Result<bool, DeviceError> {
        let communicator = self.communicator.as_ref().ok_or_else(was_aborted)?;
        let progress = communicator.progress().map_err(|error| exchange_failed(&error))?;
        Ok(progress == CommProgress::Done)
    }

    fn status(&self) -> String {
        ras::report()
    }

    fn abort(&mut self) {
        if self.driver.enter().is_ok() {
            self.communicator = None;
        }
    }
}

impl Drop for NcclRanks {
    /// Completes the operations in progress: other ranks need those of this one. If they do not complete, they are
    /// aborted.
    fn drop(&mut self) {
        if self.driver.enter().is_err() {
            return;
        }
        let Some(mut communicator) = self.communicator.take() else { return };
        for (_, registered) in self.registered.drain(..) {
            communicator.deregister(registered);
        }
        let until = clock::after(clock::now(), FINALIZE_MAX);
        if communicator.start_finalize().is_err() {
            return;
        }
        loop {
            match communicator.progress() {
                Ok(CommProgress::Done) => return communicator.destroy(),
                Ok(CommProgress::InProgress) if clock::now() < until => std::thread::yield_now(),
                Ok(CommProgress::InProgress) | Err(_) => return,
            }
        }
    }
}
