//! The end of a step on the device has the bits of `runtime::flat::norm` and `runtime::optim` on a CPU.

use crate::cuda::kernels::{
    DeviceAdam, DeviceLossScale, DeviceStep, ElementType, HalfType, Kernel, KernelLaunch,
    KernelProgram,
};
use crate::runtime::flat::norm::{
    NORM_BLOCK, block_sums, clip_factor, fold_block_sums, global_norm,
};
use crate::runtime::flat::tasks::Serial;
use crate::runtime::optim::{
    AdamOptions, DecayRange, DynamicScaling, GradientCheck, LionOptions, LossScale, LossScaler,
    LossScaling, Optimizer, SgdOptions, WeightDecay,
};

use crate::cuda::device::KernelArgument::{F32, F64, I32, U32, U64};
use crate::runtime::data::random::RandomStream;
use crate::runtime::kernel_checks::case::{KernelCase, SEED, encode};
use crate::runtime::kernel_checks::runner::{CheckError, KernelRunner, same};

const BF16: ElementType = ElementType::Half(HalfType::Bf16);

/// Numbers of many magnitudes, so that another order of additions gives other bits.
fn gradient(random: &mut RandomStream, len: usize) -> Vec<f32> {
    let mut unit = || random.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0;
    (0..len).map(|_| unit() * (8.0 * unit()).exp2()).collect()
}

/// Folds groups of 32 sums.
fn fold_squares(runner: &mut dyn KernelRunner, sums: &[f64]) -> Result<Vec<f64>, CheckError> {
    let launch = KernelLaunch::fold_squares(sums.len() as u32);
    let memory = KernelCase::new(KernelProgram::Optimizer(BF16), Kernel::FoldSquares, launch)
        .memory(sums)
        .unwritten(sums.len().div_ceil(32) * 8)
        .count(sums.len())
        .run(runner)?;
    Ok(memory.get(1))
}

/// Decides on a step, after `before`.
fn decide(
    runner: &mut dyn KernelRunner,
    gradient: &[f32],
    (norm_max, scale): (f64, f32),
    before: DeviceStep,
) -> Result<DeviceStep, CheckError> {
    let program = KernelProgram::Optimizer(BF16);
    let squares = KernelLaunch::block_squares(gradient.len() as u64);
    let sums = KernelCase::new(program, Kernel::BlockSquares, squares)
        .memory(gradient)
        .unwritten(gradient.len().div_ceil(NORM_BLOCK) * 8)
        .count(gradient.len())
        .run(runner)?
        .get::<f64>(1);
    let sums = fold_squares(runner, &sums)?;
    let launch = KernelLaunch::decide_step(sums.len() as u32);
    let memory = KernelCase::new(program, Kernel::DecideStep, launch)
        .memory(&sums)
        .count(sums.len())
        .scalar(F64(norm_max))
        .memory(&[scale])
        .memory(&[before])
        .run(runner)?;
    Ok(memory.get(2)[0])
}

/// The same on a CPU.
fn decide_on_cpu(gradient: &[f32], norm_max: f64, scale: f32, before: DeviceStep) -> DeviceStep {
    let unscale = 1.0 / f64::from(scale);
    let norm = global_norm(gradient) * unscale;
    let is_finite = GradientCheck::of_norm(norm) == GradientCheck::Finite;
    DeviceStep {
        norm,
        applied: before.applied + u64::from(is_finite),
        factor: (clip_factor(norm, norm_max) * unscale) as f32,
        is_finite: u32::from(is_finite),
    }
}

pub(super) fn check_clipping(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    let before = DeviceStep { applied: 6, ..DeviceStep::default() };
    for len in [1, 17, 1024, 1025, 16_384, 16_385, 100_000] {
        for (norm_max, scale) in [(1.0, 1.0), (f64::INFINITY, 65_536.0), (1e9, 4.0)] {
            let gradient = gradient(&mut random, len);
            let found = decide(runner, &gradient, (norm_max, scale), before)?;
            let expect = decide_on_cpu(&gradient, norm_max, scale, before);
            same(&format!("norm of {len} numbers"), found == expect)?;
        }
    }
    Ok(())
}

pub(super) fn check_block_sums(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    for len in [1, 17, 1024, 1025, 16_384, 16_385, 50_000] {
        let gradient = gradient(&mut random, len);
        let expected = block_sums(&Serial, &gradient);
        let size = KernelLaunch::block_squares(len as u64);
        let memory = KernelCase::new(KernelProgram::Optimizer(BF16), Kernel::BlockSquares, size)
            .memory(&gradient)
            .unwritten(expected.len() * 8)
            .count(len)
            .run(runner)?;
        same(&format!("sums of {len} squares"), memory.get::<f64>(1) == expected)?;
    }
    Ok(())
}

pub(super) fn check_decisions(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    for count in [1, 2, 31, 33, 1000, 1025, 33_000] {
        let sums: Vec<f64> =
            gradient(&mut random, count).into_iter().map(|x| f64::from(x * x)).collect();
        let launch = KernelLaunch::decide_step(count as u32);
        let step = KernelCase::new(KernelProgram::Optimizer(BF16), Kernel::DecideStep, launch)
            .memory(&sums)
            .count(count)
            .scalar(F64(f64::INFINITY))
            .memory(&[1.0f32])
            .memory(&[DeviceStep::default()])
            .run(runner)?
            .get::<DeviceStep>(2)[0];
        let expect = fold_block_sums(&sums).sqrt();
        same(&format!("fold of {count} sums"), step.norm.to_bits() == expect.to_bits())?;
        let folded = fold_block_sums(&fold_squares(runner, &sums)?).sqrt();
        same(&format!("levels of {count} sums"), folded.to_bits() == expect.to_bits())?;
    }
    Ok(())
}

pub(super) fn check_skipped_steps(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        let mut gradient = gradient(&mut random, 20_000);
        gradient[16_999] = value;
        let before = DeviceStep { applied: 3, ..DeviceStep::default() };
        let step = decide(runner, &gradient, (1.0, 8.0), before)?;
        same("decision on a step", (step.is_finite, step.applied) == (0, 3))?;
        for optimizer in optimizers() {
            let mut run = Run::new(optimizer, ElementType::F32, vec![0.5; gradient.len()]);
            let before = run.clone();
            run.update_on_device(runner, step, &gradient)?;
            let is_unchanged = run.params == before.params && run.states == before.states;
            same(&format!("skipped step of {optimizer:?}"), is_unchanged)?;
        }
    }
    Ok(())
}

fn optimizers() -> Vec<Optimizer> {
    let adam = AdamOptions { weight_decay: 0.1, ..AdamOptions::default() };
    let sgd = SgdOptions { weight_decay: 0.01, ..SgdOptions::default() };
    let momentum = SgdOptions { momentum: 0.9, dampening: 0.1, ..sgd };
    vec![
        Optimizer::Adam(adam),
        Optimizer::Adam(AdamOptions { decay: WeightDecay::L2, bias_correction: false, ..adam }),
        Optimizer::Adam(AdamOptions { betas: [0.3, 0.95], ..adam }),
        Optimizer::Sgd(sgd),
        Optimizer::Sgd(momentum),
        Optimizer::Sgd(SgdOptions { dampening: 0.0, nesterov: true, ..momentum }),
        Optimizer::Lion(LionOptions { weight_decay: 0.1, ..LionOptions::default() }),
    ]
}

/// Parameters with their states during a training.
#[derive(Clone)]
struct Run {
    optimizer: Optimizer,
    element: ElementType,
    params: Vec<f32>,
    states: Vec<Vec<f32>>,
    /// Ends of ranges, of which every second one does not decay.
    ends: Vec<u64>,
}

const RATE: f64 = 0.01;

impl Run {
    fn new(optimizer: Optimizer, element: ElementType, params: Vec<f32>) -> Self {
        let states = vec![vec![0.0; params.len()]; optimizer.state_names().len()];
        let len = params.len();
        let ends = [0, len / 3, len / 3 + 1, len / 2 + 2, len].map(|end| end as u64);
        Self { optimizer, element, params, states, ends: ends.to_vec() }
    }

    fn update_on_cpu(&mut self, step: DeviceStep, gradient: &[f32]) {
        let update = self.optimizer.step(step.applied, RATE, step.factor);
        let starts = std::iter::once(&0).chain(&self.ends);
        let range = |(number, (start, end)): (usize, (&u64, &u64))| DecayRange {
            range: *start as usize..*end as usize,
            decays: number % 2 == 0,
        };
        let ranges: Vec<_> = starts.zip(&self.ends).enumerate().map(range).collect();
        update.update_ranges(&Serial, &ranges, &mut self.params, &mut self.states, gradient);
    }

    /// Memory: parameters, states, gradient, copy, …
    fn case(&self, kernel: Kernel, gradient: &[f32]) -> KernelCase {
        let len = self.params.len();
        let launch = KernelLaunch::elementwise(len as u64, self.element);
        let mut case = KernelCase::new(KernelProgram::Optimizer(self.element), kernel, launch);
        case = case.memory(&self.params);
        for state in &self.states {
            case = case.memory(state);
        }
        if kernel == Kernel::Sgd && self.states.is_empty() {
            case = case.null();
        }
        case = case.memory(gradient);
        if self.element == ElementType::F32 {
            return case.null();
        }
        case.unwritten(len * self.element.bytes())
    }

    fn decay(&self) -> (f32, f32) {
        let shrink = |decay: f64| (1.0 - RATE * decay) as f32;
        match self.optimizer {
            Optimizer::Adam(adam) if adam.decay == WeightDecay::L2 => {
                (adam.weight_decay as f32, 1.0)
            }
            Optimizer::Adam(adam) => (0.0, shrink(adam.weight_decay)),
            Optimizer::Sgd(sgd) => (sgd.weight_decay as f32, 1.0),
            Optimizer::Lion(lion) => (0.0, shrink(lion.weight_decay)),
        }
    }

    /// Updates the parameters on the device; checks their copy.
    fn update_on_device(
        &mut self,
        runner: &mut dyn KernelRunner,
        step: DeviceStep,
        gradient: &[f32],
    ) -> Result<(), CheckError> {
        let (l2, shrink) = self.decay();
        let ranges = I32(self.ends.len() as i32);
        let case = match self.optimizer {
            Optimizer::Adam(adam) => {
                let case = self.case(Kernel::Adam, gradient).memory(&[step]);
                let case = case.memory(&[prepare_adam(runner, &adam, step)?]).memory(&self.ends);
                case.scalar(ranges).scalar(F32(l2)).scalar(F32(shrink))
            }
            Optimizer::Sgd(sgd) => {
                let case = self.case(Kernel::Sgd, gradient).memory(&[step]).memory(&self.ends);
                let numbers = [l2, sgd.momentum as f32, (1.0 - sgd.dampening) as f32];
                let case =
                    numbers.into_iter().fold(case.scalar(ranges), |case, x| case.scalar(F32(x)));
                case.scalar(U32(u32::from(sgd.nesterov))).scalar(F32(RATE as f32))
            }
            Optimizer::Lion(lion) => {
                let case = self.case(Kernel::Lion, gradient).memory(&[step]).memory(&self.ends);
                let [beta1, beta2] = lion.betas;
                let numbers = [beta1, 1.0 - beta1, beta2, 1.0 - beta2, RATE].map(|x| x as f32);
                let case = case.scalar(ranges).scalar(F32(shrink));
                numbers.into_iter().fold(case, |case, x| case.scalar(F32(x)))
            }
        };
        let results = case.count(self.params.len()).run(runner)?;
        self.params = results.get(0);
        let states = self.states.len();
        for (index, state) in self.states.iter_mut().enumerate() {
            *state = results.get(1 + index);
        }
        if self.element != ElementType::F32 && step.is_finite == 1 {
            let wide: Vec<f64> = self.params.iter().map(|x| f64::from(*x)).collect();
            same("weights of 16 bits", results.0[states + 2] == encode(self.element, &wide))?;
        }
        Ok(())
    }
}

fn prepare_adam(
    runner: &mut dyn KernelRunner,
    adam: &AdamOptions,
    step: DeviceStep,
) -> Result<DeviceAdam, CheckError> {
    let program = KernelProgram::Optimizer(ElementType::F32);
    let case = KernelCase::new(program, Kernel::PrepareAdam, KernelLaunch::one_thread());
    let case = case.memory(&[step]).memory(&[DeviceAdam::default()]);
    let numbers = [adam.betas[0], adam.betas[1], adam.epsilon, RATE];
    let case = numbers.into_iter().fold(case, |case, number| case.scalar(F64(number)));
    Ok(case.scalar(U32(u32::from(adam.bias_correction))).run(runner)?.get(1)[0])
}

pub(super) fn check_optimizers(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    for optimizer in optimizers() {
        for element in ElementType::ALL {
            let mut device = Run::new(optimizer, element, gradient(&mut random, 3003));
            let mut cpu = device.clone();
            for applied in [1, 2, 3, 1000] {
                let gradient = gradient(&mut random, 3003);
                let factor = 0.25 / applied as f32;
                let step = DeviceStep { norm: 1.0, applied, factor, is_finite: 1 };
                device.update_on_device(runner, step, &gradient)?;
                cpu.update_on_cpu(step, &gradient);
                let bits = |run: &Run| -> Vec<Vec<u32>> {
                    let all = std::iter::once(&run.params).chain(&run.states);
                    all.map(|values| values.iter().map(|x| x.to_bits()).collect()).collect()
                };
                same(&format!("step {applied} of {optimizer:?}"), bits(&device) == bits(&cpu))?;
            }
        }
    }
    Ok(())
}

/// Runs the kernel of the loss scale beside the scaler of a CPU.
fn check_scaler(
    runner: &mut dyn KernelRunner,
    random: &mut RandomStream,
    settings: DynamicScaling,
) -> Result<(), CheckError> {
    let mut cpu = LossScaler::new(LossScaling::Dynamic(settings));
    let mut state = DeviceLossScale {
        scale: cpu.scale(),
        hysteresis_left: settings.hysteresis,
        ..DeviceLossScale::default()
    };
    for _ in 0..60 {
        let is_finite = random.below(4) != 0;
        let step = DeviceStep { is_finite: u32::from(is_finite), ..DeviceStep::default() };
        let program = KernelProgram::Optimizer(BF16);
        let results = KernelCase::new(program, Kernel::UpdateLossScale, KernelLaunch::one_thread())
            .memory(&[step])
            .memory(&[state])
            .memory(&[0.0f32])
            .scalar(U64(settings.window))
            .scalar(U32(settings.hysteresis))
            .scalar(U32(u32::from(settings.consecutive_hysteresis)))
            .scalar(F64(settings.scale_min))
            .run(runner)?;
        state = results.get(1)[0];
        let check = if is_finite { GradientCheck::Finite } else { GradientCheck::Overflow };
        let taken = cpu.start_step();
        let is_stuck = cpu.finish_step(taken, check).is_err();
        let LossScale::Dynamic { scale, clean_steps, hysteresis_left } = cpu.state() else {
            panic!("the scale is dynamic");
        };
        let is_stuck = u32::from(is_stuck);
        let expect = DeviceLossScale { scale, clean_steps, hysteresis_left, is_stuck };
        let is_copied = results.get::<f32>(2)[0].to_bits() == (scale as f32).to_bits();
        same("loss scale", state == expect && is_copied)?;
        if state.is_stuck == 1 {
            return Ok(());
        }
    }
    Ok(())
}

pub(super) fn check_loss_scale(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    for hysteresis in 1..4 {
        for consecutive_hysteresis in [false, true] {
            for (initial_power, window) in [(2, 3), (16, 2), (40, 1)] {
                let settings = DynamicScaling {
                    initial_power,
                    window,
                    hysteresis,
                    consecutive_hysteresis,
                    scale_min: 0.5,
                };
                check_scaler(runner, &mut random, settings)?;
            }
        }
    }
    Ok(())
}
