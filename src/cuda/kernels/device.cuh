// What a device does in one instruction. The emulated device of the tests has the same names
// (`tests/kernels/emulation/instructions.hpp`), so a kernel uses nothing else of CUDA but thread indices and the
// functions of C.

typedef unsigned int u32;
typedef unsigned long long u64;
// The bits of 16-bit floats, as types of their own.
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
// 16 bytes, which one instruction loads or stores.
struct __align__(16) Words { u32 at[4]; };

#define KERNEL extern "C" __global__
// A function that only some kernels use.
#define DEV [[maybe_unused]] static __device__ __forceinline__
// The same inside a struct.
#define DEV_MEMBER __device__ __forceinline__
// Threads of a block, as a limit for the compiler's registers.
#define LAUNCH_BOUNDS(threads) __launch_bounds__(threads)
// Memory that the threads of a block share; its size is part of the launch.
#define SHARED_MEMORY extern __shared__ __align__(1024) unsigned char shared_memory[]
// All threads of the block have come here, and see what the others have written to shared memory.
#define SYNC() __syncthreads()

// Conversions round to nearest, ties to even; NaN stays NaN.
DEV float widen_f16(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
DEV unsigned short narrow_f16(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
DEV unsigned short narrow_bf16(float value) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
// Two numbers in a word; `low` is in the low half, which is first in memory.
DEV u32 narrow_two(float low, float high, f16) {
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
DEV u32 narrow_two(float low, float high, bf16) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

// Powers and logarithms to base 2, to about 2 units of the last place.
DEV float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float log2_fast(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Addresses are aligned to 16 bytes.
DEV Words load16(const void *from) { return *(const Words *)from; }
DEV void store16(void *to, Words words) { *(Words *)to = words; }

// The value of the lane whose number differs in the bits of `mask`. All lanes of the warp take part.
DEV float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
DEV double shuffle_xor(double value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

// Address of shared memory as the instructions below take it.
DEV u32 shared_address(const void *pointer) { return (u32)__cvta_generic_to_shared(pointer); }

// Starts to copy 16 bytes to shared memory. `bytes` is 16, or 0 to write zeros and read nothing.
DEV void copy16(u32 to, const void *from, u32 bytes = 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
// Makes one group of the copies that this thread has started since the last group.
DEV void seal_copies() { asm volatile("cp.async.commit_group;"); }
// Waits until this thread has at most `left` groups under way.
template <int left> DEV void wait_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(left)); }

// Four 8 × 8 matrices of 16-bit numbers. Lane l brings the address of row l % 8 of matrix l / 8, and gets of
// each matrix the numbers 2 (l % 4) and 2 (l % 4) + 1 of row l / 4; transposed: of column l / 4.
DEV void load_matrices(u32 (&to)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row));
}
DEV void load_transposed(u32 (&to)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row));
}
// sum += left · right on the tensor cores: 16 × 16 by 16 × 8, sums in f32.
DEV void multiply_add(float (&sum)[4], const u32 (&left)[4], u32 right0, u32 right1, bf16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}
DEV void multiply_add(float (&sum)[4], const u32 (&left)[4], u32 right0, u32 right1, f16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}
