//! Attention, forward and backward, against the same in f64.

use crate::cuda::device::KernelArgument;
use crate::cuda::kernels::{
    AttentionShape, ElementType, HalfType, HeadWidth, Kernel, KernelLaunch, KernelProgram,
};

use crate::runtime::data::random::RandomStream;
use crate::runtime::kernel_checks::case::{KernelCase, SEED, draw};
use crate::runtime::kernel_checks::runner::{
    CheckError, KernelRunner, close, same, tolerance, within,
};

const LOG2_E: f64 = std::f64::consts::LOG2_E;

/// Inputs of an attention layer and the launches of its kernels.
pub struct AttentionCase {
    shape: AttentionShape,
    half: HalfType,
    qkv: Vec<f64>,
    dout: Vec<f64>,
}

/// What the kernels compute: output, log₂ of the sums, products with the gradient, and the gradient.
struct Computed {
    out: Vec<f64>,
    lse: Vec<f64>,
    /// Of the reference: none, because they are products of rounded outputs.
    delta: Vec<f64>,
    dqkv: Vec<f64>,
}

impl AttentionCase {
    /// Draws the inputs of a layer.
    pub fn draw(random: &mut RandomStream, shape: AttentionShape, half: HalfType) -> Self {
        let element = ElementType::Half(half);
        let len = (shape.rows() * shape.width.features()) as usize;
        let (qkv, dout) = (draw(random, element, 3 * len, 2.0), draw(random, element, len, 1.0));
        Self { shape, half, qkv, dout }
    }

    fn element(&self) -> ElementType {
        ElementType::Half(self.half)
    }

    /// A launch with the arguments that all kernels have at their end.
    fn case(&self, kernel: Kernel, launch: KernelLaunch) -> KernelCase {
        KernelCase::new(KernelProgram::Attention(self.shape.width, self.half), kernel, launch)
    }

    fn root(&self) -> f64 {
        1.0 / f64::from(self.shape.width.features()).sqrt()
    }

    fn with_shape(&self, case: KernelCase) -> KernelCase {
        let case = case.ints([self.shape.length as usize, self.shape.heads as usize]);
        case.scalar(KernelArgument::F32((self.root() * LOG2_E) as f32))
    }

    /// Memory: qkv, out, lse.
    pub fn forward(&self) -> KernelCase {
        let case = self.case(Kernel::AttentionForward, self.shape.forward());
        let case = case.elements(self.element(), &self.qkv).unwritten(self.dout.len() * 2);
        self.with_shape(case.unwritten(self.shape.rows() as usize * 4))
    }

    fn delta(&self, out: &[f64]) -> KernelCase {
        let rows = self.shape.rows();
        self.case(Kernel::AttentionDelta, KernelLaunch::warp_for_each_row(rows))
            .elements(self.element(), out)
            .elements(self.element(), &self.dout)
            .unwritten(rows as usize * 4)
            .ints([self.shape.length as usize, self.shape.heads as usize])
            .count(rows as usize)
    }

    /// The kernel of the products, with values in place of outputs.
    pub fn delta_of_inputs(&self) -> KernelCase {
        self.delta(&self.qkv[..self.dout.len()])
    }

    /// Memory: qkv, dout, lse, delta, dqkv, which begins as `dqkv`.
    fn backward(&self, kernel: Kernel, lse: &[f32], delta: &[f32], dqkv: &[u8]) -> KernelCase {
        let launch = match kernel {
            Kernel::AttentionBackwardKv => self.shape.backward_kv(),
            _ => self.shape.backward_q(),
        };
        let case = self.case(kernel, launch).elements(self.element(), &self.qkv);
        let case = case.elements(self.element(), &self.dout).memory(lse).memory(delta).memory(dqkv);
        self.with_shape(case).scalar(KernelArgument::F32(self.root() as f32))
    }

    /// The backward kernels, with the correct results of the kernels before them.
    pub fn backward_cases(
        &self,
        runner: &mut dyn KernelRunner,
    ) -> Result<[KernelCase; 2], CheckError> {
        let forward = self.forward().run(runner)?;
        let out = forward.elements(1, self.element());
        let delta = self.delta(&out).run(runner)?.get::<f32>(2);
        let lse = forward.get::<f32>(2);
        let dqkv = vec![0xff; self.qkv.len() * 2];
        let kernels = [Kernel::AttentionBackwardKv, Kernel::AttentionBackwardQ];
        Ok(kernels.map(|kernel| self.backward(kernel, &lse, &delta, &dqkv)))
    }

    fn compute(&self, runner: &mut dyn KernelRunner) -> Result<Computed, CheckError> {
        let element = self.element();
        let forward = self.forward().run(runner)?;
        let (out, lse) = (forward.elements(1, element), forward.get::<f32>(2));
        let delta = self.delta(&out).run(runner)?.get::<f32>(2);
        let dqkv = vec![0xff; self.qkv.len() * 2];
        let kv = self.backward(Kernel::AttentionBackwardKv, &lse, &delta, &dqkv);
        let dqkv = kv.run(runner)?.get::<u8>(4);
        let q = self.backward(Kernel::AttentionBackwardQ, &lse, &delta, &dqkv);
        let dqkv = q.run(runner)?.elements(4, element);
        let wide = |values: Vec<f32>| values.into_iter().map(f64::from).collect();
        Ok(Computed { out, lse: wide(lse), delta: wide(delta), dqkv })
    }

    /// The same in f64.
    fn reference(&self) -> Computed {
        let (rows, size) = (self.shape.rows() as usize, self.dout.len());
        let zeros = |len| vec![0.0; len];
        let mut found = Computed {
            out: zeros(size),
            lse: zeros(rows),
            delta: Vec::new(),
            dqkv: zeros(3 * size),
        };
        for batch in 0..self.shape.batch as usize {
            for head in 0..self.shape.heads as usize {
                for query in 0..self.shape.length as usize {
                    self.reference_of_query(&mut found, [batch, head, query]);
                }
            }
        }
        found
    }

    /// Σ out · dout of every head and token.
    fn products(&self, out: &[f64]) -> Vec<f64> {
        let AttentionShape { length, heads, width, .. } = self.shape;
        let [length, heads, width] = [length, heads, width.features()].map(|size| size as usize);
        let product = |row: usize| {
            let (batch, head, token) = (row / length / heads, row / length % heads, row % length);
            let start = ((batch * length + token) * heads + head) * width;
            (start..start + width).map(|at| out[at] * self.dout[at]).sum()
        };
        (0..self.shape.rows() as usize).map(product).collect()
    }

    /// Range of the features of a token in qkv: part 0, 1 or 2 is its query, key or value.
    fn features(&self, [batch, head, token]: [usize; 3], part: usize) -> std::ops::Range<usize> {
        let AttentionShape { length, heads, width, .. } = self.shape;
        let (heads, width) = (heads as usize, width.features() as usize);
        let start = (((batch * length as usize + token) * 3 + part) * heads + head) * width;
        start..start + width
    }

    /// The numbers of qkv that belong to queries, keys or values: part 0, 1 or 2.
    fn part(&self, qkv: &[f64], part: usize) -> Vec<f64> {
        let width = (self.shape.heads * self.shape.width.features()) as usize;
        qkv.chunks(width).skip(part).step_by(3).flatten().copied().collect()
    }

    fn reference_of_query(&self, found: &mut Computed, [batch, head, query]: [usize; 3]) {
        let AttentionShape { length, heads, width, .. } = self.shape;
        let [length, heads, width] = [length, heads, width.features()].map(|size| size as usize);
        let at = |token, part| self.features([batch, head, token], part);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let start = ((batch * length + query) * heads + head) * width;
        let row = (batch * heads + head) * length + query;
        let dout = &self.dout[start..start + width];
        let q = &self.qkv[at(query, 0)];
        let score = |key| dot(q, &self.qkv[at(key, 1)]) * self.root();
        let scores: Vec<f64> = (0..=query).map(score).collect();
        let top = scores.iter().copied().fold(f64::MIN, f64::max);
        let mass: f64 = scores.iter().map(|score| (score - top).exp()).sum();
        found.lse[row] = (top + mass.ln()) * LOG2_E;
        let probability = |key: usize| (scores[key] - top).exp() / mass;
        let dprobability = |key| dot(dout, &self.qkv[at(key, 2)]);
        let delta: f64 = (0..=query).map(|key| probability(key) * dprobability(key)).sum();
        for key in 0..=query {
            let p = probability(key);
            let dscore = p * (dprobability(key) - delta) * self.root();
            for i in 0..width {
                let value = |part| self.qkv[at(key, part).start + i];
                found.out[start + i] += p * value(2);
                found.dqkv[at(query, 0).start + i] += dscore * value(1);
                found.dqkv[at(key, 1).start + i] += dscore * q[i];
                found.dqkv[at(key, 2).start + i] += p * dout[i];
            }
        }
    }
}

fn check(
    runner: &mut dyn KernelRunner,
    [batch, length, heads]: [u32; 3],
    width: HeadWidth,
    half: HalfType,
) -> Result<(), CheckError> {
    let shape = AttentionShape { batch, length, heads, width };
    let attention = AttentionCase::draw(&mut RandomStream::new(&[SEED]), shape, half);
    let (found, expect) = (attention.compute(runner)?, attention.reference());
    let element = ElementType::Half(half);
    let features = width.features();
    let name =
        |what| format!("{what} of {batch} × {length} tokens with {heads} heads of {features}");
    close(&name("out"), element, &found.out, &expect.out)?;
    close(&name("lse"), ElementType::F32, &found.lse, &expect.lse)?;
    let delta = attention.products(&found.out);
    close(&name("delta"), ElementType::F32, &found.delta, &delta)?;
    for (part, what) in ["dq", "dk", "dv"].into_iter().enumerate() {
        let (found, expect) =
            [&found.dqkv, &expect.dqkv].map(|dqkv| attention.part(dqkv, part)).into();
        // Of a single token, the gradients of query and key are 0; those of a few nearly cancel.
        if length == 1 && what != "dv" {
            same(&name(what), found.iter().all(|x| x.abs() < 1e-2))?;
        } else {
            let limit = if length < 16 { 2.0 } else { 1.0 } * tolerance(element);
            within(&name(what), limit, &found, &expect)?;
        }
    }
    Ok(())
}

pub(super) fn check_attention(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    for width in HeadWidth::ALL {
        for half in HalfType::ALL {
            // Both buffers are used a second time from 193 tokens on.
            check(runner, [1, 256, 2], width, half)?;
        }
        check(runner, [2, 65, 3], width, HalfType::Bf16)?;
        check(runner, [1, 300, 1], width, HalfType::Bf16)?;
    }
    Ok(())
}

pub(super) fn check_lengths(runner: &mut dyn KernelRunner) -> Result<(), CheckError> {
    for width in HeadWidth::ALL {
        for length in [1, 9, 15, 33, 63, 64, 127, 129] {
            check(runner, [2, length, 2], width, HalfType::Bf16)?;
        }
    }
    Ok(())
}
