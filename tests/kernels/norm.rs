//! Layer norm and sums of rows, against the same in f64.

use remuda::cuda::kernels::{ElementType, Kernel, KernelLaunch, KernelProgram, RowParts};

use super::emulated::{Case, assert_close, bytes_of, decode, draw, encode};
use crate::support::proof::{Random, has};

/// Rows and features.
const SHAPES: [[usize; 2]; 4] = [[1, 8], [13, 264], [70, 64], [1100, 16]];

fn all_shapes() -> impl Iterator<Item = (ElementType, [usize; 2])> {
    ElementType::ALL.into_iter().flat_map(|element| SHAPES.map(|shape| (element, shape)))
}

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
fn activations(random: &mut Random, element: ElementType, len: usize) -> Vec<f64> {
    let values: Vec<f64> = draw(random, element, len, 2.0).iter().map(|x| x + 0.5).collect();
    decode(element, &encode(element, &values))
}

#[test]
fn norm_forward_is_the_norm_of_each_row() {
    if !has("compiler", "norm_forward_is_the_norm_of_each_row") {
        return;
    }
    let mut random = Random::from_seed();
    for (element, [rows, width]) in all_shapes() {
        let x = activations(&mut random, element, rows * width);
        let weight = draw(&mut random, element, width, 1.0);
        let bias = draw(&mut random, element, width, 1.0);
        for has_bias in [false, true] {
            let launch = KernelLaunch::warp_for_each_row(rows as u32);
            let case = Case::new(KernelProgram::Norm(element), Kernel::NormForward, launch)
                .elements(element, &x)
                .elements(element, &weight);
            let case = if has_bias { case.elements(element, &bias) } else { case.null() };
            let first = 2 + usize::from(has_bias);
            let results = case
                .unwritten(rows * width * bytes_of(element))
                .unwritten(rows * 4)
                .unwritten(rows * 4)
                .ints([rows, width])
                .run_under_all_schedules();
            let normal = normalize(&x, width);
            let shift = |at| if has_bias { bias[at] } else { 0.0 };
            let y = |(at, x): (usize, &f64)| x * weight[at % width] + shift(at % width);
            let y: Vec<f64> = normal.rows.iter().enumerate().map(y).collect();
            assert_close("y", element, &results.elements(first, element), &y);
            assert_close("mean", ElementType::F32, &results.floats(first + 1), &normal.means);
            assert_close("scale", ElementType::F32, &results.floats(first + 2), &normal.scales);
        }
    }
}

#[test]
fn residual_norm_has_the_bits_of_two_kernels() {
    if !has("compiler", "residual_norm_has_the_bits_of_two_kernels") {
        return;
    }
    let mut random = Random::from_seed();
    for (element, [rows, width]) in all_shapes() {
        let x = activations(&mut random, element, rows * width);
        let update = draw(&mut random, element, rows * width, 1.0);
        let weight = draw(&mut random, element, width, 1.0);
        let sums: Vec<f64> =
            x.iter().zip(&update).map(|(x, y)| f64::from(*x as f32 + *y as f32)).collect();
        let residual = decode(element, &encode(element, &sums));
        let launch = KernelLaunch::warp_for_each_row(rows as u32);
        let program = KernelProgram::Norm(element);
        let apart = Case::new(program, Kernel::NormForward, launch)
            .elements(element, &residual)
            .elements(element, &weight)
            .null()
            .unwritten(rows * width * bytes_of(element))
            .unwritten(rows * 4)
            .unwritten(rows * 4)
            .ints([rows, width])
            .run_under_all_schedules();
        for is_in_place in [false, true] {
            let case = Case::new(program, Kernel::ResidualNormForward, launch)
                .elements(element, &x)
                .elements(element, &update)
                .elements(element, &weight)
                .null();
            let bytes = rows * width * bytes_of(element);
            let case = if is_in_place { case.same_memory(0) } else { case.unwritten(bytes) };
            let y = if is_in_place { 3 } else { 4 };
            let fused = case
                .unwritten(bytes)
                .unwritten(rows * 4)
                .unwritten(rows * 4)
                .ints([rows, width])
                .run_under_all_schedules();
            let at = if is_in_place { 0 } else { 3 };
            assert_eq!(fused.elements(at, element), residual);
            for output in 0..3 {
                assert_eq!(fused.get::<u8>(y + output), apart.get::<u8>(2 + output));
            }
        }
    }
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

#[test]
fn norm_backward_is_the_gradient_of_the_norm() {
    if !has("compiler", "norm_backward_is_the_gradient_of_the_norm") {
        return;
    }
    let mut random = Random::from_seed();
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
            let case = Case::new(KernelProgram::Norm(element), Kernel::NormBackward, launch)
                .elements(element, &dy)
                .elements(element, &x)
                .elements(element, &weight)
                .memory(&narrow(&normal.means))
                .memory(&narrow(&normal.scales));
            // With a skip connection, its gradient is replaced by that of the input.
            let case = if has_skip {
                case.elements(element, &dskip).same_memory(5)
            } else {
                case.null().unwritten(rows * width * bytes_of(element))
            };
            let results = case
                .unwritten(parts.parts as usize * 2 * width * 4)
                .ints([rows, parts.rows_of_part as usize, width])
                .run_under_all_schedules();
            let skip = has_skip.then_some(&dskip[..]);
            let [dx, dweight, dbias] = norm_gradients(&dy, skip, &weight, &normal);
            assert_close("dx", element, &results.elements(5, element), &dx);
            let partial = results.get::<f32>(6);
            let folded = fold(element, &partial, parts.parts as usize, 2 * width);
            assert_close("dweight", ElementType::F32, &folded[..width], &dweight);
            assert_close("dbias", ElementType::F32, &folded[width..], &dbias);
        }
    }
}

/// Sums of parts by the kernel.
fn fold(element: ElementType, partial: &[f32], parts: usize, columns: usize) -> Vec<f64> {
    let launch = KernelLaunch::fold(columns as u32);
    Case::new(KernelProgram::Fold(element), Kernel::Fold, launch)
        .memory(partial)
        .unwritten(columns * 4)
        .ints([parts, columns, columns])
        .run_under_all_schedules()
        .floats(1)
}

#[test]
fn fold_sums_some_columns_of_all_parts() {
    if !has("compiler", "fold_sums_some_columns_of_all_parts") {
        return;
    }
    let mut random = Random::from_seed();
    for (parts, stride, columns) in [(1, 8, 8), (7, 40, 33), (256, 70, 64)] {
        let partial = draw(&mut random, ElementType::F32, parts * stride, 1.0);
        let numbers: Vec<f32> = partial.iter().map(|x| *x as f32).collect();
        let launch = KernelLaunch::fold(columns as u32);
        let results = Case::new(KernelProgram::Fold(ElementType::F32), Kernel::Fold, launch)
            .memory(&numbers)
            .unwritten(columns * 4)
            .ints([parts, stride, columns])
            .run_under_all_schedules();
        let sum = |column: usize| (0..parts).map(|part| partial[part * stride + column]).sum();
        let sums: Vec<f64> = (0..columns).map(sum).collect();
        assert_close("fold", ElementType::F32, &results.floats(1), &sums);
    }
}

#[test]
fn bias_gradients_are_sums_of_rows() {
    if !has("compiler", "bias_gradients_are_sums_of_rows") {
        return;
    }
    let mut random = Random::from_seed();
    for (element, [rows, width]) in all_shapes() {
        let dy = draw(&mut random, element, rows * width, 1.0);
        let parts = RowParts::of_bias(rows as u32);
        let launch = KernelLaunch::bias_backward(rows as u32, width as u32, element);
        let partial = Case::new(KernelProgram::Fold(element), Kernel::BiasBackward, launch)
            .elements(element, &dy)
            .unwritten(parts.parts as usize * width * 4)
            .ints([rows, parts.rows_of_part as usize, width])
            .run_under_all_schedules()
            .get::<f32>(1);
        let folded = fold(element, &partial, parts.parts as usize, width);
        let sum = |column: usize| dy.iter().skip(column).step_by(width).sum();
        let sums: Vec<f64> = (0..width).map(sum).collect();
        assert_close("bias", ElementType::F32, &folded, &sums);
    }
}
