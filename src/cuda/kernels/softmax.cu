// Causal softmax of the scores of attention, and the gradient of the scores: what is between the products of attention that
// has no kernel of its own. Token i of a sequence sees the tokens up to i. A warp has a row: the scores of a token. Order of
// each sum: a lane adds its packs, every 32nd, from left to right; then the lanes.

// Below every score, and finite: the difference of two of them is a number.
constexpr float LOW = -1e30f;

// The largest value of the lanes, which all lanes get.
DEV float warp_max(float value) {
#pragma unroll
    for (int mask = WARP / 2; 0 < mask; mask /= 2)
        value = fmaxf(value, shuffle_xor(value, mask));
    return value;
}

// Scores of a pack that token `token` sees; the others are LOW.
DEV void load_seen(float (&to)[PACK], const float *scores, int column, int token, int stride) {
    load_floats(to, scores, column, stride);
#pragma unroll
    for (int i = 0; i < PACK; i++)
        to[i] = column + i <= token ? to[i] : LOW;
}

// probabilities = softmax(scores · scale / log₂ e). scores: rows × stride, f32; probabilities: rows × stride, 0 for what
// a token does not see and in the padding. Every `length` rows are a sequence; stride: `length` rounded up to packs.
KERNEL void causal_softmax(const float *scores, element *probabilities, float scale, int rows, int length,
                           int stride) {
    const int row = (int)(thread_of_launch() / WARP), token = row % length;
    const int first = threadIdx.x % WARP * PACK;
    if (rows <= row)
        return;
    scores += (u64)row * stride;
    probabilities += (u64)row * stride;
    float top = LOW, sum = 0.f, value[PACK];
    for (int column = first; column <= token; column += WARP * PACK) {
        load_seen(value, scores, column, token, stride);
#pragma unroll
        for (int i = 0; i < PACK; i++)
            top = fmaxf(top, value[i]);
    }
    top = warp_max(top);
    for (int column = first; column <= token; column += WARP * PACK) {
        load_seen(value, scores, column, token, stride);
#pragma unroll
        for (int i = 0; i < PACK; i++)
            sum += exp2_fast((value[i] - top) * scale);
    }
    const float share = 1.f / warp_sum(sum);
    for (int column = first; column < stride; column += WARP * PACK) {
        if (column <= token)
            load_seen(value, scores, column, token, stride);
#pragma unroll
        for (int i = 0; i < PACK; i++)
            value[i] = column + i <= token ? exp2_fast((value[i] - top) * scale) * share : 0.f;
        store_pack(probabilities + column, value);
    }
}

// Replaces probabilities by the gradients of the scores: probability · (gradient - Σ probability · gradient) · root.
// gradients: of the probabilities, rows × stride, f32. The other arguments are those of `causal_softmax`. A lane reads
// back only what it has written.
KERNEL void causal_softmax_backward(const float *gradients, element *probabilities, float root, int rows, int length,
                                    int stride) {
    const int row = (int)(thread_of_launch() / WARP), token = row % length;
    const int first = threadIdx.x % WARP * PACK;
    if (rows <= row)
        return;
    gradients += (u64)row * stride;
    probabilities += (u64)row * stride;
    float sum = 0.f, probability[PACK], gradient[PACK];
    for (int column = first; column <= token; column += WARP * PACK) {
        load_pack(probability, probabilities + column);
        load_floats(gradient, gradients, column, stride);
#pragma unroll
        for (int i = 0; i < PACK; i++)
            sum += column + i <= token ? probability[i] * gradient[i] : 0.f;
    }
    const float delta = warp_sum(sum);
    for (int column = first; column <= token; column += WARP * PACK) {
        load_pack(probability, probabilities + column);
        load_floats(gradient, gradients, column, stride);
#pragma unroll
        for (int i = 0; i < PACK; i++)
            probability[i] = column + i <= token ? probability[i] * (gradient[i] - delta) * root : 0.f;
        store_pack(probabilities + column, probability);
    }
}
