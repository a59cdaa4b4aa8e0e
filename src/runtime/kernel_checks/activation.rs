//! Functions of single elements and the classifier, against the same in f64.

use crate::cuda::device::KernelArgument;
use crate::cuda::kernels::{Activation, ElementType, Kernel, KernelLaunch, KernelProgram};

use crate::runtime::data::random::RandomStream;
use crate::runtime::dtype::reference::erf;
use crate::runtime::kernel_checks::case::{KernelCase, SEED, draw, rounded};
use crate::runtime::kernel_checks::runner::{CheckError, KernelRunner, close, same};

/// Returns the value of a function and its derivative.
pub fn value_and_slope(function: Activation, x: f64) -> (f64, f64) {
    match function {
        Activation::Identity => (x, 1.0),
        Activation::Relu => (x.max(0.0), if 0.0 < x { 1.0 } else { 0.0 }),
        Activation::GeluTanh => {
            let root = (2.0 / std::f64::consts::PI).sqrt();
            let tanh = (root * (x + 0.044_715 * x.powi(3))).tanh();
            let slope = root * (1.0 + 3.0 * 0.044_715 * x * x) * (1.0 - tanh * tanh);
            (0.5 * x * (1.0 + tanh), 0.5 * (1.0 + tanh) + 0.5 * x * slope)
        }
        Activation::Gelu => {
            let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
            let distribution = 0.5 * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2));
            (x * distribution, distribution + x * density)
        }
    }
}

fn all_functions() -> impl Iterator<Item = (Activation, ElementType)> {
    let of = |function| ElementType::ALL.map(|element| (function, element));
    Activation::ALL.into_iter().flat_map(of)
}

/// Functions that have no power are exact before they are rounded.
fn is_exact(function: Activation) -> bool {
    matches!(function, Activation::Relu | Activation::Identity)
}

fn check(
    what: &str,
    (function, element): (Activation, ElementType),
    found: &[f64],
    expect: &[f64],
) -> Result<(), CheckError> {
    let what = format!("{what} of {function:?}");
    if is_exact(function) {
        same(&what, found == rounded(element, expect))
    } else {
        close(&what, element, found, expect)
    }
}

pub(super) fn check_activations(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    for (function, element) in all_functions() {
        for (count, size) in [(1, 1.0), (1037, 5.0), (4096, 12.0)] {
            let program = KernelProgram::Activation(function, element);
            let launch = KernelLaunch::elementwise(count as u64, element);
            let x = draw(&mut random, element, count, size);
            let dy = draw(&mut random, element, count, 1.0);
            let y = KernelCase::new(program, Kernel::ActivationForward, launch)
                .elements(element, &x)
                .unwritten(count * element.bytes())
                .count(count)
                .run(runner)?;
            let expect: Vec<f64> = x.iter().map(|x| value_and_slope(function, *x).0).collect();
            check("y", (function, element), &y.elements(1, element), &expect)?;
            let dx = KernelCase::new(program, Kernel::ActivationBackward, launch)
                .elements(element, &x)
                .elements(element, &dy)
                .same_memory(1)
                .count(count)
                .run(runner)?;
            let slopes = x.iter().map(|x| value_and_slope(function, *x).1);
            let expect: Vec<f64> = slopes.zip(&dy).map(|(slope, dy)| slope * dy).collect();
            check("dx", (function, element), &dx.elements(1, element), &expect)?;
        }
    }
    Ok(())
}

pub(super) fn check_huge_numbers(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let element = ElementType::F32;
    let x = [-1e30, -100.0, -20.0, -0.0, 0.0, 20.0, 100.0, 1e12];
    for function in Activation::ALL {
        let program = KernelProgram::Activation(function, element);
        let launch = KernelLaunch::elementwise(8, element);
        let case = |kernel| KernelCase::new(program, kernel, launch).elements(element, &x);
        let y = case(Kernel::ActivationForward).unwritten(32).count(8).run(runner)?;
        let y = y.floats(1);
        let is_right = y.iter().all(|y| y.is_finite()) && y[6..] == [100.0, f64::from(1e12f32)];
        same(&format!("large numbers of {function:?}"), is_right)?;
    }
    Ok(())
}

pub(super) fn check_bias(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    for (function, element) in all_functions() {
        for (rows, width) in [(1, 8), (5, 264)] {
            let x = draw(&mut random, element, rows * width, 2.0);
            let bias = draw(&mut random, element, width, 1.0);
            let launch = KernelLaunch::elementwise((rows * width) as u64, element);
            let program = KernelProgram::Activation(function, element);
            let sum = |(at, x): (usize, &f64)| f64::from(*x as f32 + bias[at % width] as f32);
            let sums: Vec<f64> = x.iter().enumerate().map(sum).collect();
            let sums = rounded(element, &sums);
            let expect: Vec<f64> = sums.iter().map(|x| value_and_slope(function, *x).0).collect();
            let case = KernelCase::new(program, Kernel::BiasActivation, launch)
                .elements(element, &x)
                .elements(element, &bias);
            let kept = case.clone().unwritten(rows * width * element.bytes()).ints([rows, width]);
            let kept = kept.run(runner)?;
            same("x + bias", kept.elements(0, element) == sums)?;
            check("y", (function, element), &kept.elements(2, element), &expect)?;
            let alone = case.clone().null().ints([rows, width]).run(runner)?;
            same("x + bias alone", alone.elements(0, element) == sums)?;
            let in_place = case.same_memory(0).ints([rows, width]).run(runner)?;
            same("y in place", in_place.0[0] == kept.0[2])?;
        }
    }
    Ok(())
}

/// Losses and gradients of logits.
fn cross_entropy(
    logits: &[f64],
    targets: &[u32],
    [vocabulary, stride]: [usize; 2],
    share: f64,
) -> (Vec<f64>, Vec<f64>) {
    let (mut losses, mut gradients) = (Vec::new(), Vec::new());
    for (row, target) in logits.chunks(stride).zip(targets) {
        let row = &row[..vocabulary];
        let top = row.iter().copied().fold(f64::MIN, f64::max);
        let mass: f64 = row.iter().map(|x| (x - top).exp()).sum();
        losses.push(mass.ln() + top - row[*target as usize]);
        let start = gradients.len();
        gradients.extend(row.iter().map(|x| (x - top).exp() / mass * share));
        gradients[start + *target as usize] -= share;
        gradients.resize(start + stride, 0.0);
    }
    (losses, gradients)
}

pub(super) fn check_classifier(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    for element in ElementType::ALL {
        for [rows, vocabulary, stride] in [[1, 8, 8], [3, 50, 64], [5, 2050, 2056], [2, 9001, 9024]]
        {
            // Logits of the padding are larger than all others: they must not count.
            let mut logits = draw(&mut random, element, rows * stride, 8.0);
            for row in logits.chunks_mut(stride) {
                row[vocabulary..].fill(1000.0);
            }
            let targets: Vec<u32> = (0..rows).map(|_| random.below(vocabulary) as u32).collect();
            let (scale, share) = (128.0f32, 0.125f32);
            let launch = KernelLaunch::classifier(rows as u32, stride as u32, element);
            let results =
                KernelCase::new(KernelProgram::Classifier(element), Kernel::Classifier, launch)
                    .elements(element, &logits)
                    .memory(&targets)
                    .unwritten(rows * 4)
                    .memory(&[scale])
                    .scalar(KernelArgument::F32(share))
                    .ints([vocabulary, stride])
                    .run(runner)?;
            let share = f64::from(share) * f64::from(scale);
            let logits = rounded(element, &logits);
            let (losses, gradients) = cross_entropy(&logits, &targets, [vocabulary, stride], share);
            close("loss", ElementType::F32, &results.floats(2), &losses)?;
            let found = results.elements(0, element);
            close("gradient", element, &found, &gradients)?;
            let mut padding = found.chunks(stride).flat_map(|row| &row[vocabulary..]);
            same("gradient of the padding", padding.all(|x| x.to_bits() == 0))?;
        }
    }
    Ok(())
}
