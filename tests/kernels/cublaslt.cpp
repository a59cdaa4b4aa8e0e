// A library with the functions of cuBLASLt, which computes f32 in the memory of the host as NVIDIA documents it. It
// proposes the algorithms 100, 101 and 102; none for results of 13 columns, and none with an epilogue for results of 24
// rows. VERSION is that of the library.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

struct Heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};
struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t stride;
    int32_t count;
    int64_t matrix_stride;
};
struct Product {
    int transposes[2], epilogue;
    float *bias, *before;
    int64_t before_stride;
};

// What an algorithm may rely on: alignments of the operands and of the result.
struct Preference {
    uint32_t alignments[4];
};

static int object;
static const int INVALID = 7, NOT_SUPPORTED = 15;
static const int DEFAULT = 1, BIAS = 4, GELU_AUX_BIAS = 164, DGELU = 192;

static bool is_aligned(const void *at) { return at && (uintptr_t)at % 16 == 0; }

// Whether the description has what its epilogue needs, for a result of this layout.
static bool is_complete(const Product &of, const Layout &result) {
    const bool has_before = of.epilogue == GELU_AUX_BIAS || of.epilogue == DGELU;
    if (of.epilogue != DEFAULT && of.epilogue != BIAS && !has_before)
        return false;
    if ((of.epilogue & BIAS) && !is_aligned(of.bias))
        return false;
    return !has_before ||
           (is_aligned(of.before) && of.before_stride % 8 == 0 && (int64_t)result.rows <= of.before_stride);
}

static double gelu(double x) {
    return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x) { return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5; }

// One product, by an algorithm that relies on alignments.
static int multiply(Product &of, float alpha, const float *a, const Layout &la, const float *b, const Layout &lb,
                    float beta, float *d, const Layout &ld, const uint64_t *algorithm) {
    if ((uintptr_t)a % algorithm[1] || (uintptr_t)b % algorithm[2] || (uintptr_t)d % algorithm[3])
        return INVALID;
    const auto at = [](const float *matrix, const Layout &layout, int is_transposed, uint64_t row, uint64_t column) {
        return (double)matrix[is_transposed ? column + row * layout.stride : row + column * layout.stride];
    };
    const uint64_t inner = of.transposes[0] ? la.rows : la.columns;
    for (uint64_t column = 0; column < ld.columns; column++)
        for (uint64_t row = 0; row < ld.rows; row++) {
            float &result = d[row + column * ld.stride];
            double sum = beta != 0 ? beta * result : 0.0;
            for (uint64_t k = 0; k < inner; k++)
                sum += alpha * at(a, la, of.transposes[0], row, k) * at(b, lb, of.transposes[1], k, column);
            if (of.epilogue & BIAS)
                sum += of.bias[row];
            float *before = of.before + (row + column * of.before_stride);
            if (of.epilogue == GELU_AUX_BIAS) {
                *before = (float)sum;
                sum = gelu(sum);
            }
            if (of.epilogue == DGELU)
                sum *= gelu_slope(*before);
            result = (float)sum;
        }
    return 0;
}

extern "C" {
size_t cublasLtGetVersion() { return VERSION; }
const char *cublasLtGetStatusString(int) { return "not supported"; }
int cublasLtCreate(void **handle) { *handle = &object; return 0; }
int cublasLtDestroy(void *) { return 0; }
int cublasLtMatmulDescCreate(void **made, int, int) {
    *made = new Product{{0, 0}, DEFAULT, nullptr, nullptr, 0};
    return 0;
}
int cublasLtMatmulDescDestroy(void *product) { delete (Product *)product; return 0; }
int cublasLtMatmulDescSetAttribute(void *product, int attribute, const void *value, size_t bytes) {
    Product &of = *(Product *)product;
    struct { int attribute; void *at; size_t bytes; } known[] = {
        {3, &of.transposes[0], 4}, {4, &of.transposes[1], 4}, {7, &of.epilogue, 4},
        {8, &of.bias, 8},          {11, &of.before, 8},       {12, &of.before_stride, 8},
    };
    for (auto &one : known)
        if (one.attribute == attribute && one.bytes == bytes) {
            memcpy(one.at, value, bytes);
            return 0;
        }
    return INVALID;
}
int cublasLtMatrixLayoutCreate(void **made, int type, uint64_t rows, uint64_t columns, int64_t stride) {
    *made = new Layout{type, rows, columns, stride, 1, 0};
    return 0;
}
int cublasLtMatrixLayoutSetAttribute(void *layout, int attribute, const void *value, size_t bytes) {
    Layout &of = *(Layout *)layout;
    if (attribute == 5 && bytes == 4)
        memcpy(&of.count, value, bytes);
    else if (attribute == 6 && bytes == 8)
        memcpy(&of.matrix_stride, value, bytes);
    else
        return INVALID;
    return 0;
}
int cublasLtMatrixLayoutDestroy(void *layout) { delete (Layout *)layout; return 0; }
int cublasLtMatmulPreferenceCreate(void **made) {
    *made = new Preference{{256, 256, 256, 256}};
    return 0;
}
int cublasLtMatmulPreferenceDestroy(void *preference) { delete (Preference *)preference; return 0; }
int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value, size_t bytes) {
    if (5 <= attribute && attribute <= 8 && bytes == 4)
        memcpy(&((Preference *)preference)->alignments[attribute - 5], value, bytes);
    return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void *, void *product, void *a, void *b, void *c, void *, void *preference, int most,
                                   Heuristic *found, int *count) {
    const Layout &result = *(Layout *)c;
    const Product &of = *(Product *)product;
    *count = 0;
    if (!is_complete(of, result) || ((Layout *)a)->count != result.count || ((Layout *)b)->count != result.count)
        return INVALID;
    const uint32_t *alignments = ((Preference *)preference)->alignments;
    if (result.columns == 13 || (result.rows == 24 && of.epilogue != DEFAULT))
        return NOT_SUPPORTED;
    for (; *count < most && *count < 3; ++*count) {
        memset(&found[*count], 0, sizeof *found);
        found[*count].algorithm[0] = 100 + *count;
        for (int operand = 0; operand < 3; operand++)
            found[*count].algorithm[1 + operand] = alignments[operand];
    }
    return 0;
}
int cublasLtMatmulAlgoCheck(void *, void *, void *, void *, void *, void *, const uint64_t *algorithm, Heuristic *) {
    return 100 <= algorithm[0] && algorithm[0] < 103 ? 0 : NOT_SUPPORTED;
}
int cublasLtMatmul(void *, void *product, const void *alpha, const void *a, void *of_a, const void *b, void *of_b,
                   const void *beta, const void *, void *, void *d, void *of_d, const uint64_t *algorithm, void *,
                   size_t, void *) {
    const Layout &la = *(Layout *)of_a, &lb = *(Layout *)of_b, &ld = *(Layout *)of_d;
    Product &of = *(Product *)product;
    if (la.type || lb.type || ld.type || !is_complete(of, ld))
        return INVALID;
    for (int64_t number = 0; number < ld.count; number++) {
        const int status = multiply(of, *(const float *)alpha, (const float *)a + number * la.matrix_stride, la,
                                    (const float *)b + number * lb.matrix_stride, lb, *(const float *)beta,
                                    (float *)d + number * ld.matrix_stride, ld, algorithm);
        if (status)
            return status;
    }
    return 0;
}
}
