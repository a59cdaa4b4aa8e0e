//! Launches of the kernels that are limited by memory, with the bytes that each of them should move.
//!
//! The emulated device of the tests counts these bytes; on a GPU the launches are timed. Their numbers are zeros: the results
//! are not looked at.

use crate::base::order;
use crate::cuda::device::KernelArgument::{F32, I32, U32};
use crate::cuda::kernels::{
    Activation, AttentionShape, DeviceAdam, DeviceStep, ElementType, HalfType, HeadWidth, Kernel,
    KernelLaunch, KernelProgram, KernelTraffic, RowParts, RowShape, TokenShape,
};
use crate::runtime::kernel_checks::case::KernelCase;

/// Shape of a GPT whose kernels are launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficShape {
    /// Sequences.
    pub batch: u32,
    /// Tokens of a sequence.
    pub length: u32,
    /// Attention heads of 64 features.
    pub heads: u32,
    /// Different tokens; the logits of 64 tokens more are padding.
    pub vocabulary: u32,
    /// Tokens whose logits are in memory.
    pub classified: u32,
    /// Parameters, whose gradient is normed and which an optimizer updates.
    pub parameters: u64,
    /// Type in which the model computes, one of 16 bits.
    pub half: HalfType,
}

/// A launch and its bytes.
#[derive(Clone, Debug)]
pub struct TrafficCase {
    /// The launch.
    pub case: KernelCase,
    /// Bytes that it should read and write.
    pub traffic: KernelTraffic,
}

impl KernelCase {
    fn with(self, traffic: KernelTraffic) -> TrafficCase {
        TrafficCase { case: self, traffic }
    }
}

impl TrafficShape {
    fn element(self) -> ElementType {
        ElementType::Half(self.half)
    }

    fn width(self) -> u32 {
        self.heads * HeadWidth::W64.features()
    }

    fn tokens(self) -> u32 {
        self.batch * self.length
    }

    /// Activations that are so many times as wide as the model.
    fn rows(self, times: u32) -> RowShape {
        RowShape { rows: self.tokens(), width: times * self.width(), element: self.element() }
    }

    fn attention(self) -> AttentionShape {
        let Self { batch, length, heads, .. } = self;
        AttentionShape { batch, length, heads, width: HeadWidth::W64 }
    }

    /// Tokens as a batch has them: all words of the vocabulary in turn.
    fn token_list(self) -> Vec<u32> {
        (0..self.tokens()).map(|token| token % self.vocabulary).collect()
    }

    fn token_shape(self) -> TokenShape {
        let different = self.vocabulary.min(self.tokens());
        let (width, element) = (self.width(), self.element());
        TokenShape { batch: self.batch, length: self.length, different, width, element }
    }

    fn case(
        self,
        program: fn(ElementType) -> KernelProgram,
        kernel: Kernel,
        launch: KernelLaunch,
    ) -> KernelCase {
        KernelCase::new(program(self.element()), kernel, launch)
    }

    /// Launches of all kernels whose time is that of their memory, in the order of a step.
    pub fn cases(self) -> Vec<TrafficCase> {
        let mut all = self.embedding_cases();
        all.extend(self.row_cases());
        all.extend(self.attention_cases());
        all.extend(self.softmax_cases());
        all.extend(self.parameter_cases());
        all
    }

    fn embedding_cases(self) -> Vec<TrafficCase> {
        let shape = self.token_shape();
        let [batch, length, width] =
            [self.batch, self.length, self.width()].map(|size| size as usize);
        let features = |rows: usize| rows * width * self.element().bytes();
        let tokens = self.token_list();
        let elements = u64::from(self.tokens()) * u64::from(self.width());
        let embed = KernelLaunch::elementwise(elements, self.element());
        let embed = self.case(KernelProgram::Embedding, Kernel::Embed, embed).memory(&tokens);
        let embed = embed.zeros(features(self.vocabulary as usize)).zeros(features(length));
        let embed = embed.zeros(features(tokens.len())).ints([tokens.len(), length, width]);
        let of_positions = KernelLaunch::elementwise((length * width) as u64, self.element());
        let positions = Kernel::EmbedBackwardPositions;
        let positions = self.case(KernelProgram::Embedding, positions, of_positions);
        let positions = positions.zeros(features(tokens.len())).zeros(length * width * 4);
        let positions = positions.ints([batch, length, width]);
        let mut sorted: Vec<u32> = (0..self.tokens()).collect();
        order::sort_by_key(&mut sorted, |row| tokens[*row as usize]);
        let is_start = |at: &usize| {
            *at == 0 || tokens[sorted[*at] as usize] != tokens[sorted[*at - 1] as usize]
        };
        let starts = (0..tokens.len()).filter(is_start).chain([tokens.len()]);
        let starts: Vec<u32> = starts.map(|at| at as u32).collect();
        let launch =
            KernelLaunch::embed_backward_tokens(shape.different, self.width(), self.element());
        let rows = self.case(KernelProgram::Embedding, Kernel::EmbedBackwardTokens, launch);
        let rows =
            rows.zeros(features(tokens.len())).memory(&tokens).memory(&sorted).memory(&starts);
        let rows = rows.zeros(self.vocabulary as usize * width * 4).ints([width]);
        vec![
            embed.with(KernelTraffic::embed(shape)),
            positions.with(KernelTraffic::embed_backward_positions(shape)),
            rows.with(KernelTraffic::embed_backward_tokens(shape)),
        ]
    }

    fn row_cases(self) -> Vec<TrafficCase> {
        let mut all = self.norm_cases();
        let wide = self.rows(4);
        let count = u64::from(wide.rows) * u64::from(wide.width);
        let bytes = count as usize * 2;
        let launch = KernelLaunch::elementwise(count, self.element());
        let gelu = |element| KernelProgram::Activation(Activation::GeluTanh, element);
        let forward = self.case(gelu, Kernel::ActivationForward, launch).zeros(bytes).zeros(bytes);
        let backward = self.case(gelu, Kernel::ActivationBackward, launch);
        let backward = backward.zeros(bytes).zeros(bytes).zeros(bytes);
        let bias = self.case(gelu, Kernel::BiasActivation, launch).zeros(bytes);
        let bias = bias.zeros(wide.width as usize * 2).zeros(bytes);
        let sizes = [wide.rows as usize, wide.width as usize];
        let parts = RowParts::of_bias(wide.rows);
        let launch = KernelLaunch::bias_backward(wide.rows, wide.width, self.element());
        let sums = self.case(KernelProgram::Fold, Kernel::BiasBackward, launch).zeros(bytes);
        let sums = sums.zeros(parts.parts as usize * sizes[1] * 4);
        let sums = sums.ints([sizes[0], parts.rows_of_part as usize, sizes[1]]);
        all.extend([
            forward.count(count as usize).with(KernelTraffic::activation_forward(wide)),
            backward.count(count as usize).with(KernelTraffic::activation_backward(wide)),
            bias.ints(sizes).with(KernelTraffic::bias_activation(wide, false)),
            sums.with(KernelTraffic::bias_backward(wide)),
            self.fold_case(parts.parts, wide.width),
            self.classifier_case(),
        ]);
        all
    }

    fn norm_cases(self) -> Vec<TrafficCase> {
        let shape = self.rows(1);
        let [rows, width] = [shape.rows, shape.width].map(|size| size as usize);
        let bytes = rows * width * 2;
        let launch = KernelLaunch::warp_for_each_row(shape.rows);
        let parameters = |case: KernelCase| case.zeros(width * 2).zeros(width * 2);
        let statistics = |case: KernelCase| case.zeros(rows * 4).zeros(rows * 4);
        let forward = self.case(KernelProgram::Norm, Kernel::NormForward, launch).zeros(bytes);
        let forward = statistics(parameters(forward).zeros(bytes)).ints([rows, width]);
        let fused = self.case(KernelProgram::Norm, Kernel::ResidualNormForward, launch);
        let fused = parameters(fused.zeros(bytes).zeros(bytes)).zeros(bytes).zeros(bytes);
        let fused = statistics(fused).ints([rows, width]);
        let parts = RowParts::of_norm(shape.rows);
        let launch = KernelLaunch::norm_backward(shape.rows, shape.width);
        let backward = self.case(KernelProgram::Norm, Kernel::NormBackward, launch);
        let backward = statistics(backward.zeros(bytes).zeros(bytes).zeros(width * 2));
        // The gradient of the skip connection is replaced, as in a model.
        let backward = backward.zeros(bytes).same_memory(5);
        let backward = backward.zeros(parts.parts as usize * 2 * width * 4);
        let backward = backward.ints([rows, parts.rows_of_part as usize, width]);
        vec![
            forward.with(KernelTraffic::norm_forward(shape)),
            fused.with(KernelTraffic::residual_norm_forward(shape)),
            backward.with(KernelTraffic::norm_backward(shape)),
        ]
    }

    fn fold_case(self, parts: u32, columns: u32) -> TrafficCase {
        let bytes = columns as usize * 4;
        let fold = self.case(KernelProgram::Fold, Kernel::Fold, KernelLaunch::fold(columns));
        let fold = fold.zeros(parts as usize * bytes).zeros(bytes);
        let fold = fold.ints([parts, columns, columns].map(|size| size as usize));
        fold.with(KernelTraffic::fold(parts, columns))
    }

    fn classifier_case(self) -> TrafficCase {
        let (rows, width) = (self.classified, self.vocabulary + 64);
        let launch = KernelLaunch::classifier(rows, width, self.element());
        let shape = RowShape { rows, width, element: self.element() };
        let [rows, width] = [rows, width].map(|size| size as usize);
        let case = self.case(KernelProgram::Classifier, Kernel::Classifier, launch);
        let case = case.zeros(rows * width * 2).zeros(rows * 4).zeros(rows * 4).zeros(4);
        let case = case.scalar(F32(1.0)).ints([self.vocabulary as usize, width]);
        case.with(KernelTraffic::classifier(shape))
    }

    fn attention_cases(self) -> Vec<TrafficCase> {
        let shape = self.attention();
        let bytes = self.tokens() as usize * self.width() as usize * 2;
        let statistics = shape.rows() as usize * 4;
        let program = |half| KernelProgram::Attention(HeadWidth::W64, half);
        let case = |kernel, launch| KernelCase::new(program(self.half), kernel, launch);
        let sizes = [self.length as usize, self.heads as usize];
        let forward = case(Kernel::AttentionForward, shape.forward()).zeros(3 * bytes);
        let forward = forward.zeros(bytes).zeros(statistics).ints(sizes);
        let launch = KernelLaunch::warp_for_each_row(shape.rows());
        let delta = case(Kernel::AttentionDelta, launch).zeros(bytes).zeros(bytes);
        let delta = delta.zeros(statistics).ints(sizes).count(shape.rows() as usize);
        let backward = |kernel, launch| {
            let case = case(kernel, launch).zeros(3 * bytes).zeros(bytes).zeros(statistics);
            let case = case.zeros(statistics).zeros(3 * bytes).ints(sizes);
            case.scalar(F32(0.125)).scalar(F32(0.125))
        };
        let kv = backward(Kernel::AttentionBackwardKv, shape.backward_kv());
        let q = backward(Kernel::AttentionBackwardQ, shape.backward_q());
        vec![
            forward.scalar(F32(0.125)).with(shape.forward_traffic()),
            delta.with(shape.delta_traffic()),
            kv.with(shape.backward_kv_traffic()),
            q.with(shape.backward_q_traffic()),
        ]
    }

    /// What is between the products of one head of all sequences.
    fn softmax_cases(self) -> Vec<TrafficCase> {
        let shape = RowShape { width: self.length, ..self.rows(1) };
        let stride = self.length.next_multiple_of(self.element().pack()) as usize;
        let [rows, length] = [shape.rows, shape.width].map(|size| size as usize);
        let launch = KernelLaunch::warp_for_each_row(shape.rows);
        let case = |kernel| {
            let case = self.case(KernelProgram::Softmax, kernel, launch).zeros(rows * stride * 4);
            let case = case.zeros(rows * stride * 2).scalar(F32(0.125));
            case.ints([rows, length, stride])
        };
        let traffic = KernelTraffic::causal_softmax(shape);
        let of_backward = KernelTraffic::causal_softmax_backward(shape);
        vec![
            case(Kernel::CausalSoftmax).with(traffic),
            case(Kernel::CausalSoftmaxBackward).with(of_backward),
        ]
    }

    fn parameter_cases(self) -> Vec<TrafficCase> {
        let count = self.parameters;
        let shape = RowShape { rows: 1, width: count as u32, element: self.element() };
        let floats = count as usize * 4;
        let each = KernelLaunch::elementwise(count, self.element());
        let convert = |kernel| KernelCase::new(KernelProgram::Convert(self.half), kernel, each);
        let sums = count.div_ceil(1024);
        let squares = KernelLaunch::block_squares(count);
        let squares = self.case(KernelProgram::Optimizer, Kernel::BlockSquares, squares);
        let folded = KernelLaunch::fold_squares(sums as u32);
        let folded = self.case(KernelProgram::Optimizer, Kernel::FoldSquares, folded);
        let folded = folded.zeros(sums as usize * 8).zeros(sums.div_ceil(32) as usize * 8);
        let older = self.case(KernelProgram::Fold, Kernel::AddOlder, each);
        let divide = self.case(KernelProgram::Fold, Kernel::DivideAll, each).zeros(floats);
        let divide = divide.scalar(F32(2.0));
        let mut all = vec![
            convert(Kernel::NarrowAll)
                .zeros(floats)
                .zeros(floats / 2)
                .count(count as usize)
                .with(KernelTraffic::narrow_all(shape)),
            convert(Kernel::WidenAll)
                .zeros(floats / 2)
                .zeros(floats)
                .count(count as usize)
                .with(KernelTraffic::widen_all(shape)),
            squares
                .zeros(floats)
                .zeros(sums as usize * 8)
                .count(count as usize)
                .with(KernelTraffic::block_squares(count)),
            folded.count(sums as usize).with(KernelTraffic::fold_squares(sums)),
            older
                .zeros(floats)
                .zeros(floats)
                .count(count as usize)
                .with(KernelTraffic::add_older(count)),
            divide.count(count as usize).with(KernelTraffic::divide_all(count)),
        ];
        all.extend(self.optimizer_cases());
        all
    }

    fn optimizer_cases(self) -> Vec<TrafficCase> {
        let (count, element) = (self.parameters, self.element());
        let launch = KernelLaunch::elementwise(count, element);
        let step = DeviceStep { applied: 2, factor: 1.0, is_finite: 1, norm: 1.0 };
        let ends = [count];
        // Parameters and states, the gradient, the copy, the decision on the step.
        let case = |kernel, states: usize| {
            let case = self.case(KernelProgram::Optimizer, kernel, launch);
            let case = (0..states + 2).fold(case, |case, _| case.zeros(count as usize * 4));
            case.zeros(count as usize * 2).memory(&[step])
        };
        let numbers =
            |case: KernelCase, count| (0..count).fold(case, |case, _| case.scalar(F32(0.5)));
        let ranges = |case: KernelCase| case.memory(&ends).scalar(I32(1));
        let adam = ranges(case(Kernel::Adam, 2).memory(&[DeviceAdam::default()]));
        let sgd = numbers(ranges(case(Kernel::Sgd, 1)), 3);
        let sgd = numbers(sgd.scalar(U32(0)), 1);
        let lion = numbers(ranges(case(Kernel::Lion, 1)), 6);
        vec![
            numbers(adam, 2).count(count as usize).with(KernelTraffic::adam(count, 1, element)),
            sgd.count(count as usize).with(KernelTraffic::sgd(count, 1, element)),
            lion.count(count as usize).with(KernelTraffic::lion(count, 1, element)),
        ]
    }
}
