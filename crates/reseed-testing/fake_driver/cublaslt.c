// A cuBLASLt for tests, used with the driver of cuda.c: it accepts every product and computes nothing.
//
//   RESEED_STUB_PRODUCTS=FILE   at exit: the number of products
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Answer;

static int products;

__attribute__((destructor)) static void report(void) {
    const char* path = getenv("RESEED_STUB_PRODUCTS");
    FILE* file = path ? fopen(path, "w") : NULL;
    if (file) fprintf(file, "%d", products), fclose(file);
}

size_t cublasLtGetVersion(void) { return 120804; }
Answer cublasLtMatmul(void) { return products++, 0; }

// Two algorithms: 64 bytes, the size of their workspace, and zeros for success.
Answer cublasLtMatmulAlgoGetHeuristic(void* library, void* product, void* a, void* b, void* c, void* d,
                                      void* preference, int most, char* found, int* count) {
    for (*count = 0; *count < most && *count < 2; ++*count) memset(found + 96 * *count, 0, 96), found[96 * *count] = 7;
    return 0;
}

#define HANDLE(name) Answer name(void** handle) { return *handle = malloc(1), 0; }
HANDLE(cublasLtCreate)
HANDLE(cublasLtMatmulDescCreate)
HANDLE(cublasLtMatrixLayoutCreate)
HANDLE(cublasLtMatmulPreferenceCreate)

#define DONE(name) Answer name(void* handle) { return free(handle), 0; }
DONE(cublasLtDestroy)
DONE(cublasLtMatmulDescDestroy)
DONE(cublasLtMatrixLayoutDestroy)
DONE(cublasLtMatmulPreferenceDestroy)

#define NOTHING(name) Answer name(void) { return 0; }
NOTHING(cublasLtMatmulDescSetAttribute)
NOTHING(cublasLtMatmulPreferenceSetAttribute)
