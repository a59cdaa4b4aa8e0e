// Conversions between f32 and ELEMENT, `count` elements. A thread has a pack.

// to = from, rounded to nearest, ties to even.
KERNEL void narrow_all(const float *from, element *to, u64 count) {
    for (u64 at = thread_of_launch() * PACK; at < count; at += threads_of_launch() * PACK) {
        float value[PACK];
        load_floats(value, from, at, count);
        store_some(to, value, at, count);
    }
}

// to = from, exact.
KERNEL void widen_all(const element *from, float *to, u64 count) {
    for (u64 at = thread_of_launch() * PACK; at < count; at += threads_of_launch() * PACK) {
        float value[PACK];
        load_some(value, from, at, count);
        store_floats(to, value, at, count);
    }
}
