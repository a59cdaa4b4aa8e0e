// A library with the functions of cuBLASLt that describe products and propose algorithms, which computes nothing. It
// proposes the algorithms 100, 101 and 102, and none for results of 13 columns. VERSION is that of the library.

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
struct Layout { uint64_t rows, columns; };

static int object;
static const int NOT_SUPPORTED = 15;

extern "C" {
size_t cublasLtGetVersion() { return VERSION; }
const char *cublasLtGetStatusString(int) { return "not supported"; }
int cublasLtCreate(void **handle) { *handle = &object; return 0; }
int cublasLtDestroy(void *) { return 0; }
int cublasLtMatmulDescCreate(void **made, int, int) { *made = &object; return 0; }
int cublasLtMatmulDescDestroy(void *) { return 0; }
int cublasLtMatmulDescSetAttribute(void *, int, const void *, size_t) { return 0; }
int cublasLtMatrixLayoutCreate(void **made, int, uint64_t rows, uint64_t columns, int64_t) {
    *made = new Layout{rows, columns};
    return 0;
}
int cublasLtMatrixLayoutDestroy(void *layout) { delete (Layout *)layout; return 0; }
int cublasLtMatmulPreferenceCreate(void **made) { *made = &object; return 0; }
int cublasLtMatmulPreferenceDestroy(void *) { return 0; }
int cublasLtMatmulPreferenceSetAttribute(void *, int, const void *, size_t) { return 0; }
int cublasLtMatmulAlgoGetHeuristic(void *, void *, void *, void *, void *c, void *, void *, int most, Heuristic *found,
                                   int *count) {
    *count = 0;
    if (((Layout *)c)->columns == 13)
        return NOT_SUPPORTED;
    for (; *count < most && *count < 3; ++*count) {
        memset(&found[*count], 0, sizeof *found);
        found[*count].algorithm[0] = 100 + *count;
    }
    return 0;
}
int cublasLtMatmulAlgoCheck(void *, void *, void *, void *, void *, void *, const uint64_t *algorithm, Heuristic *) {
    return 100 <= algorithm[0] && algorithm[0] < 103 ? 0 : NOT_SUPPORTED;
}
int cublasLtMatmul(void *, void *, const void *, const void *, void *, const void *, void *, const void *,
                   const void *, void *, void *, void *, const uint64_t *, void *, size_t, void *) {
    return NOT_SUPPORTED;
}
}
