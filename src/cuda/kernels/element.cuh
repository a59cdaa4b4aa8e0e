// Elements of the type ELEMENT (float, bf16 or f16), and sums over a warp. Elements are widened to f32, and
// results are rounded once.

typedef ELEMENT element;
// Elements of 16 bytes, which a thread loads at once.
constexpr int PACK = 16 / sizeof(element);
constexpr int WARP = 32;

DEV float widen(float value) { return value; }
DEV float widen(bf16 value) { return __uint_as_float((u32)value.bits << 16); }
DEV float widen(f16 value) { return widen_f16(value.bits); }

DEV void narrow(float &to, float value) { to = value; }
DEV void narrow(bf16 &to, float value) { to.bits = narrow_bf16(value); }
DEV void narrow(f16 &to, float value) { to.bits = narrow_f16(value); }

DEV void unpack(float (&to)[4], Words words, float) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        to[i] = __uint_as_float(words.at[i]);
}
DEV void unpack(float (&to)[8], Words words, bf16) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[2 * i] = __uint_as_float(words.at[i] << 16);
        to[2 * i + 1] = __uint_as_float(words.at[i] & 0xffff0000u);
    }
}
DEV void unpack(float (&to)[8], Words words, f16) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        to[2 * i] = widen_f16((unsigned short)words.at[i]);
        to[2 * i + 1] = widen_f16((unsigned short)(words.at[i] >> 16));
    }
}
DEV Words packed(const float (&from)[4], float) {
    Words words;
#pragma unroll
    for (int i = 0; i < 4; i++)
        words.at[i] = __float_as_uint(from[i]);
    return words;
}
template <class T> DEV Words packed(const float (&from)[8], T type) {
    Words words;
#pragma unroll
    for (int i = 0; i < 4; i++)
        words.at[i] = narrow_two(from[2 * i], from[2 * i + 1], type);
    return words;
}

// PACK elements from or to an address that is aligned to 16 bytes.
DEV void load_pack(float (&to)[PACK], const element *from) { unpack(to, load16(from), element()); }
DEV void store_pack(element *to, const float (&from)[PACK]) { store16(to, packed(from, element())); }

// Elements `at`..`at + PACK` of `count`; what is beyond the end is 0, and is not stored.
DEV void load_some(float (&to)[PACK], const element *from, u64 at, u64 count) {
    if (at + PACK <= count)
        return load_pack(to, from + at);
    for (int i = 0; i < PACK; i++)
        to[i] = at + i < count ? widen(from[at + i]) : 0.f;
}
DEV void store_some(element *to, const float (&from)[PACK], u64 at, u64 count) {
    if (at + PACK <= count)
        return store_pack(to + at, from);
    for (int i = 0; i < PACK; i++)
        if (at + i < count)
            narrow(to[at + i], from[i]);
}

// The same for PACK floats, which are several packs if ELEMENT has 16 bits.
DEV void load_floats(float (&to)[PACK], const float *from, u64 at, u64 count) {
    if (at + PACK <= count) {
#pragma unroll
        for (int i = 0; i < PACK; i += 4) {
            const Words words = load16(from + at + i);
            for (int j = 0; j < 4; j++)
                to[i + j] = __uint_as_float(words.at[j]);
        }
        return;
    }
    for (int i = 0; i < PACK; i++)
        to[i] = at + i < count ? from[at + i] : 0.f;
}
DEV void store_floats(float *to, const float (&from)[PACK], u64 at, u64 count) {
    if (at + PACK <= count) {
#pragma unroll
        for (int i = 0; i < PACK; i += 4) {
            const float four[4] = {from[i], from[i + 1], from[i + 2], from[i + 3]};
            store16(to + at + i, packed(four, 0.f));
        }
        return;
    }
    for (int i = 0; i < PACK; i++)
        if (at + i < count)
            to[at + i] = from[i];
}

// Number of this thread in the launch, and the number of all threads; for launches of one dimension.
DEV u64 thread_of_launch() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
DEV u64 threads_of_launch() { return (u64)gridDim.x * blockDim.x; }

// Sum over the lanes of a warp, which all lanes get: pairs of lanes that are 16 apart, then 8, 4, 2 and 1.
DEV float warp_sum(float value) {
#pragma unroll
    for (int mask = WARP / 2; 0 < mask; mask /= 2)
        value += shuffle_xor(value, mask);
    return value;
}
