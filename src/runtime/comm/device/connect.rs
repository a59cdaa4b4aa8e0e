//! Creation of a [`DeviceConnection`]: all ranks select the backend and connect their devices.

use std::sync::{Arc, Mutex};

use cudarc::driver::CudaContext;

use crate::base::{clock, env_vars};
use crate::cuda::driver::driver_message;
use crate::cuda::nccl::{CommProgress, Communicator, NcclError, NcclLibrary};
use crate::runtime::comm::core::operation::Operation;
use crate::runtime::comm::core::traffic::TrafficCounters;
use crate::runtime::comm::device::active::ActiveBackend;
use crate::runtime::comm::device::connection::DeviceConnection;
use crate::runtime::comm::device::ffi_fold::FoldExecutor;
use crate::runtime::comm::device::ffi_kernels::KernelCache;
use crate::runtime::comm::device::nccl::Nccl;
use crate::runtime::comm::device::nccl_id::share_id;
use crate::runtime::comm::device::select::{
    Choice, DeviceBackend, OFFER_WORDS, Offer, choose_backend,
};
use crate::runtime::comm::device::staged::Staged;
use crate::runtime::comm::device::wait::{DeviceDeadline, already_failed};
use crate::runtime::comm::group::Group;
use crate::runtime::dtype::element::ReduceOp;
use crate::runtime::error::{Error, Result};

/// Interval at which ranks exchange the progress of the connection.
const EXCHANGE_INTERVAL: std::time::Duration = std::time::Duration::from_millis(5);

/// Connects the devices of a group: all ranks exchange their offers and choose the backend; then
/// NCCL's communicator is created, or host memory is pinned.
pub(crate) fn connect(
    group: &Group,
    context: &Arc<CudaContext>,
    wanted: DeviceBackend,
) -> Result<DeviceConnection> {
    let library = match wanted {
        DeviceBackend::Staged => None,
        DeviceBackend::Auto | DeviceBackend::Nccl => Some(NcclLibrary::open()),
    };
    let offers = exchange_offers(group, context, wanted, library.as_ref())?;
    let name = |rank: usize| group.inner.roster.job_rank(rank);
    let choice = choose_backend(&offers, name).map_err(|refusal| {
        // The error of this rank's own library is more precise than a missing offer.
        let own = library.as_ref().and_then(|library| library.as_ref().err());
        Error::Device(own.map_or_else(|| refusal.to_string(), ToString::to_string))
    })?;
    let obstacle = match choice {
        Choice::Staged(obstacle) => obstacle.map(|obstacle| obstacle.to_string()),
        Choice::Nccl => {
            let library = library
                .and_then(Result::ok)
                .expect("NCCL is chosen only if every rank has the library");
            match create_communicator(group, context, &library)? {
                Ok(communicator) => {
                    let backend = ActiveBackend::Nccl(Nccl { communicator, fold_executor: None });
                    return assemble(group.clone(), context, backend, None);
                }
                Err(problem) if wanted == DeviceBackend::Auto => Some(problem),
                Err(problem) => return Err(Error::Device(problem)),
            }
        }
    };
    let staged = Staged::new(group, context)?;
    assemble(group.clone(), context, ActiveBackend::Staged(staged), obstacle)
}

fn assemble(
    group: Group,
    context: &Arc<CudaContext>,
    backend: ActiveBackend,
    obstacle: Option<String>,
) -> Result<DeviceConnection> {
    let stream = context.new_stream().map_err(|error| {
        Error::Device(format!("cannot create a CUDA stream: {}", driver_message(error)))
    })?;
    let (backend, kernels) = (Arc::new(Mutex::new(Some(backend))), Mutex::default());
    let (turn, traffic) = (Mutex::default(), TrafficCounters::default());
    Ok(DeviceConnection { group, stream, backend, turn, obstacle, kernels, traffic })
}

fn exchange_offers(
    group: &Group,
    context: &Arc<CudaContext>,
    wanted: DeviceBackend,
    library: Option<&Result<Arc<NcclLibrary>, NcclError>>,
) -> Result<Vec<Offer>> {
    let uuid = context.uuid().map_err(|error| {
        Error::Device(format!("cannot read the UUID of the GPU: {}", driver_message(error)))
    })?;
    let offer = Offer {
        requested: wanted,
        uuid: u128::from_be_bytes(uuid.bytes.map(|byte| byte as u8)),
        nccl: library
            .and_then(|found| found.as_ref().ok())
            .map_or(0, |found| found.version().code()),
        may_share: env_vars::get_text(env_vars::NCCL_MULTI_RANK_GPU_ENABLE).as_deref() == Some("1"),
    };
    let mut all = vec![0i64; OFFER_WORDS * group.world_size()];
    group.all_gather(&offer.encode(), &mut all)?;
    Ok(all.as_chunks::<OFFER_WORDS>().0.iter().map(|words| Offer::decode(*words)).collect())
}

/// Creates the communicator on all ranks or on none. The outer error is the group's.
fn create_communicator(
    group: &Group,
    context: &Arc<CudaContext>,
    library: &Arc<NcclLibrary>,
) -> Result<Result<Communicator, String>> {
    let id = match share_id(group, library) {
        Ok(id) => id,
        Err(Error::Device(problem)) => return Ok(Err(problem)),
        Err(error) => return Err(error),
    };
    let bound = context.bind_to_thread().map_err(driver_message);
    let started = bound.and_then(|()| {
        let ranks = (group.rank(), group.world_size());
        let started = Communicator::start_init(library, id, ranks, None);
        started.map_err(|error| error.to_string())
    });
    wait_all_or_none(group, started)
}

/// Progress of a rank in the creation of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Failed = 0,
    InProgress = 1,
    Done = 2,
}

/// Waits until all ranks have their communicators; if one rank fails, all fail. Ranks exchange their
/// state, so that no rank waits for a failed one, and a lost rank is named.
fn wait_all_or_none(
    group: &Group,
    mut communicator: Result<Communicator, String>,
) -> Result<Result<Communicator, String>> {
    let deadline = clock::after(clock::now(), group.timeout());
    loop {
        let stage = poll_progress(&mut communicator);
        let is_late = deadline <= clock::now();
        let stage = if is_late && stage == Stage::InProgress { Stage::Failed } else { stage };
        let mut lowest = [stage as i32];
        group.all_reduce(&mut lowest, ReduceOp::Min)?;
        match lowest[0] {
            0 => {
                let other_failed = "NCCL cannot connect the GPUs: another rank failed";
                let timed_out = "NCCL did not connect the GPUs within the timeout of the group";
                let problem = if is_late { timed_out } else { other_failed };
                return Ok(Err(communicator.err().unwrap_or_else(|| problem.to_owned())));
            }
            1 => {}
            _ => return Ok(communicator),
        }
    }
}

/// Polls this rank's communicator until the next exchange; returns its progress.
fn poll_progress(communicator: &mut Result<Communicator, String>) -> Stage {
    let end = clock::now() + EXCHANGE_INTERVAL;
    loop {
        let progress = match communicator {
            Ok(nccl) => nccl.progress(),
            Err(_) => return Stage::Failed,
        };
        match progress {
            Ok(CommProgress::Done) => return Stage::Done,
            Ok(CommProgress::InProgress) if end <= clock::now() => return Stage::InProgress,
            Ok(CommProgress::InProgress) => std::thread::yield_now(),
            Err(error) => {
                *communicator = Err(error.to_string());
                return Stage::Failed;
            }
        }
    }
}

/// Opens the compiler on every rank; either all ranks reduce in the canonical order or none.
pub(crate) fn enable_canonical_order(devices: &DeviceConnection) -> Result<()> {
    let mut backend = devices.lock();
    let Some(ActiveBackend::Nccl(nccl)) = &mut *backend else { return Ok(()) };
    let context = devices.stream.context();
    let executor = KernelCache::open(context).map(FoldExecutor::new);
    let group = &devices.group;
    let mut all = vec![0u8; group.world_size()];
    group.all_gather(&[u8::from(executor.is_ok())], &mut all)?;
    let executor = executor?;
    if let Some(rank) = all.iter().position(|has| *has == 0) {
        let name = group.inner.roster.job_rank(rank);
        return Err(Error::Device(format!(
            "rank {name} cannot compile kernels for its GPU; its own error has the cause"
        )));
    }
    nccl.fold_executor = Some(executor);
    Ok(())
}

/// Splits a group of devices by color, as [`Group::split`] does.
pub(crate) fn split(
    whole: &DeviceConnection,
    color: Option<usize>,
    key: usize,
) -> Result<Option<DeviceConnection>> {
    let part = whole.group.split(color, key)?;
    let context = whole.stream.context();
    let mut backend = whole.lock();
    let nccl = match &mut *backend {
        Some(ActiveBackend::Nccl(Nccl { communicator, fold_executor: executor })) => {
            let split = communicator
                .start_split(color, key)
                .map_err(|error| Error::Device(error.to_string()));
            let split = split?;
            let deadline = DeviceDeadline::new(&whole.group, &whole.stream);
            let enqueued = deadline.wait_enqueued(communicator);
            enqueued.map_err(|trouble| whole.fail(Operation::Split, trouble))?;
            split.map(|split| (split, executor.as_ref().map(FoldExecutor::for_new_group)))
        }
        Some(ActiveBackend::Staged(_)) => None,
        None => {
            return Err(whole.fail(Operation::Split, already_failed()).into());
        }
    };
    let Some(part) = part else { return Ok(None) };
    let (backend, obstacle) = match nccl {
        Some((communicator, executor)) => match wait_all_or_none(&part, Ok(communicator))? {
            Ok(communicator) => {
                (ActiveBackend::Nccl(Nccl { communicator, fold_executor: executor }), None)
            }
            Err(problem) => return Err(Error::Device(problem)),
        },
        None => (ActiveBackend::Staged(Staged::new(&part, context)?), whole.obstacle.clone()),
    };
    assemble(part, context, backend, obstacle).map(Some)
}
