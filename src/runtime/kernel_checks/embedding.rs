//! Kernels of embeddings and of conversions: they give the bits of the same operations on a CPU.

use crate::base::order;
use crate::cuda::kernels::{ElementType, HalfType, Kernel, KernelLaunch, KernelProgram};

use crate::runtime::data::random::RandomStream;
use crate::runtime::kernel_checks::case::{KernelCase, SEED, draw, encode, rounded};
use crate::runtime::kernel_checks::runner::{CheckError, KernelRunner, same};

/// Sequences, tokens of a sequence, features.
const SHAPES: [[usize; 3]; 4] = [[1, 1, 8], [3, 5, 264], [2, 33, 72], [1, 7, 2056]];
const VOCABULARY: usize = 11;

pub(super) fn check_embeddings(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    for (element, [batch, length, width]) in all_shapes() {
        let rows = batch * length;
        let tokens: Vec<u32> = (0..rows).map(|_| random.below(VOCABULARY) as u32).collect();
        let table = draw(&mut random, element, VOCABULARY * width, 1.0);
        let positions = draw(&mut random, element, length * width, 0.1);
        let launch = KernelLaunch::elementwise((rows * width) as u64, element);
        let results = KernelCase::new(KernelProgram::Embedding(element), Kernel::Embed, launch)
            .memory(&tokens)
            .elements(element, &table)
            .elements(element, &positions)
            .unwritten(rows * width * element.bytes())
            .ints([rows, length, width])
            .run(runner)?;
        let sum = |at: usize| {
            let (row, column) = (at / width, at % width);
            let token = table[tokens[row] as usize * width + column] as f32;
            f64::from(token + positions[row % length * width + column] as f32)
        };
        let sums: Vec<f64> = (0..rows * width).map(sum).collect();
        same("embeddings", results.elements(3, element) == rounded(element, &sums))?;
    }
    Ok(())
}

fn all_shapes() -> impl Iterator<Item = (ElementType, [usize; 3])> {
    ElementType::ALL.into_iter().flat_map(|element| SHAPES.map(|shape| (element, shape)))
}

pub(super) fn check_position_gradients(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    for (element, [batch, length, width]) in all_shapes() {
        let size = length * width;
        let gradient = draw(&mut random, element, batch * size, 1.0);
        let launch = KernelLaunch::elementwise(size as u64, element);
        let program = KernelProgram::Embedding(element);
        let results = KernelCase::new(program, Kernel::EmbedBackwardPositions, launch)
            .elements(element, &gradient)
            .unwritten(size * 4)
            .ints([batch, length, width])
            .run(runner)?;
        let sum = |at: usize| {
            (0..batch).fold(0.0f32, |sum, sequence| sum + gradient[sequence * size + at] as f32)
        };
        let sums: Vec<_> = (0..size).map(sum).collect();
        same("gradient of the positions", results.get::<f32>(1) == sums)?;
    }
    Ok(())
}

pub(super) fn check_token_gradients(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    for (element, [batch, length, width]) in all_shapes() {
        let rows = batch * length;
        let tokens: Vec<u32> = (0..rows).map(|_| random.below(VOCABULARY) as u32).collect();
        let gradient = draw(&mut random, element, rows * width, 1.0);
        let head: Vec<f32> = draw(&mut random, ElementType::F32, VOCABULARY * width, 1.0)
            .iter()
            .map(|value| *value as f32)
            .collect();
        let mut order: Vec<u32> = (0..rows as u32).collect();
        order::sort_by_key(&mut order, |row| tokens[*row as usize]);
        let is_start =
            |at: usize| at == 0 || tokens[order[at] as usize] != tokens[order[at - 1] as usize];
        let mut starts: Vec<u32> =
            (0..rows).filter(|at| is_start(*at)).map(|at| at as u32).collect();
        let runs = starts.len() as u32;
        starts.push(rows as u32);
        let launch = KernelLaunch::embed_backward_tokens(runs, width as u32, element);
        let program = KernelProgram::Embedding(element);
        let results = KernelCase::new(program, Kernel::EmbedBackwardTokens, launch)
            .elements(element, &gradient)
            .memory(&tokens)
            .memory(&order)
            .memory(&starts)
            .memory(&head)
            .ints([width])
            .run(runner)?;
        let mut expect = head;
        for (row, token) in tokens.iter().enumerate() {
            for column in 0..width {
                expect[*token as usize * width + column] += gradient[row * width + column] as f32;
            }
        }
        same("gradient of the tokens", results.get::<f32>(4) == expect)?;
    }
    Ok(())
}

pub(super) fn check_conversions(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    let mut random = RandomStream::new(&[SEED]);
    for half in HalfType::ALL {
        let element = ElementType::Half(half);
        for count in [1usize, 8, 61, 5000] {
            // Numbers of all sizes, subnormal and infinite ones too.
            let bits = |random: &mut RandomStream| (random.below(1 << 32) as u32) & 0xff80_ffff;
            let values: Vec<f32> = (0..count).map(|_| f32::from_bits(bits(&mut random))).collect();
            let values: Vec<f32> =
                values.into_iter().map(|x| if x.is_nan() { 1.0 } else { x }).collect();
            let launch = KernelLaunch::elementwise(count as u64, element);
            let narrowed = KernelCase::new(KernelProgram::Convert(half), Kernel::NarrowAll, launch)
                .memory(&values)
                .unwritten(count * 2)
                .count(count)
                .run(runner)?;
            let wide: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
            same(&format!("{half:?} of f32"), narrowed.0[1] == encode(element, &wide))?;
            let widened = KernelCase::new(KernelProgram::Convert(half), Kernel::WidenAll, launch)
                .memory(&narrowed.get::<u8>(1))
                .unwritten(count * 4)
                .count(count)
                .run(runner)?;
            same(&format!("f32 of {half:?}"), widened.floats(1) == rounded(element, &wide))?;
        }
    }
    Ok(())
}
