// dequantize: a quantised matrix to the type that products read
//
//   stored   whole blocks; reseed-ops/src/quant.rs defines them                            y  (count) E
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

// Four bytes as E4m3; the first byte is the lowest.
__device__ __forceinline__ void four_e4m3(float* v, u32 bytes) {
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        const u32 byte = bytes >> 8 * i & 255, size = byte & 127;
        v[i] = size == 127 ? __uint_as_float(0x7fc00000) : wide(f16{(u16)((byte & 128) << 8 | size << 7)}) * 256.f;
    }
}

// Blocks of 128 E4m3 behind four bytes: a scale, or the exponents of each 32 values. Blocks are aligned to four bytes.
template <bool EXPONENTS> struct BlockE4m3 {
    __device__ static void eight(float (&v)[8], const u8* stored, i64 first, int) {
        const u8* block = stored + first / 128 * 132;
        const int at = first % 128;
        const float scale = EXPONENTS ? __uint_as_float((u32)block[at / 32] << 23) : *(const float*)block;
        const u32* words = (const u32*)(block + 4 + at);
        four_e4m3(v, words[0]), four_e4m3(v + 4, words[1]);
        #pragma unroll
        for (int i = 0; i < 8; i++) v[i] *= scale;
    }
};

// Blocks of 64: a scale, four E4m3 scales of 16 values, then nibbles with the first value in the high one. The nibble
// without its sign, read as the upper bits of an f16, has an exponent that is 14 too small.
struct Nvfp4 {
    __device__ static void eight(float (&v)[8], const u8* stored, i64 first, int) {
        const u8* block = stored + first / 64 * 40;
        const int at = first % 64;
        float second[4];
        four_e4m3(second, *(const u32*)(block + 4));
        const int quarter = at / 16;
        const float low = quarter & 1 ? second[1] : second[0], high = quarter & 1 ? second[3] : second[2];
        const float scale = *(const float*)block * (quarter & 2 ? high : low);
        const u32 bytes = *(const u32*)(block + 8 + at / 2);
        #pragma unroll
        for (int i = 0; i < 8; i++) {
            const u32 nibble = bytes >> (i ^ 1) * 4 & 15;
            v[i] = wide(f16{(u16)((nibble & 8) << 12 | (nibble & 7) << 9)}) * 16384.f * scale;
        }
    }
};

// Blocks of 256: a scale and rotated bytes. A warp holds a block, eight values per lane, and multiplies it by the
// Hadamard matrix: along each base-4 digit of the index, a value becomes the sum of its four less twice the opposite
// one. Bits 0 to 2 of the index are in the lane, bits 3 to 7 are the lane. Integers are exact.
struct Int8ConvRot {
    __device__ static void eight(float (&v)[8], const u8* stored, i64 first, int) {
        const u8* block = stored + first / 256 * 260;
        const u32* words = (const u32*)(block + 4 + first % 256);
        int x[8];
        #pragma unroll
        for (int i = 0; i < 8; i++) x[i] = (signed char)(words[i / 4] >> 8 * (i % 4) & 255);
        #pragma unroll
        for (int i = 0; i < 8; i += 4) {
            const int sum = x[i] + x[i + 1] + x[i + 2] + x[i + 3];
            const int a = x[i], b = x[i + 1];
            x[i] = sum - 2 * x[i + 3], x[i + 1] = sum - 2 * x[i + 2], x[i + 2] = sum - 2 * b, x[i + 3] = sum - 2 * a;
        }
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            const int a = __shfl_xor_sync(~0u, x[i], 1), b = __shfl_xor_sync(~0u, x[i + 4], 1);
            const int sum = x[i] + x[i + 4] + a + b;
            x[i] = sum - 2 * b, x[i + 4] = sum - 2 * a;
        }
        #pragma unroll
        for (int bit = 2; bit <= 8; bit *= 4) {
            #pragma unroll
            for (int i = 0; i < 8; i++) {
                const int half = x[i] + __shfl_xor_sync(~0u, x[i], bit);
                const int sum = half + __shfl_xor_sync(~0u, half, 2 * bit);
                x[i] = sum - 2 * __shfl_xor_sync(~0u, x[i], 3 * bit);
            }
        }
        const float scale = *(const float*)block * .0625f;
        #pragma unroll
        for (int i = 0; i < 8; i++) v[i] = (float)x[i] * scale;
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

#define DEQUANTIZE_BY(Q, name, E)                                                                          \
    extern "C" __global__ void __launch_bounds__(256) dequantize_##name(E* y, const u8* stored, i64 count) { \
        dequantize<Q, E>(y, stored, count);                                                                \
    }
#define DEQUANTIZE(E, suffix)                               \
    DEQUANTIZE_BY(Q8_0, q8_0_##suffix, E)                   \
    DEQUANTIZE_BY(Q4K, q4_k_##suffix, E)                    \
    DEQUANTIZE_BY(E4m3, e4m3_##suffix, E)                   \
    DEQUANTIZE_BY(BlockE4m3<false>, scaled_e4m3_##suffix, E) \
    DEQUANTIZE_BY(BlockE4m3<true>, mxfp8_##suffix, E)       \
    DEQUANTIZE_BY(Nvfp4, nvfp4_##suffix, E)                 \
    DEQUANTIZE_BY(Int8ConvRot, int8_convrot_##suffix, E)
DEQUANTIZE(f16, f16)
SINCE_AMPERE(DEQUANTIZE(bf16, bf16))
DEQUANTIZE(float, f32)
