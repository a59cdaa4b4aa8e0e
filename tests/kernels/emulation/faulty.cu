// Kernels that a device does not execute correctly. The emulated device must end each of them with an error.

// Some threads never come to the barrier.
KERNEL void barrier_without_all(float *to) {
    if (threadIdx.x < 40)
        SYNC();
    to[threadIdx.x] = 0.f;
}
// Threads are at two barriers.
KERNEL void two_barriers(float *to) {
    if (threadIdx.x < 32)
        SYNC();
    else
        SYNC();
    to[threadIdx.x] = 0.f;
}
// A lane is absent.
KERNEL void shuffle_without_all(float *to) {
    if (threadIdx.x != 5)
        to[threadIdx.x] = shuffle_xor(1.f, 1);
}
// Lanes of a warp are at two collectives.
KERNEL void two_collectives(float *to) {
    if (threadIdx.x % 2 == 0)
        to[threadIdx.x] = shuffle_xor(1.f, 2);
    else
        to[threadIdx.x] = shuffle_xor(2.f, 2);
}
KERNEL void write_after_end(float *to) { to[blockDim.x + threadIdx.x] = 1.f; }
KERNEL void write_before_start(float *to) { to[-2] = 1.f; }
KERNEL void read_far_away(float *to) { to[0] = to[1 << 16]; }
KERNEL void misaligned_load(float *to) { store16(to, load16(to + 1)); }
KERNEL void misaligned_copy(float *to) {
    SHARED_MEMORY;
    copy16(shared_address(shared_memory) + 8, to);
    wait_copies<0>();
}
KERNEL void copy_outside(float *to) { copy16(4096, to); }
KERNEL void write_shared_outside(float *to) {
    SHARED_MEMORY;
    ((float *)shared_memory)[4096 / 4 + threadIdx.x] = to[0];
}
KERNEL void copy_without_wait(float *to) { copy16(0, to); }
KERNEL void deep_stack(float *to) {
    volatile float large[20000];
    large[0] = to[0];
    to[1] = large[0];
}
