// The names of `src/cuda/kernels/device.cuh`, on the emulated device.

struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
struct alignas(16) Words { u32 at[4]; };

#define KERNEL [[maybe_unused]] static
#define DEV [[maybe_unused]] static inline
#define DEV_MEMBER inline
#define LAUNCH_BOUNDS(threads)
#define SHARED_MEMORY unsigned char *shared_memory = emulation::machine->shared
#define SYNC() emulation::barrier(__builtin_LINE())
#define threadIdx (emulation::machine->now->index)
#define blockIdx (emulation::machine->block_index)
#define blockDim (emulation::machine->block)
#define gridDim (emulation::machine->grid)

DEV float __uint_as_float(u32 bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}
DEV u32 __float_as_uint(float value) {
    u32 bits;
    memcpy(&bits, &value, 4);
    return bits;
}

// Conversions as in `src/runtime/dtype/half.rs`.
DEV float widen_f16(unsigned short bits) {
    const u32 magnitude = (bits & 0x7fffu) << 13;
    const float finite = __uint_as_float(magnitude) * __uint_as_float(239u << 23);
    const bool is_finite = magnitude < 0x7c00u << 13;
    return __uint_as_float((bits & 0x8000u) << 16 | (is_finite ? __float_as_uint(finite) : 0x7f800000u | magnitude));
}
DEV unsigned short narrow_f16(float value) {
    const u32 bits = __float_as_uint(value), magnitude = bits & 0x7fffffffu;
    u32 half;
    if (0x47800000u <= magnitude)
        half = 0x7f800000u < magnitude ? 0x7e00u : 0x7c00u;
    else if (magnitude < 0x38800000u)
        half = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
    else
        half = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    return (unsigned short)((bits & 0x80000000u) >> 16 | half);
}
DEV unsigned short narrow_bf16(float value) {
    const u32 bits = __float_as_uint(value);
    const bool is_nan = 0x7f800000u < (bits & 0x7fffffffu);
    return (unsigned short)(is_nan ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
DEV u32 narrow_two(float low, float high, f16) { return narrow_f16(low) | (u32)narrow_f16(high) << 16; }
DEV u32 narrow_two(float low, float high, bf16) { return narrow_bf16(low) | (u32)narrow_bf16(high) << 16; }

DEV float exp2_fast(float x) { return exp2f(x); }
DEV float log2_fast(float x) { return log2f(x); }

DEV Words load16(const void *from, int line = __builtin_LINE()) {
    if ((uintptr_t)from % 16 != 0)
        emulation::fail("line %d loads 16 bytes from %p, which is not aligned to 16", line, from);
    return *(const Words *)from;
}
DEV void store16(void *to, Words words, int line = __builtin_LINE()) {
    if ((uintptr_t)to % 16 != 0)
        emulation::fail("line %d stores 16 bytes to %p, which is not aligned to 16", line, to);
    *(Words *)to = words;
}

template <class T> DEV T shuffled(T value, int mask, int line) {
    if (emulation::has_mistake(emulation::Mistake::NoShuffle, line))
        return value;
    struct In { T value; int mask; };
    return emulation::together<T>("shuffle_xor", line, In{value, mask}, [](emulation::Warp &warp) {
        for (int lane = 0; lane < emulation::WARP_LANES; lane++) {
            int mask;
            memcpy(&mask, warp.brought[lane] + offsetof(In, mask), sizeof mask);
            memcpy(warp.taken[lane], warp.brought[lane ^ mask], sizeof(T));
        }
    });
}
DEV float shuffle_xor(float value, int mask, int line = __builtin_LINE()) { return shuffled(value, mask, line); }
DEV double shuffle_xor(double value, int mask, int line = __builtin_LINE()) { return shuffled(value, mask, line); }

DEV u32 shared_address(const void *pointer) {
    return (u32)((const unsigned char *)pointer - emulation::machine->shared);
}

// Sixteen bytes of shared memory, checked.
DEV unsigned char *shared_chunk(u32 address, const char *operation, int line) {
    if (address % 16 != 0)
        emulation::fail("`%s` of line %d: shared address %u is not aligned to 16", operation, line, address);
    if (emulation::machine->shared_bytes < (size_t)address + 16)
        emulation::fail("`%s` of line %d: shared address %u is outside of %zu bytes", operation, line, address,
                        emulation::machine->shared_bytes);
    return emulation::machine->shared + address;
}
DEV void land(const emulation::Copy &copy) {
    unsigned char *to = emulation::machine->shared + copy.to;
    memset(to, 0, 16);
    memcpy(to, copy.from, copy.bytes);
    emulation::mark(copy.from, copy.bytes, emulation::READ);
}

DEV void copy16(u32 to, const void *from, u32 bytes = 16, int line = __builtin_LINE()) {
    if (emulation::has_mistake(emulation::Mistake::WrongCopy, line))
        to ^= 16;
    shared_chunk(to, "copy16", line);
    if ((uintptr_t)from % 16 != 0)
        emulation::fail("`copy16` of line %d: %p is not aligned to 16", line, from);
    if (bytes != 16 && bytes != 0)
        emulation::fail("`copy16` of line %d copies %u bytes, neither 16 nor none", line, bytes);
    emulation::Fiber &self = *emulation::machine->now;
    const emulation::Copy copy = {to, from, bytes, self.sealed};
    if (emulation::machine->schedule == emulation::Schedule::Early)
        land(copy);
    self.copies.push_back(copy);
}
DEV void seal_copies(int line = __builtin_LINE()) {
    if (!emulation::has_mistake(emulation::Mistake::NoSeal, line))
        emulation::machine->now->sealed++;
}
template <int left> DEV void wait_copies(int line = __builtin_LINE()) {
    emulation::Fiber &self = *emulation::machine->now;
    const int may_fly = left + emulation::has_mistake(emulation::Mistake::ShortWait, line);
    size_t kept = 0;
    for (const emulation::Copy &copy : self.copies) {
        if (self.sealed - may_fly <= copy.group)
            self.copies[kept++] = copy;
        else if (emulation::machine->schedule == emulation::Schedule::Late)
            land(copy);
    }
    self.copies.resize(kept);
}

struct Four { u32 at[4]; };

template <bool is_transposed> DEV void matrices(u32 (&to)[4], u32 row, const char *operation, int line) {
    if (emulation::has_mistake(emulation::Mistake::WrongLoad, line))
        row ^= 16;
    shared_chunk(row, operation, line);
    const Four four = emulation::together<Four>(operation, line, row, [](emulation::Warp &warp) {
        for (int matrix = 0; matrix < 4; matrix++) {
            unsigned short x[8][8];
            for (int i = 0; i < 8; i++) {
                u32 address;
                memcpy(&address, warp.brought[matrix * 8 + i], 4);
                memcpy(x[i], emulation::machine->shared + address, 16);
            }
            for (int lane = 0; lane < emulation::WARP_LANES; lane++) {
                const int group = lane / 4, pair = lane % 4 * 2;
                const u32 low = is_transposed ? x[pair][group] : x[group][pair];
                const u32 high = is_transposed ? x[pair + 1][group] : x[group][pair + 1];
                const u32 both = low | high << 16;
                memcpy(warp.taken[lane] + 4 * matrix, &both, 4);
            }
        }
    });
    memcpy(to, four.at, sizeof four);
}
DEV void load_matrices(u32 (&to)[4], u32 row, int line = __builtin_LINE()) {
    matrices<false>(to, row, "load_matrices", line);
}
DEV void load_transposed(u32 (&to)[4], u32 row, int line = __builtin_LINE()) {
    matrices<true>(to, row, "load_transposed", line);
}

DEV float widened(unsigned short bits, bf16) { return __uint_as_float((u32)bits << 16); }
DEV float widened(unsigned short bits, f16) { return widen_f16(bits); }

// The operands of a lane, and the product of a warp: 16 × 16 by 16 × 8.
struct Operands { float sum[4]; u32 left[4], right[2]; };

template <class T> DEV void multiply_warp(emulation::Warp &warp) {
    float left[16][16], right[8][16], sum[16][8];
    const auto put = [](float *to, u32 word) {
        to[0] = widened((unsigned short)word, T());
        to[1] = widened((unsigned short)(word >> 16), T());
    };
    for (int lane = 0; lane < emulation::WARP_LANES; lane++) {
        Operands in;
        memcpy(&in, warp.brought[lane], sizeof in);
        const int group = lane / 4, pair = lane % 4 * 2;
        for (int i = 0; i < 4; i++) {
            put(&left[group + i % 2 * 8][pair + i / 2 * 8], in.left[i]);
            sum[group + i / 2 * 8][pair + i % 2] = in.sum[i];
        }
        put(&right[group][pair], in.right[0]);
        put(&right[group][pair + 8], in.right[1]);
    }
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            float dot = 0.f;
            for (int k = 0; k < 16; k++)
                dot += left[m][k] * right[n][k];
            sum[m][n] += dot;
        }
    for (int lane = 0; lane < emulation::WARP_LANES; lane++)
        for (int i = 0; i < 4; i++)
            memcpy(warp.taken[lane] + 4 * i, &sum[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2], 4);
}
template <class T>
DEV void multiply_add(float (&sum)[4], const u32 (&left)[4], u32 right0, u32 right1, T, int line = __builtin_LINE()) {
    Operands in;
    memcpy(in.sum, sum, sizeof sum);
    memcpy(in.left, left, sizeof left);
    in.right[0] = right0;
    in.right[1] = right1;
    const Four out = emulation::together<Four>("multiply_add", line, in, multiply_warp<T>);
    memcpy(sum, out.at, sizeof sum);
}
