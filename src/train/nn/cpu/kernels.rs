//! Kernels between the matrix products: layer norm, softmax, GELU, cross entropy.
//!
//! Each kernel processes whole rows and adds within a row in [`LANES`] fixed lanes, so that its
//! bits depend neither on the SIMD width nor on the distribution of rows to threads.

use crate::os::cpu::simd_versions::versions;
use crate::train::ModelFloat;

/// Number of partial sums of a reduction: the single-precision lanes of the widest register.
const LANES: usize = 16;
/// Number of rows and columns that are transposed at a time.
const SQUARE: usize = 16;
/// Value that torch adds to a variance before the root.
const NORM_EPSILON: f64 = 1e-5;

/// Combines the lanes of a reduction in the order of a tree.
#[inline(always)]
#[expect(clippy::inline_always, reason = "must inherit the SIMD features of its caller")]
fn fold<F: ModelFloat>(lanes: &mut [F; LANES], combine: impl Fn(F, F) -> F) -> F {
    let mut width = LANES / 2;
    while 0 < width {
        for i in 0..width {
            lanes[i] = combine(lanes[i], lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0]
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "must inherit the SIMD features of its caller")]
fn sum<F: ModelFloat>(row: &[F], term: impl Fn(F) -> F) -> F {
    let (chunks, tail) = row.as_chunks::<LANES>();
    let mut lanes = [F::ZERO; LANES];
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane += term(x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(tail) {
        *lane += term(x);
    }
    fold(&mut lanes, |a, b| a + b)
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "must inherit the SIMD features of its caller")]
fn dot<F: ModelFloat>(left: &[F], right: &[F]) -> F {
    let (left_chunks, left_tail) = left.as_chunks::<LANES>();
    let (right_chunks, right_tail) = right.as_chunks::<LANES>();
    let mut lanes = [F::ZERO; LANES];
    for (a, b) in left_chunks.iter().zip(right_chunks) {
        for ((lane, &a), &b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    for ((lane, &a), &b) in lanes.iter_mut().zip(left_tail).zip(right_tail) {
        *lane += a * b;
    }
    fold(&mut lanes, |a, b| a + b)
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "must inherit the SIMD features of its caller")]
fn largest<F: ModelFloat>(row: &[F]) -> F {
    let (chunks, tail) = row.as_chunks::<LANES>();
    let mut lanes = [F::LOWEST; LANES];
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = lane.max(x);
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(tail) {
        *lane = lane.max(x);
    }
    fold(&mut lanes, F::max)
}

/// Transposes `height` × `width` elements; if both are constants, the loops are unrolled.
#[inline(always)]
#[expect(clippy::inline_always, reason = "must see constant sizes")]
fn transpose_square<F: ModelFloat>(
    from: &[F],
    from_stride: usize,
    to: &mut [F],
    to_stride: usize,
    height: usize,
    width: usize,
) {
    let mut square = [[F::ZERO; SQUARE]; SQUARE];
    for (row, line) in square.iter_mut().zip(from.chunks(from_stride)).take(height) {
        row[..width].copy_from_slice(&line[..width]);
    }
    for (col, line) in to.chunks_mut(to_stride).enumerate().take(width) {
        for (to, row) in line[..height].iter_mut().zip(&square) {
            *to = row[col];
        }
    }
}

versions! {
    /// Computes `x += y`.
    pub(crate) fn add<F: ModelFloat>(x: &mut [F], y: &[F]) {
        for (x, &y) in x.iter_mut().zip(y) {
            *x += y;
        }
    }

    /// Writes the rows of `matrix`, `cols` long, as the columns of `transposed`.
    pub(crate) fn transpose<F: ModelFloat>(matrix: &[F], cols: usize, transposed: &mut [F]) {
        let rows = matrix.len() / cols;
        for first in (0..rows).step_by(SQUARE) {
            for left in (0..cols).step_by(SQUARE) {
                let (height, width) = (SQUARE.min(rows - first), SQUARE.min(cols - left));
                let from = &matrix[first * cols + left..];
                let to = &mut transposed[left * rows + first..];
                match (height, width) {
                    (SQUARE, SQUARE) => transpose_square(from, cols, to, rows, SQUARE, SQUARE),
                    _ => transpose_square(from, cols, to, rows, height, width),
                }
            }
        }
    }

    /// Layer norm: writes the result without the weight to `normal`, with it to `y`, and 1/σ of each
    /// row to `scale`.
    pub(crate) fn layer_norm<F: ModelFloat>(
        x: &[F],
        weight: &[F],
        normal: &mut [F],
        scale: &mut [F],
        y: &mut [F],
    ) {
        let width = weight.len();
        let share = F::ONE / F::from_f64(width as f64);
        let rows = x.chunks_exact(width).zip(normal.chunks_exact_mut(width)).zip(y.chunks_exact_mut(width));
        for (((x, normal), y), scale) in rows.zip(scale) {
            let mean = sum(x, |x| x) * share;
            let variance = sum(x, |x| (x - mean) * (x - mean)) * share;
            *scale = F::ONE / (variance + F::from_f64(NORM_EPSILON)).sqrt();
            for (((&x, normal), y), &weight) in x.iter().zip(normal).zip(y).zip(weight) {
                *normal = (x - mean) * *scale;
                *y = *normal * weight;
            }
        }
    }

    /// Backward pass of [`layer_norm`]: `dx = dskip + ∂(dy)`, where `dskip` is the gradient of the
    /// skip connection, and `dweight += ∂`.
    pub(crate) fn layer_norm_backward<F: ModelFloat>(
        dy: &[F],
        dskip: &[F],
        weight: &[F],
        normal: &[F],
        scale: &[F],
        dx: &mut [F],
        dweight: &mut [F],
    ) {
        let width = weight.len();
        let share = F::ONE / F::from_f64(width as f64);
        let inputs = dy.chunks_exact(width).zip(dskip.chunks_exact(width));
        let rows = inputs.zip(normal.chunks_exact(width)).zip(dx.chunks_exact_mut(width));
        for ((((dy, dskip), normal), dx), &scale) in rows.zip(scale) {
            for (((dx, &dy), &weight), (dweight, &normal)) in
                dx.iter_mut().zip(dy).zip(weight).zip(dweight.iter_mut().zip(normal))
            {
                *dx = dy * weight;
                *dweight += dy * normal;
            }
            let mean = sum(dx, |x| x) * share;
            let slope = dot(dx, normal) * share;
            for ((dx, &dskip), &normal) in dx.iter_mut().zip(dskip).zip(normal) {
                *dx = dskip + (*dx - mean - normal * slope) * scale;
            }
        }
    }

    /// GELU with the exact normal distribution: `y = x·Φ(x)`; `x` is replaced by the derivative
    /// `Φ(x) + x·φ(x)`.
    pub(crate) fn gelu<F: ModelFloat>(x: &mut [F], y: &mut [F]) {
        let half = F::from_f64(0.5);
        let root_half = F::from_f64(std::f64::consts::FRAC_1_SQRT_2);
        let density_at_0 = F::from_f64(1.0 / (2.0 * std::f64::consts::PI).sqrt());
        for (x, y) in x.iter_mut().zip(y) {
            let size = x.abs();
            let gauss = (-(*x * *x) * half).exp();
            let tail = half * (size * root_half).erfcx() * gauss;
            let cdf = if *x < F::ZERO { tail } else { F::ONE - tail };
            *y = *x * cdf;
            *x = cdf + *x * (density_at_0 * gauss);
        }
    }

    /// GELU as GPT-2 approximates it: `y = x·σ(2u)` with `u = √(2/π)·(x + 0.044715·x³)`, which is
    /// `x·(1 + tanh u)/2`; `x` is replaced by the derivative.
    pub(crate) fn gelu_tanh<F: ModelFloat>(x: &mut [F], y: &mut [F]) {
        let cubic = F::from_f64(0.044_715);
        let twice_root = F::from_f64(2.0 * (2.0 / std::f64::consts::PI).sqrt());
        let three = F::from_f64(3.0);
        // Beyond, σ is 0 in every product, and its reciprocal would overflow.
        let largest = F::from_f64(80.0);
        for (x, y) in x.iter_mut().zip(y) {
            let square = *x * *x;
            let twice_u = twice_root * *x * (F::ONE + cubic * square);
            let decay = (F::ZERO - twice_u).min(largest).exp();
            let sigmoid = F::ONE / (F::ONE + decay);
            *y = *x * sigmoid;
            let slope = twice_root * (F::ONE + three * cubic * square);
            *x = sigmoid + *x * slope * (sigmoid * sigmoid * decay);
        }
    }

    /// Adds a bias to every row.
    pub(crate) fn add_to_rows<F: ModelFloat>(rows: &mut [F], bias: &[F]) {
        for row in rows.chunks_exact_mut(bias.len()) {
            for (x, &bias) in row.iter_mut().zip(bias) {
                *x += bias;
            }
        }
    }

    /// Computes the sum of all rows, in their order.
    pub(crate) fn sum_rows<F: ModelFloat>(rows: &[F], sum: &mut [F]) {
        sum.fill(F::ZERO);
        for row in rows.chunks_exact(sum.len()) {
            for (sum, &x) in sum.iter_mut().zip(row) {
                *sum += x;
            }
        }
    }

    /// Computes `dy *= derivative`.
    pub(crate) fn scale_by<F: ModelFloat>(dy: &mut [F], derivative: &[F]) {
        for (dy, &derivative) in dy.iter_mut().zip(derivative) {
            *dy *= derivative;
        }
    }

    /// Adds `bias` to a row.
    pub(crate) fn bias<F: ModelFloat>(row: &mut [F], bias: F) {
        for x in row {
            *x += bias;
        }
    }

    /// Adds `bias` to a row and applies ReLU.
    pub(crate) fn bias_relu<F: ModelFloat>(row: &mut [F], bias: F) {
        for x in row {
            *x = (*x + bias).max(F::ZERO);
        }
    }

    /// Backward pass of ReLU: the gradient is 0 where the output is 0.
    pub(crate) fn relu_backward<F: ModelFloat>(dy: &mut [F], y: &[F]) {
        for (dy, &y) in dy.iter_mut().zip(y) {
            *dy = if F::ZERO < y { *dy } else { F::ZERO };
        }
    }

    /// Returns the sum of a slice, in the fixed order of the lanes.
    pub(crate) fn total<F: ModelFloat>(row: &[F]) -> F {
        sum(row, |x| x)
    }

    /// Softmax of `scale · scores` over the keys that are visible to a query: row `i` of `scores`
    /// is query `first + i`, to which the keys `0..=first + i` are visible; others have probability
    /// 0.
    pub(crate) fn causal_softmax<F: ModelFloat>(scores: &mut [F], cols: usize, first: usize, scale: F) {
        for (i, row) in scores.chunks_exact_mut(cols).enumerate() {
            let visible = first + i + 1;
            // Whole vectors instead of a scalar tail; the masked lanes become exact zeros below.
            let whole = visible.next_multiple_of(LANES).min(cols);
            row[visible..whole].fill(F::LOWEST);
            let top = largest(&row[..visible]);
            for x in &mut row[..whole] {
                *x = ((*x - top) * scale).exp();
            }
            row[visible..].fill(F::ZERO);
            let share = F::ONE / sum(&row[..whole], |x| x);
            for x in &mut row[..whole] {
                *x *= share;
            }
        }
    }

    /// Backward pass of [`causal_softmax`] in place: replaces the gradient of the probabilities by
    /// that of the unscaled scores.
    pub(crate) fn causal_softmax_backward<F: ModelFloat>(
        gradient: &mut [F],
        probs: &[F],
        cols: usize,
        scale: F,
    ) {
        for (gradient, probs) in gradient.chunks_exact_mut(cols).zip(probs.chunks_exact(cols)) {
            let mean = dot(gradient, probs);
            for (gradient, &prob) in gradient.iter_mut().zip(probs) {
                *gradient = prob * (*gradient - mean) * scale;
            }
        }
    }

    /// Cross entropy `-ln softmax(row)[target]`; the row is replaced by its gradient times
    /// `weight`.
    pub(crate) fn cross_entropy<F: ModelFloat>(row: &mut [F], target: usize, weight: F) -> F {
        let top = largest(row);
        let target_score = row[target] - top;
        for x in row.iter_mut() {
            *x = (*x - top).exp();
        }
        let mass = sum(row, |x| x);
        let share = weight / mass;
        for x in row.iter_mut() {
            *x *= share;
        }
        row[target] -= weight;
        mass.ln() - target_score
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::cpu::simd::tests::at_every_level;
    use crate::runtime::RandomStream;

    fn draw<F: ModelFloat>(len: usize, name: u64) -> Vec<F> {
        let mut stream = RandomStream::new(&[name]);
        (0..len).map(|_| F::from_f64(3.0 * stream.normal())).collect()
    }

    /// Results of every kernel, on rows with a length that is not a multiple of a vector.
    fn run_all_kernels<F: ModelFloat>(rows: usize, cols: usize) -> Vec<u64> {
        let zeros = |len| vec![F::ZERO; len];
        let (x, dy, weight) = (draw::<F>(rows * cols, 1), draw(rows * cols, 2), draw(cols, 3));
        let (mut normal, mut scale, mut y) = (zeros(x.len()), zeros(rows), zeros(x.len()));
        layer_norm(&x, &weight, &mut normal, &mut scale, &mut y);
        let (mut dx, mut dweight) = (zeros(x.len()), zeros(cols));
        layer_norm_backward(&dy, &x, &weight, &normal, &scale, &mut dx, &mut dweight);
        let (mut derivative, mut activated) = (x.clone(), zeros(x.len()));
        gelu(&mut derivative, &mut activated);
        let mut scaled = dy.clone();
        scale_by(&mut scaled, &derivative);
        let (mut slope, mut approximated) = (x.clone(), zeros(x.len()));
        gelu_tanh(&mut slope, &mut approximated);
        add_to_rows(&mut approximated, &weight);
        let mut row_sum = zeros(cols);
        sum_rows(&approximated, &mut row_sum);
        let mut probs = x.clone();
        causal_softmax(&mut probs, cols, cols - rows.min(cols), F::from_f64(0.3));
        let mut dscores = dy.clone();
        causal_softmax_backward(&mut dscores, &probs, cols, F::from_f64(0.3));
        let mut transposed = zeros(x.len());
        transpose(&x, cols, &mut transposed);
        let mut rectified = x.clone();
        bias_relu(&mut rectified, weight[0]);
        relu_backward(&mut rectified, &dy);
        let mut scores = x[..cols].to_vec();
        let loss = cross_entropy(&mut scores, cols / 2, F::ONE);
        let sums = [loss, total(&x)];
        let results =
            [normal, scale, y, dx, dweight, derivative, activated, scaled, probs, dscores];
        let more = slope.into_iter().chain(approximated).chain(row_sum);
        let results = results
            .concat()
            .into_iter()
            .chain(more)
            .collect::<Vec<_>>()
            .into_iter()
            .chain(transposed)
            .chain(rectified)
            .chain(scores);
        results.chain(sums).map(|x| x.to_f64().to_bits()).collect()
    }

    #[test]
    fn kernels_give_the_same_bits_on_every_instruction_set() {
        for (rows, cols) in [(1, 1), (3, 7), (5, 16), (17, 65), (64, 130)] {
            let single = at_every_level(|| run_all_kernels::<f32>(rows, cols));
            assert!(single.iter().all(|bits| *bits == single[0]), "f32, {rows} × {cols}");
            let double = at_every_level(|| run_all_kernels::<f64>(rows, cols));
            assert!(double.iter().all(|bits| *bits == double[0]), "f64, {rows} × {cols}");
        }
    }

    #[test]
    fn gelu_matches_known_values() {
        // x·Φ(x) of 0, 1, -1, 3, -5, from tables of the normal distribution.
        let expected = [
            0.0,
            0.841_344_746_068_543,
            -0.158_655_253_931_457,
            2.995_950_305_905_11,
            -1.433_257_859_395_97e-6,
        ];
        let mut x = [0.0_f64, 1.0, -1.0, 3.0, -5.0];
        let mut y = [0.0; 5];
        gelu(&mut x, &mut y);
        for (found, expected) in y.iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-13 * expected.abs(), "{found} for {expected}");
        }
    }

    #[test]
    fn gelu_of_gpt2_matches_its_definition() {
        for at in -400..=400 {
            let point = f64::from(at) / 10.0;
            let u = (2.0 / std::f64::consts::PI).sqrt() * (point + 0.044_715 * point.powi(3));
            let slope =
                (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 3.0 * 0.044_715 * point * point);
            let expected = 0.5 * point * (1.0 + u.tanh());
            let derivative =
                0.5 * (1.0 + u.tanh()) + 0.5 * point * slope * (1.0 - u.tanh() * u.tanh());
            let (mut x, mut y) = ([point], [0.0]);
            gelu_tanh(&mut x, &mut y);
            assert!((y[0] - expected).abs() <= 1e-12 * (1.0 + expected.abs()), "{point}: {}", y[0]);
            assert!((x[0] - derivative).abs() <= 1e-11, "{point}: {} for {derivative}", x[0]);
            let (mut x, mut y) = ([point as f32], [0.0]);
            gelu_tanh(&mut x, &mut y);
            assert!((f64::from(y[0]) - expected).abs() <= 3e-6 * (1.0 + expected.abs()), "{point}");
            assert!(x[0].is_finite());
        }
    }

    #[test]
    fn causal_softmax_masks_later_keys() {
        let mut scores = draw::<f32>(4 * 20, 9);
        causal_softmax(&mut scores, 20, 16, 1.0);
        for (i, row) in scores.chunks_exact(20).enumerate() {
            let (visible, masked) = row.split_at(17 + i);
            assert!((visible.iter().sum::<f32>() - 1.0).abs() < 1e-6);
            assert!(masked.iter().all(|&x| x == 0.0), "{masked:?}");
        }
    }
}
