//! Sums of rows and of micro-batches, against the same in f64 or on a processor.

use crate::cuda::device::KernelArgument;
use crate::cuda::kernels::{ElementType, Kernel, KernelLaunch, KernelProgram, RowParts};
use crate::runtime::data::random::RandomStream;
use crate::runtime::kernel_checks::case::{KernelCase, SEED, draw};
use crate::runtime::kernel_checks::runner::{CheckError, KernelRunner, close, same};

/// Rows and features.
const SHAPES: [[usize; 2]; 4] = [[1, 8], [13, 264], [70, 64], [1100, 16]];

pub(super) fn all_shapes() -> impl Iterator<Item = (ElementType, [usize; 2])> {
    ElementType::ALL.into_iter().flat_map(|element| SHAPES.map(|shape| (element, shape)))
}

/// Sums of parts by the kernel.
pub(super) fn fold(
    runner: &mut dyn KernelRunner,
    partial: &[f32],
    [parts, columns]: [usize; 2],
    element: ElementType,
) -> Result<Vec<f64>, CheckError> {
    let launch = KernelLaunch::fold(columns as u32);
    let memory = KernelCase::new(KernelProgram::Fold(element), Kernel::Fold, launch)
        .memory(partial)
        .unwritten(columns * 4)
        .ints([parts, columns, columns])
        .run(runner)?;
    Ok(memory.floats(1))
}

pub(super) fn check_folds(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    for (parts, stride, columns) in [(1, 8, 8), (7, 40, 33), (256, 70, 64)] {
        let partial = draw(&mut random, ElementType::F32, parts * stride, 1.0);
        let numbers: Vec<f32> = partial.iter().map(|x| *x as f32).collect();
        let launch = KernelLaunch::fold(columns as u32);
        let results = KernelCase::new(KernelProgram::Fold(ElementType::F32), Kernel::Fold, launch)
            .memory(&numbers)
            .unwritten(columns * 4)
            .ints([parts, stride, columns])
            .run(runner)?;
        let sum = |column: usize| (0..parts).map(|part| partial[part * stride + column]).sum();
        let sums: Vec<f64> = (0..columns).map(sum).collect();
        close("fold", ElementType::F32, &results.floats(1), &sums)?;
    }
    Ok(())
}

pub(super) fn check_bias_gradients(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    for (element, [rows, width]) in all_shapes() {
        let dy = draw(&mut random, element, rows * width, 1.0);
        let parts = RowParts::of_bias(rows as u32);
        let launch = KernelLaunch::bias_backward(rows as u32, width as u32, element);
        let partial = KernelCase::new(KernelProgram::Fold(element), Kernel::BiasBackward, launch)
            .elements(element, &dy)
            .unwritten(parts.parts as usize * width * 4)
            .ints([rows, parts.rows_of_part as usize, width])
            .run(runner)?
            .get::<f32>(1);
        let folded = fold(runner, &partial, [parts.parts as usize, width], element)?;
        let sum = |column: usize| dy.iter().skip(column).step_by(width).sum();
        let sums: Vec<f64> = (0..width).map(sum).collect();
        close("bias", ElementType::F32, &folded, &sums)?;
    }
    Ok(())
}

pub(super) fn check_micro_batches(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    let mut numbers = |len| -> Vec<f32> {
        draw(&mut random, ElementType::F32, len, 1.0).into_iter().map(|x| x as f32).collect()
    };
    for element in ElementType::ALL {
        for len in [1, 7, 4096, 20_001] {
            let (older, newer) = (numbers(len), numbers(len));
            let launch = KernelLaunch::elementwise(len as u64, element);
            let program = KernelProgram::Fold(element);
            let added = KernelCase::new(program, Kernel::AddOlder, launch)
                .memory(&older)
                .memory(&newer)
                .count(len)
                .run(runner)?;
            let sums: Vec<f32> = older.iter().zip(&newer).map(|(a, b)| a + b).collect();
            same("sum of micro-batches", added.get::<f32>(1) == sums)?;
            let divided = KernelCase::new(program, Kernel::DivideAll, launch)
                .memory(&sums)
                .scalar(KernelArgument::F32(3.0))
                .count(len)
                .run(runner)?;
            let shares: Vec<f32> = sums.iter().map(|sum| sum * (1.0 / 3.0)).collect();
            same("mean of micro-batches", divided.get::<f32>(0) == shares)?;
        }
    }
    Ok(())
}
