// Softmax and cross entropy of the logits of a token, and the gradient of its loss.

constexpr float LOG2_E = 1.44269504088896341f, LN_2 = 0.693147180559945309f;
// Below every logit, and finite: the difference of two of them is a number.
constexpr float LOW = -1e30f;

// Σ exp(x - top) over some logits, and their largest one.
struct Mass { float top, sum; };

DEV float power(float x) { return exp2_fast(x * LOG2_E); }
DEV Mass merged(Mass a, Mass b) {
    const float top = fmaxf(a.top, b.top);
    return {top, a.sum * power(a.top - top) + b.sum * power(b.top - top)};
}
// The mass over all lanes, which all lanes get. `merged` is symmetric, so they get the same bits.
DEV Mass warp_mass(Mass mass) {
#pragma unroll
    for (int mask = WARP / 2; 0 < mask; mask /= 2)
        mass = merged(mass, {shuffle_xor(mass.top, mask), shuffle_xor(mass.sum, mask)});
    return mass;
}

// Mass of every `threads`-th pack of a row, from pack `first` on.
DEV Mass thread_mass(const element *row, int first, int threads, int vocabulary) {
    Mass mass = {LOW, 0.f};
    for (int column = first * PACK; column < vocabulary; column += threads * PACK) {
        float value[PACK];
        load_pack(value, row + column);
        float top = mass.top;
#pragma unroll
        for (int i = 0; i < PACK; i++) {
            value[i] = column + i < vocabulary ? value[i] : LOW;
            top = fmaxf(top, value[i]);
        }
        mass.sum *= power(mass.top - top);
        mass.top = top;
#pragma unroll
        for (int i = 0; i < PACK; i++)
            mass.sum += column + i < vocabulary ? power(value[i] - top) : 0.f;
    }
    return mass;
}

// logits: rows × stride; columns from `vocabulary` to `stride`, a multiple of PACK, are padding: they are not part
// of the sum. Replaced by the gradient (softmax - [column = target]) · share · loss_scale, which is 0 in the
// padding. losses: rows, f32: log Σ exp(logits) - logits[target], without share and scale; loss_scale: one number
// in memory. A block has a row; the last rows come first, because the matrix product before has left them in the
// cache. Order of each sum: a thread's packs, the lanes of a warp, the warps. Shared: 2 × 32 floats.
KERNEL void LAUNCH_BOUNDS(1024)
    classifier(element *logits, const u32 *targets, float *losses, const float *loss_scale, float share, int vocabulary,
               int stride) {
    SHARED_MEMORY;
    Mass *masses = (Mass *)shared_memory;
    const int row = gridDim.x - 1 - blockIdx.x, lane = threadIdx.x % WARP, target = (int)targets[row];
    element *logit = logits + (u64)row * stride;
    const Mass of_warp = warp_mass(thread_mass(logit, threadIdx.x, blockDim.x, vocabulary));
    if (lane == 0)
        masses[threadIdx.x / WARP] = of_warp;
    const float target_logit = widen(logit[target]);
    // After it, no thread reads what another one overwrites.
    SYNC();
    const int warps = blockDim.x / WARP;
    const Mass mass = warp_mass(lane < warps ? masses[lane] : Mass{LOW, 0.f});
    if (threadIdx.x == 0)
        losses[row] = LN_2 * log2_fast(mass.sum) + mass.top - target_logit;
    const float weight = share * *loss_scale, part = weight / mass.sum;
    for (int column = threadIdx.x * PACK; column < stride; column += blockDim.x * PACK) {
        float value[PACK];
        load_pack(value, logit + column);
#pragma unroll
        for (int i = 0; i < PACK; i++) {
            const float gradient = power(value[i] - mass.top) * part - (column + i == target ? weight : 0.f);
            value[i] = column + i < vocabulary ? gradient : 0.f;
        }
        store_pack(logit + column, value);
    }
}
