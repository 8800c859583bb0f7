// pad_channels: pixels of `from` channels widened to `to` channels with zeros, for kernels that read eight at a time
//
//   in           (pixels, from) E, dense        out  (pixels, to) E, dense
//   grid         threads stride over the values of out
//   differs      from the reference in nothing
#include "element.cuh"

#define PAD_CHANNELS(E, suffix) \
    extern "C" __global__ void pad_channels_##suffix(E* out, const E* in, i64 pixels, int from, int to) { \
        FOR_EACH(i, pixels * to) out[i] = i % to < from ? in[i / to * from + i % to] : narrow<E>(0.f); \
    }
PAD_CHANNELS(f16, f16)
SINCE_AMPERE(PAD_CHANNELS(bf16, bf16))
PAD_CHANNELS(float, f32)
