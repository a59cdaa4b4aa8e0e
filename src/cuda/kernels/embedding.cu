// Embeddings of tokens and positions. Widths are multiples of PACK.

// Start of the residual stream: out[row] = token_table[tokens[row]] + position_table[row % length], rounded once.
// tokens: rows; tables: · × width; out: rows × width. A thread has a pack.
KERNEL void embed(const u32 *tokens, const element *token_table, const element *position_table, element *out,
                  int rows, int length, int width) {
    const u64 packs = (u64)rows * (width / PACK);
    for (u64 pack = thread_of_launch(); pack < packs; pack += threads_of_launch()) {
        const u64 row = pack / (width / PACK), column = pack % (width / PACK) * PACK;
        float token[PACK], position[PACK];
        load_pack(token, token_table + (u64)tokens[row] * width + column);
        load_pack(position, position_table + row % length * width + column);
        for (int i = 0; i < PACK; i++)
            token[i] += position[i];
        store_pack(out + row * width + column, token);
    }
}

// Gradient of the first `length` rows of the position table, f32, overwritten. dout: batch × length × width.
// Order of each sum: the sequences. A thread has a pack of a position.
KERNEL void embed_backward_positions(const element *dout, float *dposition, int batch, int length, int width) {
    const u64 packs = (u64)length * (width / PACK);
    for (u64 pack = thread_of_launch(); pack < packs; pack += threads_of_launch()) {
        float sum[PACK] = {};
        for (int sequence = 0; sequence < batch; sequence++) {
            float value[PACK];
            load_pack(value, dout + ((u64)sequence * packs + pack) * PACK);
            for (int i = 0; i < PACK; i++)
                sum[i] += value[i];
        }
        for (int i = 0; i < PACK; i++)
            dposition[pack * PACK + i] = sum[i];
    }
}

// Adds to the gradient of the token table, f32, · × width. dout: rows × width; `order`: the rows, sorted by their
// token, rows of one token in their order; run r of them is order[starts[r]..starts[r + 1]] and has the token
// tokens[order[starts[r]]]. Order of each sum: the gradient that is there, then the rows of the run. A warp has
// 32 packs of a run: blocks are (runs, columns).
KERNEL void embed_backward_tokens(const element *dout, const u32 *tokens, const u32 *order, const u32 *starts,
                                  float *dtable, int width) {
    const int column = (blockIdx.y * WARP + threadIdx.x) * PACK;
    if (width <= column)
        return;
    const u32 first = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    float *to = dtable + (u64)tokens[order[first]] * width + column;
    float sum[PACK];
    for (int i = 0; i < PACK; i++)
        sum[i] = to[i];
    for (u32 at = first; at < end; at++) {
        float value[PACK];
        load_pack(value, dout + (u64)order[at] * width + column);
        for (int i = 0; i < PACK; i++)
            sum[i] += value[i];
    }
    for (int i = 0; i < PACK; i++)
        to[i] = sum[i];
}
