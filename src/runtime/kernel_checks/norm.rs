//! Layer norm and sums of rows, against the same in f64.

use crate::cuda::kernels::{ElementType, Kernel, KernelLaunch, KernelProgram, RowParts};

use crate::runtime::data::random::RandomStream;
use crate::runtime::kernel_checks::case::{KernelCase, SEED, draw, rounded};
use crate::runtime::kernel_checks::fold::{all_shapes, fold};
use crate::runtime::kernel_checks::runner::{CheckError, KernelRunner, close, same};

/// Normalized rows, means and 1/σ.
struct Normal {
    rows: Vec<f64>,
    means: Vec<f64>,
    scales: Vec<f64>,
}

fn normalize(x: &[f64], width: usize) -> Normal {
    let mut found = Normal { rows: Vec::new(), means: Vec::new(), scales: Vec::new() };
    for row in x.chunks(width) {
        let mean = row.iter().sum::<f64>() / width as f64;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / width as f64;
        let scale = 1.0 / (variance + 1e-5).sqrt();
        found.rows.extend(row.iter().map(|x| (x - mean) * scale));
        found.means.push(mean);
        found.scales.push(scale);
    }
    found
}

/// Activations with a mean, as in a residual stream.
fn activations(random: &mut RandomStream, element: ElementType, len: usize) -> Vec<f64> {
    let values: Vec<f64> = draw(random, element, len, 2.0).iter().map(|x| x + 0.5).collect();
    rounded(element, &values)
}

pub(super) fn check_norms(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    for (element, [rows, width]) in all_shapes() {
        let x = activations(&mut random, element, rows * width);
        let weight = draw(&mut random, element, width, 1.0);
        let bias = draw(&mut random, element, width, 1.0);
        for has_bias in [false, true] {
            let launch = KernelLaunch::warp_for_each_row(rows as u32);
            let case = KernelCase::new(KernelProgram::Norm(element), Kernel::NormForward, launch)
                .elements(element, &x)
                .elements(element, &weight);
            let case = if has_bias { case.elements(element, &bias) } else { case.null() };
            let first = 2 + usize::from(has_bias);
            let results = case
                .unwritten(rows * width * element.bytes())
                .unwritten(rows * 4)
                .unwritten(rows * 4)
                .ints([rows, width])
                .run(runner)?;
            let normal = normalize(&x, width);
            let shift = |at| if has_bias { bias[at] } else { 0.0 };
            let y = |(at, x): (usize, &f64)| x * weight[at % width] + shift(at % width);
            let y: Vec<f64> = normal.rows.iter().enumerate().map(y).collect();
            close("y", element, &results.elements(first, element), &y)?;
            close("mean", ElementType::F32, &results.floats(first + 1), &normal.means)?;
            close("scale", ElementType::F32, &results.floats(first + 2), &normal.scales)?;
        }
    }
    Ok(())
}

pub(super) fn check_fused_norms(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    for (element, [rows, width]) in all_shapes() {
        let x = activations(&mut random, element, rows * width);
        let update = draw(&mut random, element, rows * width, 1.0);
        let weight = draw(&mut random, element, width, 1.0);
        let sums: Vec<f64> =
            x.iter().zip(&update).map(|(x, y)| f64::from(*x as f32 + *y as f32)).collect();
        let residual = rounded(element, &sums);
        let launch = KernelLaunch::warp_for_each_row(rows as u32);
        let program = KernelProgram::Norm(element);
        let apart = KernelCase::new(program, Kernel::NormForward, launch)
            .elements(element, &residual)
            .elements(element, &weight)
            .null()
            .unwritten(rows * width * element.bytes())
            .unwritten(rows * 4)
            .unwritten(rows * 4)
            .ints([rows, width])
            .run(runner)?;
        for is_in_place in [false, true] {
            let case = KernelCase::new(program, Kernel::ResidualNormForward, launch)
                .elements(element, &x)
                .elements(element, &update)
                .elements(element, &weight)
                .null();
            let bytes = rows * width * element.bytes();
            let case = if is_in_place { case.same_memory(0) } else { case.unwritten(bytes) };
            let y = if is_in_place { 3 } else { 4 };
            let fused = case
                .unwritten(bytes)
                .unwritten(rows * 4)
                .unwritten(rows * 4)
                .ints([rows, width])
                .run(runner)?;
            let at = if is_in_place { 0 } else { 3 };
            same("residual stream", fused.elements(at, element) == residual)?;
            for output in 0..3 {
                same("fused norm", fused.0[y + output] == apart.0[2 + output])?;
            }
        }
    }
    Ok(())
}

/// Gradients of a norm: of its input, its weight and its bias.
fn norm_gradients(
    dy: &[f64],
    dskip: Option<&[f64]>,
    weight: &[f64],
    normal: &Normal,
) -> [Vec<f64>; 3] {
    let width = weight.len();
    let (mut dx, mut dweight, mut dbias) = (Vec::new(), vec![0.0; width], vec![0.0; width]);
    for (row, dy) in dy.chunks(width).enumerate() {
        let x = &normal.rows[row * width..][..width];
        let dnormal: Vec<f64> = dy.iter().zip(weight).map(|(dy, weight)| dy * weight).collect();
        let mean = dnormal.iter().sum::<f64>() / width as f64;
        let slope = dnormal.iter().zip(x).map(|(d, x)| d * x).sum::<f64>() / width as f64;
        for column in 0..width {
            let skip = dskip.map_or(0.0, |dskip| dskip[row * width + column]);
            dx.push(skip + (dnormal[column] - mean - x[column] * slope) * normal.scales[row]);
            dweight[column] += dy[column] * x[column];
            dbias[column] += dy[column];
        }
    }
    [dx, dweight, dbias]
}

pub(super) fn check_norm_gradients(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    for (element, [rows, width]) in all_shapes() {
        let x = activations(&mut random, element, rows * width);
        let weight = draw(&mut random, element, width, 1.0);
        let dy = draw(&mut random, element, rows * width, 1.0);
        let dskip = draw(&mut random, element, rows * width, 1.0);
        let normal = normalize(&x, width);
        let narrow = |values: &[f64]| values.iter().map(|x| *x as f32).collect::<Vec<_>>();
        let parts = RowParts::of_norm(rows as u32);
        for has_skip in [false, true] {
            let launch = KernelLaunch::norm_backward(rows as u32, width as u32);
            let case = KernelCase::new(KernelProgram::Norm(element), Kernel::NormBackward, launch)
                .elements(element, &dy)
                .elements(element, &x)
                .elements(element, &weight)
                .memory(&narrow(&normal.means))
                .memory(&narrow(&normal.scales));
            // With a skip connection, its gradient is replaced by that of the input.
            let case = if has_skip {
                case.elements(element, &dskip).same_memory(5)
            } else {
                case.null().unwritten(rows * width * element.bytes())
            };
            let results = case
                .unwritten(parts.parts as usize * 2 * width * 4)
                .ints([rows, parts.rows_of_part as usize, width])
                .run(runner)?;
            let skip = has_skip.then_some(&dskip[..]);
            let [dx, dweight, dbias] = norm_gradients(&dy, skip, &weight, &normal);
            close("dx", element, &results.elements(5, element), &dx)?;
            let partial = results.get::<f32>(6);
            let folded = fold(runner, &partial, [parts.parts as usize, 2 * width], element)?;
            close("dweight", ElementType::F32, &folded[..width], &dweight)?;
            close("dbias", ElementType::F32, &folded[width..], &dbias)?;
        }
    }
    Ok(())
}
