// Layer norm: y = (x - mean) · scale · weight + bias over each row, scale = 1/√(variance + 10⁻⁵). A warp has a row.
// Order of each sum over a row: a lane adds its packs, every 32nd, from left to right; then the lanes. Widths are
// multiples of PACK; `bias` may be null.

constexpr float NORM_EPSILON = 1e-5f;
// Warps of a block of `norm_backward`.
constexpr int BACKWARD_WARPS = 4;

// Mean and scale of a row, which all lanes get.
DEV void row_statistics(const element *row, int width, float &mean, float &scale) {
    const float share = 1.f / width;
    float sum = 0.f, squares = 0.f, value[PACK];
    for (int column = threadIdx.x % WARP * PACK; column < width; column += WARP * PACK) {
        load_pack(value, row + column);
        for (int i = 0; i < PACK; i++)
            sum += value[i];
    }
    mean = warp_sum(sum) * share;
    for (int column = threadIdx.x % WARP * PACK; column < width; column += WARP * PACK) {
        load_pack(value, row + column);
        for (int i = 0; i < PACK; i++)
            squares += (value[i] - mean) * (value[i] - mean);
    }
    scale = 1.f / sqrtf(warp_sum(squares) * share + NORM_EPSILON);
}

// Normalizes row `row` of x, and keeps its statistics for the backward pass.
DEV void normalize_row(const element *x, const element *weight, const element *bias, element *y, float *means,
                       float *scales, u64 row, int width) {
    float mean, scale;
    row_statistics(x + row * width, width, mean, scale);
    if (threadIdx.x % WARP == 0) {
        means[row] = mean;
        scales[row] = scale;
    }
    for (int column = threadIdx.x % WARP * PACK; column < width; column += WARP * PACK) {
        float value[PACK], factor[PACK], shift[PACK] = {};
        load_pack(value, x + row * width + column);
        load_pack(factor, weight + column);
        if (bias)
            load_pack(shift, bias + column);
        for (int i = 0; i < PACK; i++)
            value[i] = (value[i] - mean) * scale * factor[i] + shift[i];
        store_pack(y + row * width + column, value);
    }
}

// x, y: rows × width; weight, bias: width; means, scales: rows, f32.
KERNEL void norm_forward(const element *x, const element *weight, const element *bias, element *y, float *means,
                         float *scales, int rows, int width) {
    const int row = (int)(thread_of_launch() / WARP);
    if (row < rows)
        normalize_row(x, weight, bias, y, means, scales, row, width);
}

// residual = x + update, rounded, and y = norm(residual). residual: rows × width; it may be x. The other
// arguments are those of `norm_forward`. A lane reads back only what it has written.
KERNEL void residual_norm_forward(const element *x, const element *update, const element *weight,
                                  const element *bias, element *residual, element *y, float *means, float *scales,
                                  int rows, int width) {
    const int row = (int)(thread_of_launch() / WARP);
    if (rows <= row)
        return;
    const u64 first = (u64)row * width;
    for (int column = threadIdx.x % WARP * PACK; column < width; column += WARP * PACK) {
        float value[PACK], change[PACK];
        load_pack(value, x + first + column);
        load_pack(change, update + first + column);
        for (int i = 0; i < PACK; i++)
            value[i] += change[i];
        store_pack(residual + first + column, value);
    }
    normalize_row(residual, weight, bias, y, means, scales, row, width);
}

// Gradient of one row, with share = 1 / width: dx = dskip + ∂, and the row's part of the gradients of weight and
// bias, which are added to `sums`, 2 × width in shared memory. Of pack p, number i is sums[i · packs + p]: lanes
// use different banks.
DEV void row_backward(const element *dy, const element *x, const element *weight, float mean, float scale,
                      const element *dskip, element *dx, float *sums, int width, float share) {
    const int packs = width / PACK;
    float sum = 0.f, slope = 0.f;
#pragma unroll 2
    for (int pack = threadIdx.x % WARP; pack < packs; pack += WARP) {
        float gradient[PACK], normal[PACK], factor[PACK];
        load_pack(gradient, dy + pack * PACK);
        load_pack(normal, x + pack * PACK);
        load_pack(factor, weight + pack * PACK);
#pragma unroll
        for (int i = 0; i < PACK; i++) {
            normal[i] = (normal[i] - mean) * scale;
            sums[i * packs + pack] += gradient[i] * normal[i];
            sums[width + i * packs + pack] += gradient[i];
            sum += gradient[i] * factor[i];
            slope += gradient[i] * factor[i] * normal[i];
        }
    }
    sum = warp_sum(sum) * share;
    slope = warp_sum(slope) * share;
    for (int pack = threadIdx.x % WARP; pack < packs; pack += WARP) {
        float gradient[PACK], normal[PACK], factor[PACK], skip[PACK] = {};
        load_pack(gradient, dy + pack * PACK);
        load_pack(normal, x + pack * PACK);
        load_pack(factor, weight + pack * PACK);
        if (dskip)
            load_pack(skip, dskip + pack * PACK);
#pragma unroll
        for (int i = 0; i < PACK; i++)
            skip[i] += (gradient[i] * factor[i] - sum - (normal[i] - mean) * scale * slope) * scale;
        store_pack(dx + pack * PACK, skip);
    }
}

// Backward pass: dx = dskip + ∂(dy), where `dskip`, the gradient of the skip connection, may be null or dx itself.
// partial: blocks × 2 × width, f32: the gradients of weight and bias over the rows of a block, which `fold` sums.
// Block b has the rows b · rows_of_block to (b + 1) · rows_of_block, its warp w every 4th of them. Order of each
// partial sum: the rows of a warp, then the warps. Shared: 4 × 2 × width floats.
KERNEL void LAUNCH_BOUNDS(BACKWARD_WARPS *WARP)
    norm_backward(const element *dy, const element *x, const element *weight, const float *means, const float *scales,
                  const element *dskip, element *dx, float *partial, int rows, int rows_of_block, int width) {
    SHARED_MEMORY;
    const int warp = threadIdx.x / WARP, packs = width / PACK;
    const float share = 1.f / width;
    float *all = (float *)shared_memory, *own = all + 2 * width * warp;
    // A lane adds to the numbers that it sets to zero here, so no barrier is needed.
    for (int pack = threadIdx.x % WARP; pack < packs; pack += WARP)
        for (int i = 0; i < PACK; i++)
            own[i * packs + pack] = own[width + i * packs + pack] = 0.f;
    const int first = blockIdx.x * rows_of_block;
    const int end = first + rows_of_block < rows ? first + rows_of_block : rows;
    for (int row = first + warp; row < end; row += BACKWARD_WARPS) {
        const u64 at = (u64)row * width;
        const element *skip = dskip ? dskip + at : dskip;
        row_backward(dy + at, x + at, weight, means[row], scales[row], skip, dx + at, own, width, share);
    }
    SYNC();
    for (int at = threadIdx.x; at < 2 * width; at += BACKWARD_WARPS * WARP) {
        float sum = 0.f;
        for (int from = 0; from < BACKWARD_WARPS; from++)
            sum += all[2 * width * from + at];
        const int column = at % width;
        partial[(u64)blockIdx.x * 2 * width + at - column + column % packs * PACK + column / packs] = sum;
    }
}
