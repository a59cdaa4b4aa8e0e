// Functions of single elements, chosen by the macro ACTIVATION: gelu_tanh, gelu, relu or identity. A thread has a
// pack.

constexpr float LOG2_E = 1.44269504088896341f;

// GELU as GPT-2 approximates it: x·σ(2u) with u = √(2/π)·(x + 0.044715·x³), which is x·(1 + tanh u)/2.
struct gelu_tanh {
    static constexpr float CUBIC = 0.044715f, TWICE_ROOT = 1.59576912160573071f;
    // exp(-2u). Beyond 2⁶⁴ σ is 0 in every product, and products with the power would overflow.
    static DEV_MEMBER float decay(float x) {
        return exp2_fast(fminf(-TWICE_ROOT * LOG2_E * x * (1.f + CUBIC * x * x), 64.f));
    }
    static DEV_MEMBER float value(float x) { return x / (1.f + decay(x)); }
    static DEV_MEMBER float derivative(float x) {
        const float power = decay(x), sigmoid = 1.f / (1.f + power);
        return sigmoid + x * TWICE_ROOT * (1.f + 3.f * CUBIC * x * x) * (sigmoid * sigmoid * power);
    }
};

// GELU with the exact normal distribution: x·Φ(x).
struct gelu {
    static DEV_MEMBER float distribution(float x) {
        return 0.5f * erfcf(x * -0.707106781186547524f);
    }
    static DEV_MEMBER float value(float x) { return x * distribution(x); }
    static DEV_MEMBER float derivative(float x) {
        const float density = 0.398942280401432678f * exp2_fast(-0.5f * LOG2_E * x * x);
        return distribution(x) + x * density;
    }
};

struct relu {
    static DEV_MEMBER float value(float x) { return 0.f < x ? x : 0.f; }
    static DEV_MEMBER float derivative(float x) { return 0.f < x ? 1.f : 0.f; }
};

struct identity {
    static DEV_MEMBER float value(float x) { return x; }
    static DEV_MEMBER float derivative(float) { return 1.f; }
};

// y = f(x), `count` elements; y may be x.
KERNEL void activation_forward(const element *x, element *y, u64 count) {
    for (u64 at = thread_of_launch() * PACK; at < count; at += threads_of_launch() * PACK) {
        float value[PACK];
        load_some(value, x, at, count);
        for (int i = 0; i < PACK; i++)
            value[i] = ACTIVATION::value(value[i]);
        store_some(y, value, at, count);
    }
}

// dx = dy · f'(x), `count` elements; dx may be dy. For relu, x may also be the output of the forward pass.
KERNEL void activation_backward(const element *x, const element *dy, element *dx, u64 count) {
    for (u64 at = thread_of_launch() * PACK; at < count; at += threads_of_launch() * PACK) {
        float value[PACK], gradient[PACK];
        load_some(value, x, at, count);
        load_some(gradient, dy, at, count);
        for (int i = 0; i < PACK; i++)
            gradient[i] *= ACTIVATION::derivative(value[i]);
        store_some(dx, gradient, at, count);
    }
}

// x += bias, rounded, and y = f(x); x, y: rows × width, bias: width, a multiple of PACK. y may be null or x.
KERNEL void bias_activation(element *x, const element *bias, element *y, int rows, int width) {
    const u64 count = (u64)rows * width;
    for (u64 at = thread_of_launch() * PACK; at < count; at += threads_of_launch() * PACK) {
        float value[PACK], shift[PACK];
        load_pack(value, x + at);
        load_pack(shift, bias + at % width);
        for (int i = 0; i < PACK; i++)
            value[i] += shift[i];
        if (y != x)
            store_pack(x + at, value);
        if (!y)
            continue;
        // The function takes the rounded sum, which the backward pass reads.
        unpack(value, packed(value, element()), element());
        for (int i = 0; i < PACK; i++)
            value[i] = ACTIVATION::value(value[i]);
        store_pack(y + at, value);
    }
}
