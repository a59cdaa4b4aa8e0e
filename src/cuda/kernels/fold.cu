// Sums of rows, in two launches: parts of the rows, then the parts. No atomics: the order of a sum is fixed.

// Warps of a block.
constexpr int FOLD_WARPS = 8;

// partial: parts × width, f32: sums of the columns of dy, rows × width, over the rows of a part; part p has the rows
// p · rows_of_part to (p + 1) · rows_of_part. Blocks are (columns / (32 PACK), parts). Order of each sum: warp w
// adds every 8th row of the part; then the warps. Shared: 8 × 32 × PACK floats.
KERNEL void LAUNCH_BOUNDS(FOLD_WARPS *WARP)
    bias_backward(const element *dy, float *partial, int rows, int rows_of_part, int width) {
    SHARED_MEMORY;
    float *sums = (float *)shared_memory;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, column = (blockIdx.x * WARP + lane) * PACK;
    const int first = blockIdx.y * rows_of_part;
    const int end = first + rows_of_part < rows ? first + rows_of_part : rows;
    float sum[PACK] = {};
    for (int row = first + warp; row < end && column < width; row += FOLD_WARPS) {
        float value[PACK];
        load_pack(value, dy + (u64)row * width + column);
        for (int i = 0; i < PACK; i++)
            sum[i] += value[i];
    }
    for (int i = 0; i < PACK; i++)
        sums[(warp * PACK + i) * WARP + lane] = sum[i];
    SYNC();
    for (int at = threadIdx.x; at < WARP * PACK; at += FOLD_WARPS * WARP) {
        float total = 0.f;
        for (int from = 0; from < FOLD_WARPS; from++)
            total += sums[from * PACK * WARP + at];
        const int to = blockIdx.x * WARP * PACK + at % WARP * PACK + at / WARP;
        if (to < width)
            partial[(u64)blockIdx.y * width + to] = total;
    }
}

// out[column] = Σ partial[part · stride + column] over the parts, f32. A block has 32 columns. Order of each sum:
// warp w adds every 8th part; then the warps. Shared: 8 × 32 floats.
KERNEL void LAUNCH_BOUNDS(FOLD_WARPS *WARP)
    fold(const float *partial, float *out, int parts, int stride, int columns) {
    SHARED_MEMORY;
    float *sums = (float *)shared_memory;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, column = blockIdx.x * WARP + lane;
    float sum = 0.f;
    for (int part = warp; part < parts && column < columns; part += FOLD_WARPS)
        sum += partial[(u64)part * stride + column];
    sums[threadIdx.x] = sum;
    SYNC();
    if (warp != 0 || columns <= column)
        return;
    float total = 0.f;
    for (int from = 0; from < FOLD_WARPS; from++)
        total += sums[from * WARP + lane];
    out[column] = total;
}

// newer = older + newer, `count` numbers. A thread has a pack of the element type.
KERNEL void add_older(const float *older, float *newer, u64 count) {
    for (u64 at = thread_of_launch() * PACK; at < count; at += threads_of_launch() * PACK) {
        float value[PACK], added[PACK];
        load_floats(value, older, at, count);
        load_floats(added, newer, at, count);
        for (int i = 0; i < PACK; i++)
            value[i] += added[i];
        store_floats(newer, value, at, count);
    }
}

// values /= divisor, `count` numbers: one rounding of 1/divisor and one of the product, as `Element::divide` on a CPU.
// A thread has a pack of the element type.
KERNEL void divide_all(float *values, float divisor, u64 count) {
    const float factor = 1.f / divisor;
    for (u64 at = thread_of_launch() * PACK; at < count; at += threads_of_launch() * PACK) {
        float value[PACK];
        load_floats(value, values, at, count);
        for (int i = 0; i < PACK; i++)
            value[i] *= factor;
        store_floats(values, value, at, count);
    }
}
