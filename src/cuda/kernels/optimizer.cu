// The end of a step: norm of the gradient, clipping, loss scale, and the update of the parameters. The host reads
// none of it. All numbers have the bits of `runtime::flat::norm` and `runtime::optim` on a CPU: the same operations
// in the same order, none of them fused.

// What a step decides for all parameters.
struct Step {
    double norm;    // of the gradient, without the loss scale
    u64 applied;    // number of steps that have changed the parameters, with this one
    float factor;   // of each gradient: clipping, and the inverse of the loss scale
    u32 is_finite;  // 0: the step changes nothing
};

// Numbers of a step of Adam that are the same for all elements.
struct AdamNumbers {
    float one_minus_beta1, beta2, one_minus_beta2, correction2_root, epsilon, step_size;
};

// State of a dynamic loss scale.
struct LossScale {
    double scale;         // of the next step
    u64 clean_steps;      // since the last overflow
    u32 hysteresis_left;  // overflows, counted down, of which the last one halves the scale
    u32 is_stuck;         // 1 after an overflow at the lowest scale
};

// Elements of a block of the norm, and of its columns; a launch's block has 16 blocks.
constexpr int NORM_BLOCK = 1024, COLUMNS = 16, BLOCKS = 16;

// Sum over the first `lanes` lanes, as the tree that adds neighbours: 0 + 1, 2 + 3, …
template <int LANES> DEV double neighbour_sum(double value) {
#pragma unroll
    for (int mask = 1; mask < LANES; mask *= 2)
        value += shuffle_xor(value, mask);
    return value;
}

// Σ gradient² over a block of the norm, in f64, which begins at `first`; the 16 threads of a block get it. `count`
// elements; those beyond are zeros. Order: 16 columns, then the columns as a tree.
DEV double block_sum(const float *gradient, u64 first, int column, u64 count) {
    double sum = 0.0;
    first += column;
#pragma unroll 8
    for (int row = 0; row < NORM_BLOCK; row += COLUMNS) {
        const double value = first + row < count ? (double)gradient[first + row] : 0.0;
        sum += value * value;
    }
    return neighbour_sum<COLUMNS>(sum);
}

// sums[b] = Σ gradient² over the elements b · 1024 to (b + 1) · 1024: the blocks of shards, which may begin at any of
// them. A launch's block has 16 blocks of the norm; 256 threads.
KERNEL void LAUNCH_BOUNDS(COLUMNS *BLOCKS) block_squares(const float *gradient, double *sums, u64 count) {
    const u64 block = (u64)blockIdx.x * BLOCKS + threadIdx.x / COLUMNS;
    const int column = threadIdx.x % COLUMNS;
    const double sum = block_sum(gradient, block * NORM_BLOCK, column, count);
    if (column == 0 && block * NORM_BLOCK < count)
        sums[block] = sum;
}

// folded[g] = sums[g · 32] + … + sums[g · 32 + 31], where sums beyond `count` are zeros: a level of the fold in
// `decide_step`, by all multiprocessors. A warp has a group.
KERNEL void fold_squares(const double *sums, double *folded, u64 count) {
    const u64 group = thread_of_launch() / WARP, lane = threadIdx.x % WARP, at = group * WARP + lane;
    const double sum = neighbour_sum<WARP>(at < count ? sums[at] : 0.0);
    if (lane == 0 && group * WARP < count)
        folded[group] = sum;
}

// Decides on the step from `count` sums of squares: norm, clipping to `norm_max`, which may be infinite, and
// whether the gradient is finite. loss_scale: the factor of the losses, one number in memory. Order: a tree that
// adds neighbours; zeros fill it up, which changes no bit. One block; shared: ⌈count/32⌉ + ⌈count/1024⌉ doubles.
KERNEL void LAUNCH_BOUNDS(1024)
    decide_step(const double *sums, u64 count, double norm_max, const float *loss_scale, Step *step) {
    SHARED_MEMORY;
    double *to = (double *)shared_memory, *next = to + (count + WARP - 1) / WARP;
    const u64 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    const double *from = sums;
    u64 left = count;
    do {
        const u64 groups = (left + WARP - 1) / WARP;
        for (u64 group = warp; group < groups; group += warps) {
            const u64 at = group * WARP + lane;
            const double sum = neighbour_sum<WARP>(at < left ? from[at] : 0.0);
            if (lane == 0)
                to[group] = sum;
        }
        SYNC();
        left = groups;
        double *const free = from == sums ? next : (double *)from;
        from = to;
        to = free;
    } while (1 < left);
    if (threadIdx.x != 0)
        return;
    const double unscale = 1.0 / (double)*loss_scale, norm = sqrt(from[0]) * unscale;
    const double clip = fmin(norm_max / (norm + 1e-6), 1.0);
    step->norm = norm;
    step->factor = (float)(clip * unscale);
    step->is_finite = norm - norm == 0.0;
    step->applied += step->is_finite;
}

// Number as the unrounded sum of a large and a small part.
struct Double { double high, low; };

DEV Double times(Double a, Double b) {
    const double high = a.high * b.high;
    // The fused operation returns the rounding error of the product exactly.
    const double error = fma(a.high, b.high, -high);
    const double low = error + (a.high * b.low + a.low * b.high);
    const double sum = high + low;
    return {sum, (high - sum) + low};
}
DEV double power(double base, u64 exponent) {
    Double result = {1.0, 0.0}, square = {base, 0.0};
    for (; exponent != 0; exponent >>= 1) {
        if (exponent & 1)
            result = times(result, square);
        square = times(square, square);
    }
    return result.high + result.low;
}

// Numbers of Adam for the step, which depend on the number of steps that were applied. One thread.
KERNEL void prepare_adam(const Step *step, AdamNumbers *numbers, double beta1, double beta2, double epsilon,
                         double rate, u32 has_bias_correction) {
    const double correction1 = has_bias_correction ? 1.0 - power(beta1, step->applied) : 1.0;
    const double correction2 = has_bias_correction ? 1.0 - power(beta2, step->applied) : 1.0;
    numbers->one_minus_beta1 = (float)(1.0 - beta1);
    numbers->beta2 = (float)beta2;
    numbers->one_minus_beta2 = (float)(1.0 - beta2);
    numbers->correction2_root = (float)sqrt(correction2);
    numbers->epsilon = (float)epsilon;
    numbers->step_size = (float)(rate / correction1);
}

// Weight decay by ranges of the parameters: range i ends before element ends[i]; ranges with even numbers decay, the
// others do not. The last range ends at the last element or after it.
struct Decay {
    const u64 *ends;
    int range;
};

// The range that contains an element.
DEV Decay decay_at(const u64 *ends, int ranges, u64 at) {
    int low = 0, high = ranges - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (ends[middle] <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return {ends, low};
}
// Whether an element decays; elements are asked for in their order.
DEV bool decays(Decay &decay, u64 at, u64 count) {
    while (at < count && decay.ends[decay.range] <= at)
        decay.range++;
    return decay.range % 2 == 0;
}

// Gradient times the factor of the step; `l2`, the decay that is part of the gradient, times the parameter.
DEV float scaled(float gradient, float parameter, float factor, float l2) {
    const float product = gradient * factor;
    // A product with 0 would change the sign of a zero, and infinite parameters to NaN.
    return l2 != 0.f ? product + l2 * parameter : product;
}

// Pack of the parameters, and of their copy in the type in which a model computes, which may be null.
DEV void store_parameters(float *parameters, element *copy, const float (&value)[PACK], u64 at, u64 count) {
    store_floats(parameters, value, at, count);
    if (copy)
        store_some(copy, value, at, count);
}

// Updates of `count` parameters, f32, with their states and gradients, f32. `l2` and `shrink`, the factor of a
// parameter, are those of decaying parameters; for the others they are 0 and 1. Nothing changes if the step is not
// finite. A thread has a pack.

// Adam: m, v: running means.
KERNEL void adam(float *parameters, float *m, float *v, const float *gradients, element *copy, const Step *step,
                 const AdamNumbers *numbers, const u64 *decay_ends, int ranges, float l2, float shrink, u64 count) {
    const AdamNumbers adam = *numbers;
    const float factor = step->factor;
    // The interpolation starts from the nearer end, as in torch.
    const bool from_gradient = 0.5f <= adam.one_minus_beta1;
    const float weight = from_gradient ? adam.one_minus_beta1 - 1.f : adam.one_minus_beta1;
    if (!step->is_finite)
        return;
    for (u64 at = thread_of_launch() * PACK; at < count; at += threads_of_launch() * PACK) {
        float p[PACK], g[PACK], mean[PACK], square[PACK];
        load_floats(p, parameters, at, count);
        load_floats(g, gradients, at, count);
        load_floats(mean, m, at, count);
        load_floats(square, v, at, count);
        Decay decay = decay_at(decay_ends, ranges, at);
#pragma unroll
        for (int i = 0; i < PACK; i++) {
            const bool does_decay = decays(decay, at + i, count);
            const float gradient = scaled(g[i], p[i], factor, does_decay ? l2 : 0.f);
            p[i] *= does_decay ? shrink : 1.f;
            mean[i] = (from_gradient ? gradient : mean[i]) + weight * (gradient - mean[i]);
            square[i] = square[i] * adam.beta2 + adam.one_minus_beta2 * gradient * gradient;
            const float root = sqrtf(square[i]) / adam.correction2_root + adam.epsilon;
            p[i] -= adam.step_size * mean[i] / root;
        }
        store_floats(m, mean, at, count);
        store_floats(v, square, at, count);
        store_parameters(parameters, copy, p, at, count);
    }
}

// Gradient descent; sums: running sums of the gradients, null without momentum.
KERNEL void sgd(float *parameters, float *sums, const float *gradients, element *copy, const Step *step,
                const u64 *decay_ends, int ranges, float l2, float momentum, float one_minus_dampening,
                u32 is_nesterov, float rate, u64 count) {
    const float factor = step->factor;
    const bool is_first = step->applied <= 1;
    if (!step->is_finite)
        return;
    for (u64 at = thread_of_launch() * PACK; at < count; at += threads_of_launch() * PACK) {
        float p[PACK], g[PACK], sum[PACK] = {};
        load_floats(p, parameters, at, count);
        load_floats(g, gradients, at, count);
        if (sums)
            load_floats(sum, sums, at, count);
        Decay decay = decay_at(decay_ends, ranges, at);
#pragma unroll
        for (int i = 0; i < PACK; i++) {
            const float gradient = scaled(g[i], p[i], factor, decays(decay, at + i, count) ? l2 : 0.f);
            sum[i] = is_first ? gradient : sum[i] * momentum + one_minus_dampening * gradient;
            const float ahead = is_nesterov ? gradient + momentum * sum[i] : sum[i];
            p[i] -= rate * (sums ? ahead : gradient);
        }
        if (sums)
            store_floats(sums, sum, at, count);
        store_parameters(parameters, copy, p, at, count);
    }
}

// Lion; m: running means.
KERNEL void lion(float *parameters, float *m, const float *gradients, element *copy, const Step *step,
                 const u64 *decay_ends, int ranges, float shrink, float beta1, float one_minus_beta1, float beta2,
                 float one_minus_beta2, float rate, u64 count) {
    const float factor = step->factor;
    if (!step->is_finite)
        return;
    for (u64 at = thread_of_launch() * PACK; at < count; at += threads_of_launch() * PACK) {
        float p[PACK], g[PACK], mean[PACK];
        load_floats(p, parameters, at, count);
        load_floats(g, gradients, at, count);
        load_floats(mean, m, at, count);
        Decay decay = decay_at(decay_ends, ranges, at);
#pragma unroll
        for (int i = 0; i < PACK; i++) {
            const float gradient = g[i] * factor;
            const float direction = mean[i] * beta1 + one_minus_beta1 * gradient;
            const float sign = 0.f < direction ? 1.f : direction < 0.f ? -1.f : 0.f;
            p[i] = p[i] * (decays(decay, at + i, count) ? shrink : 1.f) - rate * sign;
            mean[i] = mean[i] * beta2 + one_minus_beta2 * gradient;
        }
        store_floats(m, mean, at, count);
        store_parameters(parameters, copy, p, at, count);
    }
}

// Sets the scale of the next step, as DeepSpeed does: an overflow halves it after `hysteresis` overflows, `window`
// clean steps in a row double it. loss_scale: the factor of the losses, as f32. One thread.
KERNEL void update_loss_scale(const Step *step, LossScale *state, float *loss_scale, u64 window, u32 hysteresis,
                              u32 is_consecutive, double scale_min) {
    if (step->is_finite) {
        if (is_consecutive)
            state->hysteresis_left = hysteresis;
        if (state->clean_steps != 0 && state->clean_steps % window == 0) {
            state->scale *= 2.0;
            state->hysteresis_left = hysteresis;
        }
        state->clean_steps += 1;
    } else {
        state->clean_steps = 0;
        if (1 < hysteresis && 1 < state->hysteresis_left)
            state->hysteresis_left -= 1;
        else if (state->scale <= scale_min)
            state->is_stuck = 1;
        else
            state->scale = fmax(state->scale / 2.0, scale_min);
    }
    *loss_scale = (float)state->scale;
}
