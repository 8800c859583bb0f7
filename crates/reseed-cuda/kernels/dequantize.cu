// dequantize: a quantised matrix to the type that products read
//
//   stored   whole blocks, as files hold them; reseed-ops/src/quant.rs defines them        y  (count) E
//   grid     eight values per thread, 256 threads per block
//   differs  from the reference in nothing: products are exact in f32, and every value is rounded once
#include "element.cuh"

__device__ __forceinline__ float half_at(const u8* at) { return wide(f16{*(const u16*)at}); }
__device__ __forceinline__ u32 byte_of(uint2 eight, int i) { return (i < 4 ? eight.x : eight.y) >> 8 * (i % 4) & 255; }

// Blocks of an f16 scale and 32 bytes; a block is aligned to two bytes.
struct Q8_0 {
    __device__ static void eight(float (&v)[8], const u8* stored, i64 first, int) {
        const u8* block = stored + first / 32 * 34;
        const float scale = half_at(block);
        const u16* pairs = (const u16*)(block + 2 + first % 32);
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 pair = pairs[i];
            v[2 * i] = scale * (float)(signed char)(pair & 255), v[2 * i + 1] = scale * (float)(signed char)(pair >> 8);
        }
    }
};

// Blocks of 256: scale, minimum, those of eight sub-blocks in 12 bytes, then nibbles.
struct Q4K {
    __device__ static void eight(float (&v)[8], const u8* stored, i64 first, int) {
        const u8* block = stored + first / 256 * 144;
        const u8* six = block + 4;
        const int at = first % 256, j = at / 32;
        const u32 s = j < 4 ? six[j] & 63 : (six[j + 4] & 15) | six[j - 4] >> 6 << 4;
        const u32 m = j < 4 ? six[j + 4] & 63 : six[j + 4] >> 4 | six[j] >> 6 << 4;
        const float scale = half_at(block) * s, minimum = half_at(block + 2) * m;
        const uint2 bytes = *(const uint2*)(block + 16 + j / 2 * 32 + at % 32);
        #pragma unroll
        for (int i = 0; i < 8; i++) v[i] = scale * (byte_of(bytes, i) >> 4 * (j % 2) & 15) - minimum;
    }
};

// Bytes with a sign, an exponent of 4 bits and a mantissa of 3; read as f16, the exponent is eight too small.
struct E4m3 {
    __device__ static void eight(float (&v)[8], const u8* stored, i64 first, int count) {
        uint2 bytes = {0, 0};
        if (count == 8) bytes = *(const uint2*)(stored + first);
        else for (int i = 0; i < count; i++) (i < 4 ? bytes.x : bytes.y) |= (u32)stored[first + i] << 8 * (i % 4);
        #pragma unroll
        for (int i = 0; i < 8; i++) {
            const u32 byte = byte_of(bytes, i), size = byte & 127;
            v[i] = size == 127 ? __uint_as_float(0x7fc00000) : wide(f16{(u16)((byte & 128) << 8 | size << 7)}) * 256.f;
        }
    }
};

template <class Q, class E>
__device__ void dequantize(E* y, const u8* stored, i64 count) {
    const i64 first = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (first >= count) return;
    const int left = count - first < 8 ? (int)(count - first) : 8;
    float v[8];
    Q::eight(v, stored, first, left);
    Vec<E, 8> out;
    #pragma unroll
    for (int i = 0; i < 8; i++) out.at[i] = narrow<E>(v[i]);
    if (left == 8) return out.store(y + first);
    #pragma unroll
    for (int i = 0; i < 8; i++) if (i < left) y[first + i] = out.at[i];
}

#define DEQUANTIZE(E, suffix)                                                                                       \
    extern "C" __global__ void __launch_bounds__(256) dequantize_q8_0_##suffix(E* y, const u8* stored, i64 count) { \
        dequantize<Q8_0, E>(y, stored, count);                                                                      \
    }                                                                                                               \
    extern "C" __global__ void __launch_bounds__(256) dequantize_q4_k_##suffix(E* y, const u8* stored, i64 count) { \
        dequantize<Q4K, E>(y, stored, count);                                                                       \
    }                                                                                                               \
    extern "C" __global__ void __launch_bounds__(256) dequantize_e4m3_##suffix(E* y, const u8* stored, i64 count) { \
        dequantize<E4m3, E>(y, stored, count);                                                                      \
    }
DEQUANTIZE(f16, f16)
DEQUANTIZE(bf16, bf16)
DEQUANTIZE(float, f32)
