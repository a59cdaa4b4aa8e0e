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

// Copies the tiles of some rows, one after the other, to the two halves of a buffer in turn. A thread copies one chunk
// of every `PASS`-th row; the number of rows of a pass is a multiple of 8, so the permutation of a thread's chunks
// stays the same.
struct TileCopy {
    static constexpr int PASS = THREADS / CHUNKS;
    const element *from;
    // Where the next tile goes; the sum of that place and the other one; rows that are left from this thread's on.
    u32 to, both;
    int left, stride;

    // The rows `first` to `end`, to a buffer of two times `tile_bytes`.
    DEV_MEMBER TileCopy(const element *rows, int stride, int first, int end, u32 buffer, u32 tile_bytes = 0)
        : stride(stride) {
        const int row = threadIdx.x / CHUNKS;
        from = rows + (u64)(first + row) * stride + threadIdx.x % CHUNKS * 8;
        to = chunk_at(buffer, row, threadIdx.x % CHUNKS);
        both = 2 * to + tile_bytes;
        left = end - first - row;
    }
    // Starts to copy the next ROWS rows; those from the end on become zeros, and nothing is read for them.
    template <int ROWS> DEV_MEMBER void start() {
#pragma unroll
        for (int pass = 0; pass < ROWS / PASS; pass++)
            copy16(to + pass * PASS * ROW_BYTES, from + (u64)(pass * PASS) * stride, pass * PASS < left ? 16 : 0);
        from += (u64)ROWS * stride;
        to = both - to;
        left -= ROWS;
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

// Sets scores of keys after their query to LOW; `distance` is the query of this lane's first score minus its key.
DEV void mask_scores(Sums<STEP / 8> &scores, int distance) {
#pragma unroll
    for (int n = 0; n < STEP / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (distance < n * 8 + (i & 1) - (i >> 1) * 8)
                scores[n][i] = LOW;
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
    const int end = first + FORWARD_ROWS < length ? first + FORWARD_ROWS : length;
    TileCopy(queries, stride, first, end, query_tile).start<FORWARD_ROWS>();
    seal_copies();
    TileCopy keys(queries + heads * HEAD, stride, 0, end, key_tiles, STEP_BYTES);
    TileCopy values(queries + 2 * heads * HEAD, stride, 0, end, value_tiles, STEP_BYTES);
    keys.start<STEP>();
    values.start<STEP>();
    seal_copies();
    Rows rows[QUERY_TILES];
    Sums<HEAD / 8> sums[QUERY_TILES];
    Softmax softmax[QUERY_TILES];
    wait_copies<1>();
    // The queries are there for all warps.
    SYNC();
#pragma unroll
    for (int m = 0; m < QUERY_TILES; m++) {
        load_rows(rows[m], place_of_rows(query_tile + (warp_id() * QUERY_TILES + m) * 16 * ROW_BYTES));
        softmax[m] = {{LOW, LOW}, {0.f, 0.f}};
        clear(sums[m]);
    }
    u32 key_place = place_of_columns(key_tiles), value_place = place_of_rows(value_tiles);
    const u32 both_keys = 2 * key_place + STEP_BYTES, both_values = 2 * value_place + STEP_BYTES;
    // Of the first score of this lane, at the first key of a step.
    int distance = base + (lane >> 2) - 2 * (lane & 3);
    for (int key = 0; key < end; key += STEP) {
        keys.start<STEP>();
        values.start<STEP>();
        seal_copies();
        wait_copies<1>();
        // The tile is there for all warps.
        SYNC();
        Sums<STEP / 8> scores[QUERY_TILES];
        multiply_rows(scores, rows, key_place);
        if (base < key + STEP - 1) {
#pragma unroll
            for (int m = 0; m < QUERY_TILES; m++)
                mask_scores(scores[m], distance + m * 16);
        }
#pragma unroll
        for (int m = 0; m < QUERY_TILES; m++)
            add_scores(softmax[m], scores[m], sums[m], scale);
        add_product(sums, scores, value_place);
        key_place = both_keys - key_place;
        value_place = both_values - value_place;
        distance -= STEP;
        // No warp reads this tile any more: the next step may overwrite it.
        SYNC();
    }
    wait_copies<0>();
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
    dout += (u64)batch * length * width + head * HEAD;
    TileCopy(qkv + origin + width, stride, first, length, key_tile).start<BACKWARD_ROWS>();
    TileCopy(qkv + origin + 2 * width, stride, first, length, value_tile).start<BACKWARD_ROWS>();
    seal_copies();
    TileCopy queries(qkv + origin, stride, first, length, query_tiles, KV_STEP_BYTES);
    TileCopy douts(dout, width, first, length, dout_tiles, KV_STEP_BYTES);
    queries.start<KV_STEP>();
    douts.start<KV_STEP>();
    seal_copies();
    // Half of the threads bring lse, the others delta; a query beyond the end gets powers of 0.
    const bool brings_lse = threadIdx.x < KV_STEP;
    const float *brought = brings_lse ? lse : delta;
    const float beyond = brings_lse ? 1e30f : 0.f;
    int brought_from = first + (int)threadIdx.x % KV_STEP;
    if (threadIdx.x < 2 * KV_STEP)
        statistics[threadIdx.x] = brought_from < length ? brought[brought_from] : beyond;
    const u32 key_place = place_of_rows(key_tile + row * ROW_BYTES);
    const u32 value_place = place_of_rows(value_tile + row * ROW_BYTES);
    Rows keys[1], values[1];
    Sums<HEAD / 8> dkeys[1], dvalues[1];
    clear(dkeys[0]);
    clear(dvalues[0]);
    wait_copies<1>();
    // The keys and values are there for all warps.
    SYNC();
    if (KEEPS_KEYS) {
        load_rows(keys[0], key_place);
        load_rows(values[0], value_place);
    }
    u32 columns = place_of_columns(query_tiles), rows = place_of_rows(query_tiles);
    const u32 both_columns = 2 * columns + KV_STEP_BYTES, both_rows = 2 * rows + KV_STEP_BYTES;
    // Of the first score of this lane, at the first query of a step: the key minus the query.
    int distance = row + (lane >> 2) - 2 * (lane & 3);
    int buffer = 0;
    for (int query = first; query < length; query += KV_STEP) {
        queries.start<KV_STEP>();
        douts.start<KV_STEP>();
        seal_copies();
        brought_from += KV_STEP;
        const float next = brought_from < length && threadIdx.x < 2 * KV_STEP ? brought[brought_from] : beyond;
        wait_copies<1>();
        // The tile and its statistics are there for all warps.
        SYNC();
        const float *of_step = statistics + buffer + 2 * (lane & 3);
        Sums<KV_STEP / 8> powers[1], dscores[1];
        if (KEEPS_KEYS)
            multiply_rows(powers, keys, columns);
        else
            multiply_placed(powers[0], key_place, columns);
#pragma unroll
        for (int n = 0; n < KV_STEP / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                powers[0][n][i] = exp2_fast(fmaf(powers[0][n][i], scale, -of_step[n * 8 + (i & 1)]));
        if (query < first + row + 15) {
#pragma unroll
            for (int n = 0; n < KV_STEP / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    if (n * 8 + (i & 1) - (i >> 1) * 8 < distance)
                        powers[0][n][i] = 0.f;
        }
        add_product(dvalues, powers, rows + 2 * KV_STEP_BYTES);
        if (KEEPS_KEYS)
            multiply_rows(dscores, values, columns + 2 * KV_STEP_BYTES);
        else
            multiply_placed(dscores[0], value_place, columns + 2 * KV_STEP_BYTES);
#pragma unroll
        for (int n = 0; n < KV_STEP / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                dscores[0][n][i] = powers[0][n][i] * (dscores[0][n][i] - of_step[KV_STEP + n * 8 + (i & 1)]);
        add_product(dkeys, dscores, rows);
        columns = both_columns - columns;
        rows = both_rows - rows;
        distance -= KV_STEP;
        buffer = 2 * KV_STEP - buffer;
        if (threadIdx.x < 2 * KV_STEP)
            statistics[buffer + threadIdx.x] = next;
        // No warp reads this tile any more: the next step may overwrite it.
        SYNC();
    }
    wait_copies<0>();
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
    const int end = first + BACKWARD_ROWS < length ? first + BACKWARD_ROWS : length;
    dout += (u64)batch * length * width + head * HEAD;
    TileCopy(qkv + origin, stride, first, end, query_tile).start<BACKWARD_ROWS>();
    TileCopy(dout, width, first, end, dout_tile).start<BACKWARD_ROWS>();
    seal_copies();
    TileCopy keys(qkv + origin + width, stride, 0, end, key_tiles, STEP_BYTES);
    TileCopy values(qkv + origin + 2 * width, stride, 0, end, value_tiles, STEP_BYTES);
    keys.start<STEP>();
    values.start<STEP>();
    seal_copies();
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
    wait_copies<1>();
    // The queries and their gradients are there for all warps.
    SYNC();
    load_rows(queries[0], place_of_rows(query_tile + row * ROW_BYTES));
    load_rows(gradients[0], place_of_rows(dout_tile + row * ROW_BYTES));
    u32 columns = place_of_columns(key_tiles), rows = place_of_rows(key_tiles);
    const u32 both_columns = 2 * columns + STEP_BYTES, both_rows = 2 * rows + STEP_BYTES;
    // Of the first score of this lane, at the first key of a step.
    int distance = first + row + (lane >> 2) - 2 * (lane & 3);
    for (int key = 0; key < end; key += STEP) {
        keys.start<STEP>();
        values.start<STEP>();
        seal_copies();
        wait_copies<1>();
        // The tile is there for all warps.
        SYNC();
        Sums<STEP / 8> scores[1], dscores[1];
        multiply_rows(scores, queries, columns);
        multiply_rows(dscores, gradients, columns + 2 * STEP_BYTES);
        if (first + row < key + STEP - 1)
            mask_scores(scores[0], distance);
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float power = exp2_fast(fmaf(scores[0][n][i], scale, -log_sum[i >> 1]));
                dscores[0][n][i] = power * (dscores[0][n][i] - of_row[i >> 1]);
            }
        add_product(dqueries, dscores, rows);
        columns = both_columns - columns;
        rows = both_rows - rows;
        distance -= STEP;
        // No warp reads this tile any more: the next step may overwrite it.
        SYNC();
    }
    wait_copies<0>();
    element *to = dqkv + origin + (u64)(first + row) * stride;
    store_rows(to, stride, dqueries[0], root, root, length - first - row);
}
