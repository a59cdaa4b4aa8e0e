//! Sharding on the emulated device: the stages change no bit, and every wait between streams is needed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use remuda::cuda::device::{
    CommunicatorOffer, Device, DeviceAddress, DeviceCommunicator, DeviceError, DeviceMemory,
    EventId, KernelArgument, Matmul, PinnedId, SourceKernel, StreamId,
};
use remuda::cuda::kernels::{Kernel, KernelLaunch, KernelProgram};
use remuda::cuda::nccl::UniqueId;
use remuda::runtime::Group;
use remuda::runtime::engine::{
    Engine, EngineConfig, EngineError, EngineMemory, Exchange, Offload, PlanOptions, Precision,
    Prefetch, Sharding, StatePlace,
};
use remuda::runtime::optim::{DynamicScaling, LionOptions, LossScaling, Optimizer, SgdOptions};
use remuda::train::{DeviceGpt, DeviceMlp, GptArchitecture, GptConfig, Sequences};

use super::emulated_streams::{EmulatedStreams, Order};
use super::training::{Open, STEPS, adam, config, emulated, samples_of};
use crate::support::proof::has;

/// Features of the model: its units have 2, 6 and 1 blocks of the norm, and rank 2 of 4 has a part of one.
pub(super) const WIDE: [usize; 4] = [12, 128, 40, 5];
/// Features of a model whose units have room in the memory of its first one, so that none is allocated twice.
const EVEN: [usize; 6] = [40, 40, 40, 40, 40, 5];
/// Lanes of a step.
const LANES: usize = 4;

/// Outcomes of all steps, and the digest of weights and moments after them, as text: a norm may be NaN.
fn trained(
    engine_config: &EngineConfig,
    (sizes, steps): (&[usize], usize),
    group: &Group,
    device: Arc<dyn Device>,
) -> String {
    let run = || -> Result<String, EngineError> {
        let model = DeviceMlp::new(device.clone(), sizes, engine_config.precision.into());
        let mut engine = Engine::on_device(group, device, model, engine_config.clone())?;
        let mut step = |step| engine.train_batch(|lane| samples_of(sizes[0], step, lane));
        let outcomes = (0..steps).map(&mut step).collect::<Result<Vec<_>, _>>()?;
        Ok(format!("{outcomes:?} {}", engine.digest()?))
    };
    run().unwrap_or_else(|error| error.to_string())
}

/// Trains on devices of `ranks` ranks, which end with the same.
pub(super) fn on_ranks(ranks: usize, config: &EngineConfig, open: &dyn Open) -> String {
    on_nodes(&[ranks], config, open)
}

/// Trains on devices of the ranks of simulated nodes, which end with the same.
pub(super) fn on_nodes(ranks_of_nodes: &[usize], config: &EngineConfig, open: &dyn Open) -> String {
    let groups = Group::threads_on(ranks_of_nodes).expect("the nodes can meet");
    let of_ranks: Vec<String> = std::thread::scope(|scope| {
        let train =
            |group: Group| scope.spawn(move || trained(config, (&WIDE, STEPS), &group, open()));
        let threads: Vec<_> = groups.into_iter().map(train).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    });
    assert!(of_ranks.iter().all(|rank| *rank == of_ranks[0]), "the ranks differ: {of_ranks:?}");
    of_ranks.into_iter().next().expect("there is a rank")
}

/// Settings of a stage: gathering ahead, and reductions of two units at once.
pub(super) fn staged(sharding: Sharding, accumulate: usize, precision: Precision) -> EngineConfig {
    let prefetch = Prefetch::NextPass;
    EngineConfig {
        sharding,
        plan: PlanOptions { prefetch, reduce_max: 2000, recompute: 0 },
        ..config(accumulate, adam(), precision)
    }
}

/// Checks that no stage changes a bit, with this precision and number of ranks.
#[track_caller]
fn check_stages(precision: Precision, adjust: &dyn Fn(&mut EngineConfig), open: &dyn Open) {
    let with = |sharding, ranks| {
        let mut config = staged(sharding, LANES / ranks, precision);
        adjust(&mut config);
        on_ranks(ranks, &config, open)
    };
    let expected = with(Sharding::None, 1);
    let has = |text: &str| expected.contains(text);
    assert!(has("is_applied: true"), "{expected}");
    assert!(precision != Precision::F16 || has("is_applied: false"), "{expected}");
    for sharding in Sharding::ALL {
        for ranks in [1, 2, 4] {
            let found = with(sharding, ranks);
            assert_eq!(found, expected, "{precision:?}, {sharding}, {ranks} ranks");
        }
    }
}

/// Checks all stages in f32 and bf16, and in fp16 with overflows.
pub(super) fn check(open: &dyn Open) {
    check_stages(Precision::F32, &|_| (), open);
    check_stages(Precision::Bf16, &|_| (), open);
    let scaling = DynamicScaling { initial_power: 19, window: 2, ..DynamicScaling::default() };
    let scale = |config: &mut EngineConfig| config.loss_scaling = LossScaling::Dynamic(scaling);
    check_stages(Precision::F16, &scale, open);
}

#[test]
fn stages_on_devices_change_no_bit() {
    if has("compiler", "stages_on_devices_change_no_bit") {
        check(&|| emulated(Order::Random(4)));
    }
}

#[test]
fn optimizers_of_the_host_and_of_devices_give_the_same_bits() {
    if !has("compiler", "optimizers_of_the_host_and_of_devices_give_the_same_bits") {
        return;
    }
    for (precision, optimizer) in [
        (Precision::F32, Optimizer::Lion(LionOptions::default())),
        (Precision::Bf16, Optimizer::Sgd(SgdOptions { momentum: 0.9, ..SgdOptions::default() })),
        (Precision::F32, adam()),
    ] {
        let with = |sharding, ranks, place| {
            let mut config = staged(sharding, LANES / ranks, precision);
            (config.optimizer, config.offload.optimizer) = (optimizer, place);
            on_ranks(ranks, &config, &|| emulated(Order::Late))
        };
        let expected = with(Sharding::None, 1, StatePlace::Computing);
        for (sharding, ranks) in
            [(Sharding::None, 1), (Sharding::None, 2), (Sharding::Optimizer, 2)]
        {
            let found = with(sharding, ranks, StatePlace::Host);
            assert_eq!(found, expected, "{optimizer:?}, {sharding}, {ranks} ranks");
        }
    }
}

/// Trains at stage 3 with some settings, and without sharding, with equal lanes.
#[track_caller]
fn check_parameters([ranks, accumulate]: [usize; 2], adjust: impl Fn(&mut EngineConfig)) {
    let mut whole = staged(Sharding::None, ranks * accumulate, Precision::Bf16);
    let mut divided = staged(Sharding::Parameters, accumulate, Precision::Bf16);
    adjust(&mut divided);
    (whole.gradient_rounding, whole.plan) = (divided.gradient_rounding, divided.plan);
    let expected = on_ranks(1, &whole, &|| emulated(Order::Early));
    for order in [Order::Early, Order::Late, Order::Random(7)] {
        assert_eq!(on_ranks(ranks, &divided, &|| emulated(order)), expected, "{divided:?}");
    }
}

#[test]
fn settings_of_stage_3_on_devices_change_no_bit() {
    if !has("compiler", "settings_of_stage_3_on_devices_change_no_bit") {
        return;
    }
    check_parameters([4, 1], |config| config.shard_group = Some(2));
    check_parameters([2, 2], |config| config.persistent_len_max = 1700);
    check_parameters([2, 2], |config| config.plan.prefetch = Prefetch::Elements(0));
    check_parameters([2, 2], |config| config.gradient_rounding = Some(Precision::Bf16));
    check_parameters([2, 2], |config| config.no_sync = true);
    let offload = |config: &mut EngineConfig, optimizer| {
        config.offload = Offload { optimizer, parameters: None };
    };
    // Of parameters in files, the device has the units that passes read, and what it updates.
    let in_files = |config: &mut EngineConfig, optimizer| {
        config.offload = Offload { optimizer, parameters: Some(std::env::temp_dir()) };
    };
    check_parameters([1, 4], |config| in_files(config, StatePlace::Host));
    check_parameters([2, 2], |config| in_files(config, StatePlace::Computing));
    check_parameters([4, 1], |config| {
        in_files(config, StatePlace::Files(std::env::temp_dir()));
        config.shard_group = Some(2);
    });
    check_parameters([2, 2], |config| offload(config, StatePlace::Host));
    check_parameters([2, 2], |config| offload(config, StatePlace::Files(std::env::temp_dir())));
    // Neither number is a power of two: every rank reduces the sums of its subtrees.
    check_parameters([3, 3], |_| ());
}

/// A GPT whose attention is computed by kernels, or by products: its heads, its type, and the micro-batches of a step.
#[derive(Clone, Copy)]
struct GptKind {
    heads: usize,
    precision: Precision,
    lanes: usize,
}

const BY_KERNELS: GptKind = GptKind { heads: 1, precision: Precision::Bf16, lanes: 2 };
const BY_PRODUCTS: GptKind = GptKind { heads: 2, precision: Precision::F32, lanes: 4 };

/// Trains a GPT on devices of `ranks` ranks; of each segment of `recompute` blocks, the activations are computed again.
fn gpt(
    GptKind { heads, precision, lanes }: GptKind,
    (ranks, order): (usize, Order),
    sharding: Sharding,
    recompute: usize,
) -> String {
    let gpt = GptConfig {
        architecture: GptArchitecture::Gpt2,
        vocabulary: 29,
        block: 12,
        layers: 3,
        heads,
        width: 64,
    };
    let batch = |lane: usize| {
        let tokens: Vec<u32> = (0..13).map(|at| (at * at + lane as u32) % 29).collect();
        Sequences { length: 12, inputs: tokens[..12].to_vec(), targets: tokens[1..].to_vec() }
    };
    let mut config = staged(sharding, lanes / ranks, precision);
    config.plan.recompute = recompute;
    let trained = Group::on_threads(ranks, |group| {
        let device = emulated(order);
        let model =
            DeviceGpt::new(device.clone(), gpt, precision.into()).expect("heads of whole packs");
        let mut engine =
            Engine::on_device(group, device, model, config.clone()).expect("an engine");
        let outcomes = [(); 2].map(|()| engine.train_batch(batch).expect("a step"));
        Ok(format!("{outcomes:?} {}", engine.digest().expect("the digest")))
    });
    trained.expect("all ranks end").swap_remove(0)
}

#[test]
fn recomputed_activations_on_devices_change_no_bit() {
    if !has("compiler", "recomputed_activations_on_devices_change_no_bit") {
        return;
    }
    let gpt = |place, sharding, recompute| gpt(BY_KERNELS, place, sharding, recompute);
    let expected = gpt((1, Order::Early), Sharding::None, 0);
    assert_eq!(gpt((1, Order::Late), Sharding::None, 1), expected);
    assert_eq!(gpt((2, Order::Random(3)), Sharding::Parameters, 2), expected);
    assert_eq!(gpt((2, Order::Late), Sharding::Optimizer, 3), expected);
}

#[test]
fn ranks_and_stages_change_no_bit_of_attention_by_products() {
    if !has("compiler", "ranks_and_stages_change_no_bit_of_attention_by_products") {
        return;
    }
    let gpt = |place, sharding, recompute| gpt(BY_PRODUCTS, place, sharding, recompute);
    let expected = gpt((1, Order::Early), Sharding::None, 0);
    assert_eq!(gpt((2, Order::Late), Sharding::Gradients, 0), expected);
    assert_eq!(gpt((4, Order::Random(5)), Sharding::Parameters, 2), expected);
    assert_eq!(gpt((4, Order::Late), Sharding::None, 1), expected);
}

/// Emulated device that forgets all waits for an event, takes events for complete, or has too little memory, and counts
/// its memory.
pub(super) struct Faulty {
    inner: Arc<dyn Device>,
    /// Bytes that are allocated, and the most of them.
    bytes: Arc<Mutex<[usize; 2]>>,
    forgotten: Option<EventId>,
    /// Number of allocations that succeed.
    allocations: AtomicUsize,
    /// Events for which a stream has waited.
    waits: Arc<Mutex<BTreeSet<u32>>>,
    /// Whether all events are taken for complete.
    is_impatient: bool,
}

/// Memory that is counted.
struct Counted {
    memory: Box<dyn DeviceMemory>,
    all: Arc<Mutex<[usize; 2]>>,
}

impl Counted {
    fn new(memory: Box<dyn DeviceMemory>, all: &Arc<Mutex<[usize; 2]>>) -> Self {
        let mut count = all.lock().expect("no thread panics");
        count[0] += memory.bytes();
        count[1] = count[0].max(count[1]);
        Self { memory, all: all.clone() }
    }
}

impl DeviceMemory for Counted {
    fn address(&self) -> DeviceAddress {
        self.memory.address()
    }

    fn bytes(&self) -> usize {
        self.memory.bytes()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.all.lock().expect("no thread panics")[0] -= self.memory.bytes();
    }
}

impl Faulty {
    /// A device that counts its bytes: those that are allocated, and the most of them.
    pub(super) fn counting(inner: Arc<dyn Device>, bytes: Arc<Mutex<[usize; 2]>>) -> Self {
        Self { bytes, ..Self::new(inner) }
    }

    /// A device without a fault.
    fn new(inner: Arc<dyn Device>) -> Self {
        Self {
            inner,
            bytes: Arc::default(),
            forgotten: None,
            allocations: AtomicUsize::new(usize::MAX),
            waits: Arc::default(),
            is_impatient: false,
        }
    }

    /// A device whose events are all taken for complete.
    pub(super) fn impatient(inner: Arc<dyn Device>) -> Self {
        Self { is_impatient: true, ..Self::new(inner) }
    }
}

impl Device for Faulty {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }

    fn alloc(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>, DeviceError> {
        let take_one = |left: usize| left.checked_sub(1);
        match self.allocations.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take_one) {
            Ok(_) => Ok(Box::new(Counted::new(self.inner.alloc(bytes)?, &self.bytes))),
            Err(_) => Err(DeviceError::OutOfMemory { bytes, problem: "no memory".to_owned() }),
        }
    }

    fn alloc_exchanged(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>, DeviceError> {
        self.alloc(bytes)
    }

    fn create_stream(&self) -> Result<StreamId, DeviceError> {
        self.inner.create_stream()
    }

    fn create_event(&self) -> Result<EventId, DeviceError> {
        self.inner.create_event()
    }

    fn record(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        self.inner.record(stream, event)
    }

    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        self.waits.lock().expect("no thread panics").insert(event.0);
        if self.forgotten == Some(event) { Ok(()) } else { self.inner.wait(stream, event) }
    }

    fn is_complete(&self, event: EventId) -> Result<bool, DeviceError> {
        if self.is_impatient { Ok(true) } else { self.inner.is_complete(event) }
    }

    fn upload(&self, stream: StreamId, from: &[u8], to: DeviceAddress) -> Result<(), DeviceError> {
        self.inner.upload(stream, from, to)
    }

    fn create_pinned(&self, bytes: usize) -> Result<Option<PinnedId>, DeviceError> {
        self.inner.create_pinned(bytes)
    }

    fn upload_pinned(
        &self,
        stream: StreamId,
        through: PinnedId,
        from: &[u8],
        to: DeviceAddress,
    ) -> Result<(), DeviceError> {
        self.inner.upload_pinned(stream, through, from, to)
    }

    fn download(
        &self,
        stream: StreamId,
        from: DeviceAddress,
        to: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.inner.download(stream, from, to)
    }

    fn copy(
        &self,
        stream: StreamId,
        from: DeviceAddress,
        to: DeviceAddress,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        self.inner.copy(stream, from, to, bytes)
    }

    fn clear(&self, stream: StreamId, at: DeviceAddress, bytes: usize) -> Result<(), DeviceError> {
        self.inner.clear(stream, at, bytes)
    }

    fn launch(
        &self,
        stream: StreamId,
        kernel: (KernelProgram, Kernel),
        size: KernelLaunch,
        arguments: &[KernelArgument],
    ) -> Result<(), DeviceError> {
        self.inner.launch(stream, kernel, size, arguments)
    }

    fn matmul(&self, stream: StreamId, product: &Matmul) -> Result<(), DeviceError> {
        self.inner.matmul(stream, product)
    }

    fn launch_source(
        &self,
        stream: StreamId,
        kernel: &SourceKernel,
        size: KernelLaunch,
        arguments: &[KernelArgument],
    ) -> Result<(), DeviceError> {
        self.inner.launch_source(stream, kernel, size, arguments)
    }

    fn load_source(&self, kernel: &SourceKernel) -> Result<(), DeviceError> {
        self.inner.load_source(kernel)
    }

    fn communicator_offer(&self) -> Option<CommunicatorOffer> {
        self.inner.communicator_offer()
    }

    fn create_communicator_id(&self) -> Result<UniqueId, DeviceError> {
        self.inner.create_communicator_id()
    }

    fn connect(
        &self,
        stream: StreamId,
        id: UniqueId,
        ranks: (usize, usize),
    ) -> Result<Box<dyn DeviceCommunicator>, DeviceError> {
        self.inner.connect(stream, id, ranks)
    }
}

/// Trains on two ranks; the device of rank 0 forgets the waits for an event. Returns what rank 0 ends with, and the
/// events for which it has waited.
fn forgetting(
    config: &EngineConfig,
    (new, order): (NewDevice, Order),
    forgotten: Option<EventId>,
) -> (String, BTreeSet<u32>) {
    let waits = Arc::new(Mutex::new(BTreeSet::new()));
    let of_ranks = Group::on_threads(2, |group| {
        let inner: Arc<dyn Device> = Arc::new(new(order));
        let device: Arc<dyn Device> = match group.rank() {
            0 => Arc::new(Faulty { forgotten, waits: waits.clone(), ..Faulty::new(inner) }),
            _ => inner,
        };
        Ok(trained(config, (&EVEN, 2), group, device))
    });
    let end = of_ranks.expect("all ranks end").swap_remove(0);
    let waits = waits.lock().expect("no thread panics").clone();
    (end, waits)
}

/// The event behind the decision on a step.
const DECIDED: u32 = 3;

/// Makes an emulated device.
pub(super) type NewDevice = fn(Order) -> EmulatedStreams;

/// Checks that each wait is needed, but for those for `implied`: without it, an order of the streams gives other
/// numbers. All reductions are in flight together, so that none of them waits for the copies of another.
#[track_caller]
pub(super) fn check_waits(config: &EngineConfig, new: NewDevice, implied: &[u32]) {
    let plan = PlanOptions { reduce_max: usize::MAX, ..config.plan };
    let config = &EngineConfig { plan, ..config.clone() };
    let (expected, waits) = forgetting(config, (new, Order::Early), None);
    assert!(!waits.is_empty(), "streams wait");
    let orders = || {
        let extreme = [Order::Early, Order::Late].into_iter().chain((0..4).map(Order::Ahead));
        extreme.chain((0..4).map(Order::Lagging)).chain((0..40).map(Order::Random))
    };
    let is_needed = |event: &u32| {
        orders().any(|order| forgetting(config, (new, order), Some(EventId(*event))).0 != expected)
    };
    let superfluous: Vec<_> = waits.iter().copied().filter(|event| !is_needed(event)).collect();
    assert_eq!(superfluous, implied, "of {waits:?}: {config:?}");
}

#[test]
fn every_wait_of_a_sharded_training_is_needed() {
    if !has("compiler", "every_wait_of_a_sharded_training_is_needed") {
        return;
    }
    let new = EmulatedStreams::new;
    check_waits(&staged(Sharding::None, 2, Precision::F32), new, &[]);
    for sharding in [Sharding::Optimizer, Sharding::Gradients, Sharding::Parameters] {
        // Ranks that exchange weights have waited for their update, which follows the decision.
        check_waits(&staged(sharding, 2, Precision::F32), new, &[DECIDED]);
    }
}

#[test]
fn device_without_memory_is_an_error_on_all_ranks() {
    if !has("compiler", "device_without_memory_is_an_error_on_all_ranks") {
        return;
    }
    // At the start, while weights are allocated, and in the first step.
    check_memory_error(EmulatedStreams::new, [0, 12, 26]);
}

/// Checks that all ranks end with the error of one whose device has no memory after a number of allocations.
pub(super) fn check_memory_error<const CASES: usize>(new: NewDevice, allocations: [usize; CASES]) {
    let config = staged(Sharding::Parameters, 1, Precision::Bf16);
    for allocations in allocations {
        let of_ranks = Group::on_threads(2, |group| {
            let inner: Arc<dyn Device> = Arc::new(new(Order::Late));
            let device: Arc<dyn Device> = match group.rank() {
                1 => Arc::new(Faulty {
                    allocations: AtomicUsize::new(allocations),
                    ..Faulty::new(inner)
                }),
                _ => inner,
            };
            Ok(trained(&config, (&WIDE, STEPS), group, device))
        });
        let of_ranks = of_ranks.expect("all ranks end");
        let [first, second] = &of_ranks[..] else { panic!("there are two ranks") };
        assert!(second.starts_with("cannot allocate"), "{allocations} allocations: {second}");
        assert!(first.contains(second), "{allocations} allocations: {first}");
    }
}

/// Most bytes of the engine of rank 0 on its device, and their forecast.
fn peak_and_forecast(ranks: usize, config: &EngineConfig, new: NewDevice) -> [usize; 2] {
    let bytes: Arc<Mutex<[usize; 2]>> = Arc::default();
    let forecasts = Group::on_threads(ranks, |group| {
        let inner: Arc<dyn Device> = Arc::new(new(Order::Early));
        let (own, elsewhere) = (bytes.clone(), Arc::default());
        let bytes = if group.rank() == 0 { own } else { elsewhere };
        // The work space of the model is not counted.
        let model = DeviceMlp::new(inner.clone(), &WIDE, config.precision.into());
        let forecast = EngineMemory::forecast_on_device(&model, config, ranks);
        let device = Arc::new(Faulty::counting(inner, bytes));
        let mut engine =
            Engine::on_device(group, device, model, config.clone()).expect("an engine");
        for step in 0..2 {
            engine.train_batch(|lane| samples_of(WIDE[0], step, lane)).expect("a step");
        }
        Ok(forecast.total())
    });
    let peak = bytes.lock().expect("no thread panics")[1];
    [peak, forecasts.expect("all ranks end")[0]]
}

#[test]
fn memory_of_devices_is_as_forecast() {
    if has("compiler", "memory_of_devices_is_as_forecast") {
        check_memory(EmulatedStreams::new, Exchange::Host);
    }
}

/// Compares the memory of all stages with its forecast.
pub(super) fn check_memory(new: NewDevice, exchange: Exchange) {
    for sharding in Sharding::ALL {
        for ranks in [1, 2, 4] {
            for (precision, optimizer) in
                [(Precision::F32, StatePlace::Computing), (Precision::Bf16, StatePlace::Host)]
            {
                let mut config = staged(sharding, LANES / ranks, precision);
                (config.offload.optimizer, config.exchange) = (optimizer, exchange);
                let [peak, forecast] = peak_and_forecast(ranks, &config, new);
                // Beside it: numbers of the step, sums of the norm, ends of ranges.
                let rest = 512;
                let is_close = (forecast..=forecast + rest).contains(&peak);
                assert!(is_close, "{peak} instead of {forecast}: {sharding}, {ranks} ranks");
            }
        }
    }
}
