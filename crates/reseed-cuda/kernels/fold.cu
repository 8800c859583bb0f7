// fold: the sum of the first `parts` temporal taps of a weight, for the start of a clip, where they read one frame
//
//   w            (parts) slices of `count` values E, `stride` values apart        out  (count) E
//   grid         threads stride over the values of out
//   differs      from the reference by one rounding; sums are f32
#include "element.cuh"

#define FOLD(E, suffix) \
    extern "C" __global__ void fold_##suffix(E* out, const E* w, i64 count, int parts, i64 stride) { \
        FOR_EACH(i, count) { \
            float sum = 0.f; \
            for (int p = 0; p < parts; p++) sum += wide(w[i + p * stride]); \
            out[i] = narrow<E>(sum); \
        } \
    }
FOLD(f16, f16)
SINCE_AMPERE(FOLD(bf16, bf16))
FOLD(float, f32)
