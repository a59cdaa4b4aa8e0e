// Causal attention on the tensor cores, ELEMENT bf16 or f16, heads of HEAD features (64 or 128), any length.
//
// qkv, dqkv: batch × length × 3 × heads × HEAD (queries, keys, values); out, dout: batch × length × heads × HEAD;
// lse (log₂ of the sum of the powers of a query) and delta (Σ out · dout): batch × heads × length, f32. Nothing has
// length × length numbers. Scores are multiplied by `scale` = log₂ e / √HEAD, so that powers are powers of 2.
//
// A block of 4 warps owns the rows of a tile (queries, or keys with values), each warp 16 or 32 of them, and goes
// over tiles of STEP rows (in the kernel of keys, KV_STEP) of the other side, from the first to the last: that is
// the order of all sums. The next tile is copied while the block computes with one of two buffers. Two kernels of
// the backward pass, one for keys and values and one for queries, compute the scores twice; in return there are no
// atomics, and nothing is summed in memory.

constexpr int WARPS = 4, THREADS = WARPS * WARP;
constexpr int ROW_BYTES = HEAD * 2, CHUNKS = HEAD / 8;
// Rows of the other side at a time, and bytes of their tile. The kernel of keys and values has no registers for 64
// rows of 128 features.
constexpr int STEP = 64, STEP_BYTES = STEP * ROW_BYTES;
constexpr int KV_STEP = HEAD == 64 ? 64 : 32, KV_STEP_BYTES = KV_STEP * ROW_BYTES;
// Tiles of 16 queries of a warp in the forward pass: two need fewer loads for each product, and 128 features have no
// registers for them.
constexpr int QUERY_TILES = HEAD == 64 ? 2 : 1;
constexpr int FORWARD_ROWS = WARPS * 16 * QUERY_TILES, BACKWARD_ROWS = WARPS * 16;
// Whether the kernel of keys and values keeps both in registers; with 128 features it loads them when it needs them.
constexpr bool KEEPS_KEYS = HEAD == 64;
// Below every score, and finite: the difference of two of them is a number.
constexpr float LOW = -1e30f;

// Accumulators of a warp: 16 rows × 8 N columns. Of 8 columns, lane l has the columns 2 (l % 4) and 2 (l % 4) + 1
// of row l / 4 in [0] and [1], and of row l / 4 + 8 in [2] and [3].
template <int N> using Sums = float[N][4];
// Left operands of a warp: 16 rows × HEAD.
typedef u32 Rows[HEAD / 16][4];

DEV int lane_id() { return threadIdx.x % WARP; }
DEV int warp_id() { return threadIdx.x / WARP; }

// Address of a chunk of 16 bytes in a tile of rows. Chunks are permuted within a row by the row's number, so that
// eight rows of one chunk are in different banks. Tiles are aligned to ROW_BYTES: chunk ^ n is at address ^ (n · 16).
DEV u32 chunk_at(u32 tile, int row, int chunk) { return tile + row * ROW_BYTES + ((chunk ^ (row & 7)) << 4); }

// The place of a lane in operands from a tile; operands further to the right are at address ^ (n · 32), those of
// other rows, multiples of 16, at address + rows · ROW_BYTES.
// 16 rows × 16 columns, as the left operand, or transposed as two right operands of x · tile.
DEV u32 place_of_rows(u32 tile) { return chunk_at(tile, lane_id() & 15, lane_id() >> 4); }
// 16 rows × 16 columns as two right operands of x · tileᵀ.
DEV u32 place_of_columns(u32 tile) {
    const int lane = lane_id();
    return chunk_at(tile, (lane & 7) + ((lane >> 4) << 3), lane >> 3 & 1);
}

// Copies tiles of rows to shared memory. A thread copies one chunk of every `PASS`-th row; the number of rows of a
// pass is a multiple of 8, so the permutation of a thread's chunks stays the same.
struct TileCopy {
    static constexpr int PASS = THREADS / CHUNKS;
    const element *from;
    u32 to;
    int row, stride;

    DEV_MEMBER TileCopy(const element *rows, u32 tile, int stride) : stride(stride) {
        row = threadIdx.x / CHUNKS;
        from = rows + (u64)row * stride + threadIdx.x % CHUNKS * 8;
        to = chunk_at(tile, row, threadIdx.x % CHUNKS);
    }
    // Starts to copy the rows `first` to `first + ROWS`; rows from `length` on become zeros.
    template <int ROWS> DEV_MEMBER void start(u32 buffer, int first, int length) const {
        const element *source = from + (u64)first * stride;
        if (first + ROWS <= length) {
#pragma unroll
            for (int pass = 0; pass < ROWS / PASS; pass++)
                copy16(to + buffer + pass * PASS * ROW_BYTES, source + (u64)(pass * PASS) * stride);
            return;
        }
#pragma unroll
        for (int pass = 0; pass < ROWS / PASS; pass++) {
            const bool is_there = first + row + pass * PASS < length;
            const element *there = is_there ? source + (u64)(pass * PASS) * stride : from - (u64)row * stride;
            copy16(to + buffer + pass * PASS * ROW_BYTES, there, is_there ? 16 : 0);
        }
    }
};

template <int N> DEV void clear(float (&sums)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
        sums[n][0] = sums[n][1] = sums[n][2] = sums[n][3] = 0.f;
}

// The left operands of 16 rows from the address of their place on.
DEV void load_rows(Rows &rows, u32 place) {
#pragma unroll
    for (int k = 0; k < HEAD / 16; k++)
        load_matrices(rows[k], place ^ (k * 32));
}

// scores = rows · tileᵀ for TILES tiles of 16 rows; `columns` is the place of the tile's columns.
template <int N, int TILES>
DEV void multiply_rows(float (&scores)[TILES][N][4], const Rows (&rows)[TILES], u32 columns) {
#pragma unroll
    for (int m = 0; m < TILES; m++)
        clear<N>(scores[m]);
#pragma unroll
    for (int k = 0; k < HEAD / 16; k++)
#pragma unroll
        for (int n = 0; n < N / 2; n++) {
            u32 right[4];
            load_matrices(right, (columns ^ (k * 32)) + n * 16 * ROW_BYTES);
#pragma unroll
            for (int m = 0; m < TILES; m++) {
                multiply_add(scores[m][2 * n], rows[m][k], right[0], right[1], element());
                multiply_add(scores[m][2 * n + 1], rows[m][k], right[2], right[3], element());
            }
        }
}
// The same for 16 rows that are loaded from their place when they are needed.
template <int N> DEV void multiply_placed(float (&scores)[N][4], u32 rows, u32 columns) {
    clear<N>(scores);
#pragma unroll
    for (int k = 0; k < HEAD / 16; k++) {
        u32 left[4];
        load_matrices(left, rows ^ (k * 32));
#pragma unroll
        for (int n = 0; n < N / 2; n++) {
            u32 right[4];
            load_matrices(right, (columns ^ (k * 32)) + n * 16 * ROW_BYTES);
            multiply_add(scores[2 * n], left, right[0], right[1], element());
            multiply_add(scores[2 * n + 1], left, right[2], right[3], element());
        }
    }
}

// Accumulators of 16 columns, rounded, are the left operand of the next product as they are.
template <int N> DEV void as_left(u32 (&left)[4], const float (&sums)[N][4], int k) {
    left[0] = narrow_two(sums[2 * k][0], sums[2 * k][1], element());
    left[1] = narrow_two(sums[2 * k][2], sums[2 * k][3], element());
    left[2] = narrow_two(sums[2 * k + 1][0], sums[2 * k + 1][1], element());
    left[3] = narrow_two(sums[2 * k + 1][2], sums[2 * k + 1][3], element());
}

// sums += weights · tile for TILES tiles of 16 rows; `rows` is the place of the tile's rows.
template <int N, int TILES>
DEV void add_product(Sums<HEAD / 8> (&sums)[TILES], const float (&weights)[TILES][N][4], u32 rows) {
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        u32 left[TILES][4];
#pragma unroll
        for (int m = 0; m < TILES; m++)
            as_left(left[m], weights[m], k);
#pragma unroll
        for (int n = 0; n < HEAD / 16; n++) {
            u32 right[4];
            load_transposed(right, (rows ^ (n * 32)) + k * 16 * ROW_BYTES);
#pragma unroll
            for (int m = 0; m < TILES; m++) {
                multiply_add(sums[m][2 * n], left[m], right[0], right[1], element());
                multiply_add(sums[m][2 * n + 1], left[m], right[2], right[3], element());
            }
        }
    }
}

// Stores 16 rows times the factors of the rows of a lane; `left` rows are inside the sequence.
DEV void store_rows(element *to, int stride, const Sums<HEAD / 8> &sums, float factor0, float factor1, int left) {
    const int row = lane_id() >> 2, column = 2 * (lane_id() & 3);
#pragma unroll
    for (int n = 0; n < HEAD / 8; n++) {
        u32 *pair = (u32 *)(to + (u64)row * stride + n * 8 + column);
        if (row < left)
            *pair = narrow_two(sums[n][0] * factor0, sums[n][1] * factor0, element());
        pair = (u32 *)(to + (u64)(row + 8) * stride + n * 8 + column);
        if (row + 8 < left)
            *pair = narrow_two(sums[n][2] * factor1, sums[n][3] * factor1, element());
    }
}

// Queries and their running softmax over the keys so far, 16 rows: `top` and `sum` of the two rows of a lane.
struct Softmax {
    float top[2], sum[2];
};

// Replaces scores by powers, and scales what has been summed before to the new maximum.
DEV void add_scores(Softmax &softmax, Sums<STEP / 8> &scores, Sums<HEAD / 8> &out, float scale) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float top = softmax.top[half];
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
            top = fmaxf(top, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
        top = fmaxf(top, shuffle_xor(top, 1));
        top = fmaxf(top, shuffle_xor(top, 2));
        const float keep = exp2_fast((softmax.top[half] - top) * scale), shift = top * scale;
        softmax.top[half] = top;
        float sum = 0.f;
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                scores[n][i] = exp2_fast(fmaf(scores[n][i], scale, -shift));
                sum += scores[n][i];
            }
        softmax.sum[half] = fmaf(softmax.sum[half], keep, sum);
#pragma unroll
        for (int n = 0; n < HEAD / 8; n++) {
            out[n][2 * half] *= keep;
            out[n][2 * half + 1] *= keep;
        }
    }
}

// Sets scores of keys after their query to LOW; `row` and `column` are those of this lane's first score.
DEV void mask_scores(Sums<STEP / 8> &scores, int row, int column) {
#pragma unroll
    for (int n = 0; n < STEP / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (row + (i >> 1) * 8 < column + n * 8 + (i & 1))
                scores[n][i] = LOW;
}

// Starts to copy the keys and values of the next step, if there is one, to the buffers that this step does not use,
// and waits until this thread's copies of this step have landed.
DEV void next_keys(const TileCopy &keys, const TileCopy &values, int step, int steps, int length) {
    const u32 other = (1 - (step & 1)) * STEP_BYTES;
    if (step + 1 < steps) {
        keys.start<STEP>(other, (step + 1) * STEP, length);
        values.start<STEP>(other, (step + 1) * STEP, length);
        seal_copies();
        wait_copies<1>();
    } else {
        wait_copies<0>();
    }
}

// out and lse from qkv. Blocks are (tiles of FORWARD_ROWS queries, batch · heads), the longest rows first.
KERNEL void LAUNCH_BOUNDS(THREADS)
    attention_forward(const element *qkv, element *out, float *lse, int length, int heads, float scale) {
    SHARED_MEMORY;
    const int first = (gridDim.x - 1 - blockIdx.x) * FORWARD_ROWS, head = blockIdx.y % heads, lane = lane_id();
    const int stride = 3 * heads * HEAD, batch = blockIdx.y / heads, base = first + warp_id() * 16 * QUERY_TILES;
    const element *queries = qkv + (u64)batch * length * stride + head * HEAD;
    const u32 query_tile = shared_address(shared_memory), key_tiles = query_tile + FORWARD_ROWS * ROW_BYTES;
    const u32 value_tiles = key_tiles + 2 * STEP_BYTES;
    const TileCopy copy_queries(queries, query_tile, stride);
    const TileCopy copy_keys(queries + heads * HEAD, key_tiles, stride);
    const TileCopy copy_values(queries + 2 * heads * HEAD, value_tiles, stride);
    copy_queries.start<FORWARD_ROWS>(0, first, length);
    copy_keys.start<STEP>(0, 0, length);
    copy_values.start<STEP>(0, 0, length);
    seal_copies();
    const int last_row = first + FORWARD_ROWS < length ? first + FORWARD_ROWS : length;
    const int steps = (last_row + STEP - 1) / STEP;
    const u32 key_place = place_of_columns(key_tiles), value_place = place_of_rows(value_tiles);
    Rows rows[QUERY_TILES];
    Sums<HEAD / 8> sums[QUERY_TILES];
    Softmax softmax[QUERY_TILES];
#pragma unroll
    for (int m = 0; m < QUERY_TILES; m++) {
        softmax[m] = {{LOW, LOW}, {0.f, 0.f}};
        clear(sums[m]);
    }
    for (int step = 0; step < steps; step++) {
        const u32 buffer = (step & 1) * STEP_BYTES;
        next_keys(copy_keys, copy_values, step, steps, length);
        // The tile is there for all warps.
        SYNC();
        if (step == 0) {
#pragma unroll
            for (int m = 0; m < QUERY_TILES; m++)
                load_rows(rows[m], place_of_rows(query_tile + (warp_id() * QUERY_TILES + m) * 16 * ROW_BYTES));
        }
        Sums<STEP / 8> scores[QUERY_TILES];
        multiply_rows(scores, rows, key_place + buffer);
        if (base < step * STEP + STEP - 1) {
#pragma unroll
            for (int m = 0; m < QUERY_TILES; m++)
                mask_scores(scores[m], base + m * 16 + (lane >> 2), step * STEP + 2 * (lane & 3));
        }
#pragma unroll
        for (int m = 0; m < QUERY_TILES; m++)
            add_scores(softmax[m], scores[m], sums[m], scale);
        add_product(sums, scores, value_place + buffer);
        // No warp reads this tile any more: the next step may overwrite it.
        SYNC();
    }
#pragma unroll
    for (int m = 0; m < QUERY_TILES; m++) {
        const int row = base + m * 16;
        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = softmax[m].sum[half];
            sum += shuffle_xor(sum, 1);
            sum += shuffle_xor(sum, 2);
            factor[half] = 1.f / sum;
            const int query = row + (lane >> 2) + half * 8;
            if ((lane & 3) == 0 && query < length)
                lse[(u64)blockIdx.y * length + query] = softmax[m].top[half] * scale + log2_fast(sum);
        }
        element *to = out + ((u64)batch * length + row) * heads * HEAD + head * HEAD;
        store_rows(to, heads * HEAD, sums[m], factor[0], factor[1], length - row);
    }
}

// delta from out and dout. A warp has a row of HEAD features; `rows` = batch · length · heads. Order of each sum: the
// features of a lane, then the lanes.
KERNEL void attention_delta(const element *out, const element *dout, float *delta, int length, int heads, u64 rows) {
    const u64 row = thread_of_launch() / WARP;
    if (rows <= row)
        return;
    float sum = 0.f;
    if (lane_id() < HEAD / PACK) {
        float value[PACK], gradient[PACK];
        load_pack(value, out + row * HEAD + lane_id() * PACK);
        load_pack(gradient, dout + row * HEAD + lane_id() * PACK);
#pragma unroll
        for (int i = 0; i < PACK; i++)
            sum += value[i] * gradient[i];
    }
    sum = warp_sum(sum);
    const u64 token = row / heads, head = row % heads, batch = token / length;
    if (lane_id() == 0)
        delta[(batch * heads + head) * length + token % length] = sum;
}

// Gradients of keys and values in dqkv, with root = 1 / √HEAD. Blocks are (tiles of BACKWARD_ROWS keys, batch ·
// heads); a block goes over the queries from its own rows on. Scores are transposed, keys · queriesᵀ, so that their
// powers and gradients are left operands of the products with dout and queries.
KERNEL void LAUNCH_BOUNDS(THREADS)
    attention_backward_kv(const element *qkv, const element *dout, const float *lse, const float *delta, element *dqkv,
                      int length, int heads, float scale, float root) {
    SHARED_MEMORY;
    const int first = blockIdx.x * BACKWARD_ROWS, head = blockIdx.y % heads, lane = lane_id(), row = warp_id() * 16;
    const int width = heads * HEAD, stride = 3 * width, batch = blockIdx.y / heads;
    const u64 origin = (u64)batch * length * stride + head * HEAD;
    lse += (u64)blockIdx.y * length;
    delta += (u64)blockIdx.y * length;
    const u32 key_tile = shared_address(shared_memory), value_tile = key_tile + BACKWARD_ROWS * ROW_BYTES;
    const u32 query_tiles = value_tile + BACKWARD_ROWS * ROW_BYTES, dout_tiles = query_tiles + 2 * KV_STEP_BYTES;
    // lse and delta of the queries of both buffers: 2 × 2 × KV_STEP.
    float *statistics = (float *)(shared_memory + 2 * BACKWARD_ROWS * ROW_BYTES + 4 * KV_STEP_BYTES);
    const TileCopy copy_queries(qkv + origin, query_tiles, stride);
    const TileCopy copy_dout(dout + (u64)batch * length * width + head * HEAD, dout_tiles, width);
    TileCopy(qkv + origin + width, key_tile, stride).start<BACKWARD_ROWS>(0, first, length);
    TileCopy(qkv + origin + 2 * width, value_tile, stride).start<BACKWARD_ROWS>(0, first, length);
    copy_queries.start<KV_STEP>(0, first, length);
    copy_dout.start<KV_STEP>(0, first, length);
    seal_copies();
    const u32 key_place = place_of_rows(key_tile + row * ROW_BYTES), columns = place_of_columns(query_tiles);
    const u32 value_place = place_of_rows(value_tile + row * ROW_BYTES), rows = place_of_rows(query_tiles);
    Rows keys[1], values[1];
    Sums<HEAD / 8> dkeys[1], dvalues[1];
    clear(dkeys[0]);
    clear(dvalues[0]);
    for (int query = first; query < length; query += KV_STEP) {
        const int odd = (query - first) / KV_STEP & 1;
        const u32 buffer = odd * KV_STEP_BYTES;
        float *of_step = statistics + odd * 2 * KV_STEP;
        if (query + KV_STEP < length) {
            copy_queries.start<KV_STEP>(KV_STEP_BYTES - buffer, query + KV_STEP, length);
            copy_dout.start<KV_STEP>(KV_STEP_BYTES - buffer, query + KV_STEP, length);
            seal_copies();
        }
        // A query beyond the end gets powers of 0.
        for (int at = threadIdx.x; at < KV_STEP; at += THREADS) {
            of_step[at] = query + at < length ? lse[query + at] : 1e30f;
            of_step[KV_STEP + at] = query + at < length ? delta[query + at] : 0.f;
        }
        if (query + KV_STEP < length)
            wait_copies<1>();
        else
            wait_copies<0>();
        // The tile and its statistics are there for all warps.
        SYNC();
        if (KEEPS_KEYS && query == first) {
            load_rows(keys[0], key_place);
            load_rows(values[0], value_place);
        }
        Sums<KV_STEP / 8> powers[1], dscores[1];
        const u32 query_columns = columns + buffer, dout_columns = query_columns + 2 * KV_STEP_BYTES;
        const u32 query_rows = rows + buffer, dout_rows = query_rows + 2 * KV_STEP_BYTES;
        if (KEEPS_KEYS)
            multiply_rows(powers, keys, query_columns);
        else
            multiply_placed(powers[0], key_place, query_columns);
#pragma unroll
        for (int n = 0; n < KV_STEP / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                powers[0][n][i] = exp2_fast(fmaf(powers[0][n][i], scale, -of_step[n * 8 + 2 * (lane & 3) + (i & 1)]));
        if (query < first + row + 15) {
            const int key = first + row + (lane >> 2), column = query + 2 * (lane & 3);
#pragma unroll
            for (int n = 0; n < KV_STEP / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (column + n * 8 + (i & 1) < key + (i >> 1) * 8)
                        powers[0][n][i] = 0.f;
        }
        add_product(dvalues, powers, dout_rows);
        if (KEEPS_KEYS)
            multiply_rows(dscores, values, dout_columns);
        else
            multiply_placed(dscores[0], value_place, dout_columns);
#pragma unroll
        for (int n = 0; n < KV_STEP / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float of_query = of_step[KV_STEP + n * 8 + 2 * (lane & 3) + (i & 1)];
                dscores[0][n][i] = powers[0][n][i] * (dscores[0][n][i] - of_query);
            }
        add_product(dkeys, dscores, query_rows);
        // No warp reads this tile any more: the next step may overwrite it.
        SYNC();
    }
    element *to = dqkv + origin + (u64)(first + row) * stride;
    store_rows(to + width, stride, dkeys[0], root, root, length - first - row);
    store_rows(to + 2 * width, stride, dvalues[0], 1.f, 1.f, length - first - row);
}

// Gradients of queries in dqkv, with root = 1 / √HEAD. Blocks are (tiles of BACKWARD_ROWS queries, batch · heads),
// the longest rows first; a block goes over the keys up to its own rows.
KERNEL void LAUNCH_BOUNDS(THREADS)
    attention_backward_q(const element *qkv, const element *dout, const float *lse, const float *delta, element *dqkv,
                     int length, int heads, float scale, float root) {
    SHARED_MEMORY;
    const int first = (gridDim.x - 1 - blockIdx.x) * BACKWARD_ROWS, head = blockIdx.y % heads, lane = lane_id();
    const int width = heads * HEAD, stride = 3 * width, batch = blockIdx.y / heads, row = warp_id() * 16;
    const u64 origin = (u64)batch * length * stride + head * HEAD;
    const u32 query_tile = shared_address(shared_memory), dout_tile = query_tile + BACKWARD_ROWS * ROW_BYTES;
    const u32 key_tiles = dout_tile + BACKWARD_ROWS * ROW_BYTES, value_tiles = key_tiles + 2 * STEP_BYTES;
    const TileCopy copy_keys(qkv + origin + width, key_tiles, stride);
    const TileCopy copy_values(qkv + origin + 2 * width, value_tiles, stride);
    TileCopy(qkv + origin, query_tile, stride).start<BACKWARD_ROWS>(0, first, length);
    TileCopy(dout + (u64)batch * length * width + head * HEAD, dout_tile, width).start<BACKWARD_ROWS>(0, first, length);
    copy_keys.start<STEP>(0, 0, length);
    copy_values.start<STEP>(0, 0, length);
    seal_copies();
    const int last_row = first + BACKWARD_ROWS < length ? first + BACKWARD_ROWS : length;
    const int steps = (last_row + STEP - 1) / STEP;
    const u32 key_columns = place_of_columns(key_tiles), key_rows = place_of_rows(key_tiles);
    // Of the two rows of this lane.
    float log_sum[2], of_row[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int query = first + row + (lane >> 2) + half * 8;
        const u64 at = (u64)blockIdx.y * length + query;
        log_sum[half] = query < length ? lse[at] : 1e30f;
        of_row[half] = query < length ? delta[at] : 0.f;
    }
    Rows queries[1], gradients[1];
    Sums<HEAD / 8> dqueries[1];
    clear(dqueries[0]);
    for (int step = 0; step < steps; step++) {
        const u32 buffer = (step & 1) * STEP_BYTES;
        next_keys(copy_keys, copy_values, step, steps, length);
        // The tile is there for all warps.
        SYNC();
        if (step == 0) {
            load_rows(queries[0], place_of_rows(query_tile + row * ROW_BYTES));
            load_rows(gradients[0], place_of_rows(dout_tile + row * ROW_BYTES));
        }
        Sums<STEP / 8> scores[1], dscores[1];
        multiply_rows(scores, queries, key_columns + buffer);
        multiply_rows(dscores, gradients, key_columns + buffer + 2 * STEP_BYTES);
        if (first + row < step * STEP + STEP - 1)
            mask_scores(scores[0], first + row + (lane >> 2), step * STEP + 2 * (lane & 3));
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float power = exp2_fast(fmaf(scores[0][n][i], scale, -log_sum[i >> 1]));
                dscores[0][n][i] = power * (dscores[0][n][i] - of_row[i >> 1]);
            }
        add_product(dqueries, dscores, key_rows + buffer);
        // No warp reads this tile any more: the next step may overwrite it.
        SYNC();
    }
    element *to = dqkv + origin + (u64)(first + row) * stride;
    store_rows(to, stride, dqueries[0], root, root, length - first - row);
}
