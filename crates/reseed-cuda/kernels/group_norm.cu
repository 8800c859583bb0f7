// group_stats, group_stats_combine: mean and variance of each frame and group of a tensor
// group_stats_join: the same from the sums that a convolution writes
// group_norm: y = act((x - mean) / sqrt(var + eps) * gain + shift)
// group_norm_int8: the same with SiLU, times `per_unit`, as bytes: those of 128 channels in the first half of their
//   256 bytes, so that y may be x
//
//   x, y     (frames, pixels, channels) E        gain, shift  (channels) f32
//   partial  [frame][block][channel][2] f32      stats  [frame][group][2] f32
//   grid     group_stats, group_norm (blocks of `chunk` pixels, frames); the others (groups, frames)
//   differs  from the reference by the order of the sums, which is fixed, and one rounding; squares are of deviations
//            from the first pixel of a block, so that nothing cancels
#include "element.cuh"

// A thread loads LANES channels at once.
template <class E, int LANES>
__device__ void group_stats(float* partial, const E* x, int pixels, int channels, int chunk) {
    __shared__ float sums[2][256 * LANES];
    const int first = blockIdx.x * chunk, count = min(chunk, pixels - first);
    const E* base = x + ((i64)blockIdx.y * pixels + first) * channels;
    float* out = partial + ((i64)blockIdx.y * gridDim.x + blockIdx.x) * channels * 2;
    for (int c0 = 0; c0 < channels; c0 += 256 * LANES) {
        const int width = min(256, (channels - c0) / LANES), rows = 256 / width;
        const int row = threadIdx.x / width, c = c0 + threadIdx.x % width * LANES;
        if (row < rows) {
            const auto origin = Vec<E, LANES>::load(base + c);
            float sum[LANES] = {}, square[LANES] = {};
            #pragma unroll 4                                           // loads in flight
            for (int p = row; p < count; p += rows) {
                const auto v = Vec<E, LANES>::load(base + (i64)p * channels + c);
                #pragma unroll
                for (int j = 0; j < LANES; j++) {
                    const float d = wide(v.at[j]) - wide(origin.at[j]);
                    sum[j] += d, square[j] += d * d;
                }
            }
            #pragma unroll
            for (int j = 0; j < LANES; j++) {
                sums[0][(row * width + threadIdx.x % width) * LANES + j] = sum[j];
                sums[1][(row * width + threadIdx.x % width) * LANES + j] = square[j];
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < width * LANES; i += 256) {
            float s = 0.f, q = 0.f;
            for (int r = 0; r < rows; r++) s += sums[0][r * width * LANES + i], q += sums[1][r * width * LANES + i];
            out[(c0 + i) * 2] = wide(base[c0 + i]) + s / count;
            out[(c0 + i) * 2 + 1] = fmaxf(q - s * s / count, 0.f);
        }
        __syncthreads();
    }
}

// Set when statistics are not finite.
__device__ int not_finite;

__device__ __forceinline__ void leave_stats(float* out, float mean, float variance) {
    out[0] = mean, out[1] = variance;
    if (!(fabsf(mean) + variance < __int_as_float(0x7f800000))) not_finite = 1;
}

struct Running { double count, mean, square; };

__device__ __forceinline__ Running join(Running a, Running b) {
    const double total = a.count + b.count;
    if (total == 0.) return a;
    const double delta = b.mean - a.mean, share = b.count / total;
    return {total, a.mean + delta * share, a.square + b.square + delta * delta * a.count * share};
}

// Mean and variance from the partial results of 128 threads.
__device__ __forceinline__ void finish_stats(float* out, Running mine) {
    __shared__ Running all[128];
    all[threadIdx.x] = mine;
    for (int half = 64; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) all[threadIdx.x] = join(all[threadIdx.x], all[threadIdx.x + half]);
    }
    if (threadIdx.x == 0) leave_stats(out, (float)all[0].mean, (float)(all[0].square / all[0].count));
}

extern "C" __global__ void __launch_bounds__(128)
group_stats_combine(float* stats, const float* partial, int blocks, int channels, int groups, int pixels, int chunk) {
    const int width = channels / groups, group = blockIdx.x, frame = blockIdx.y;
    Running mine = {0., 0., 0.};
    for (int i = threadIdx.x; i < blocks * width; i += 128) {
        const int block = i / width, c = group * width + i % width;
        const float* at = partial + (((i64)frame * blocks + block) * channels + c) * 2;
        mine = join(mine, {(double)min(chunk, pixels - block * chunk), at[0], at[1]});
    }
    finish_stats(stats + ((i64)frame * groups + group) * 2, mine);
}

// From the sums and sums of squares that convolutions write: [frame][group][slot], `count` values per group and frame.
extern "C" __global__ void __launch_bounds__(1024)
group_stats_join(float* stats, const float2* partial, int slots, i64 count) {
    __shared__ double2 all[1024];
    const i64 group = (i64)blockIdx.y * gridDim.x + blockIdx.x;
    double2 mine = {0., 0.};
    #pragma unroll 16                                                  // few blocks: each needs many loads in flight
    for (int i = threadIdx.x; i < slots; i += 1024) {
        const float2 at = partial[group * slots + i];
        mine.x += at.x, mine.y += at.y;
    }
    all[threadIdx.x] = mine;
    for (int half = 512; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            all[threadIdx.x].x += all[threadIdx.x + half].x, all[threadIdx.x].y += all[threadIdx.x + half].y;
    }
    if (threadIdx.x == 0) {
        const double mean = all[0].x / count, square = all[0].y / count;
        leave_stats(stats + group * 2, (float)mean, (float)(square > mean * mean ? square - mean * mean : square * 0.));
    }
}

__device__ __forceinline__ float activate(float z, int silu) { return silu ? __fdividef(z, 1.f + __expf(-z)) : z; }

// A thread keeps LANES channels and loops over the `chunk` pixels of its block.
template <class E, int LANES>
__device__ void group_norm(E* y, const E* x, const float* stats, const float* gain, const float* shift, int pixels,
                           int channels, int groups, int chunk, float eps, int silu) {
    const i64 frame = (i64)blockIdx.y * pixels * channels;
    const float* s = stats + (i64)blockIdx.y * groups * 2;
    const int width = channels / groups, first = blockIdx.x * chunk, last = min(first + chunk, pixels);
    for (int c0 = 0; c0 < channels; c0 += 256 * LANES) {
        const int span = min(256, (channels - c0) / LANES), rows = 256 / span;
        const int c = c0 + threadIdx.x % span * LANES, row = threadIdx.x / span;
        if (row >= rows) continue;
        float mean[LANES], slope[LANES], bias[LANES];
        #pragma unroll
        for (int j = 0; j < LANES; j++) {
            const int g = (c + j) / width;
            mean[j] = s[2 * g], slope[j] = gain[c + j] / sqrtf(s[2 * g + 1] + eps), bias[j] = shift[c + j];
        }
        #pragma unroll 4
        for (int p = first + row; p < last; p += rows) {
            const i64 at = frame + (i64)p * channels + c;
            auto v = Vec<E, LANES>::load(x + at);
            #pragma unroll
            for (int j = 0; j < LANES; j++)
                v.at[j] = narrow<E>(activate((wide(v.at[j]) - mean[j]) * slope[j] + bias[j], silu));
            v.store(y + at);
        }
    }
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Four values as signed bytes, rounded to nearest and clipped.
__device__ __forceinline__ u32 to_bytes(float a, float b, float c, float d) {
    int v[4] = {__float2int_rn(a), __float2int_rn(b), __float2int_rn(c), __float2int_rn(d)};
    #pragma unroll
    for (int i = 0; i < 4; i++) v[i] = min(max(v[i], -127), 127);
    return __byte_perm(__byte_perm(v[0], v[1], 0x0040), __byte_perm(v[2], v[3], 0x0040), 0x5410);
}

// As `group_norm` with eight lanes. `channels` are multiples of 128: sixteen threads own the 128 channels of a pixel,
// and all have read before one writes.
extern "C" __global__ void __launch_bounds__(256, 4)
group_norm_int8_f16(u8* y, const f16* x, const float* stats, const float* gain, const float* shift,
                    const float* per_unit, int pixels, int channels, int groups, int chunk, float eps) {
    constexpr int LANES = 8;
    const i64 frame = (i64)blockIdx.y * pixels * channels;
    const float* s = stats + (i64)blockIdx.y * groups * 2;
    const int width = channels / groups, first = blockIdx.x * chunk, last = min(first + chunk, pixels);
    const int span = channels / LANES, rows = 256 / span;
    const int c = threadIdx.x % span * LANES, row = threadIdx.x / span;
    if (row >= rows) return;
    const u32 together = 0xffffu << (threadIdx.x & 16);
    float mean[LANES], slope[LANES], bias[LANES], unit[LANES];
    #pragma unroll
    for (int j = 0; j < LANES; j++) {
        const int g = (c + j) / width;
        mean[j] = s[2 * g], slope[j] = gain[c + j] / sqrtf(s[2 * g + 1] + eps), bias[j] = shift[c + j];
        unit[j] = per_unit[c + j];
    }
    #pragma unroll 4
    for (int p = first + row; p < last; p += rows) {
        const i64 pixel = frame + (i64)p * channels;
        const auto v = Vec<f16, LANES>::load(x + pixel + c);
        float a[LANES];
        #pragma unroll
        for (int j = 0; j < LANES; j++) a[j] = activate((wide(v.at[j]) - mean[j]) * slope[j] + bias[j], 1) * unit[j];
        __syncwarp(together);
        *(uint2*)(y + 2 * pixel + c / 128 * 256 + c % 128) = {to_bytes(a[0], a[1], a[2], a[3]),
                                                              to_bytes(a[4], a[5], a[6], a[7])};
    }
}
#endif

#define GROUP_NORM(E, suffix) \
    extern "C" __global__ void __launch_bounds__(256) group_stats_##suffix(float* partial, const E* x, int pixels, \
                                                                           int channels, int chunk) { \
        channels % 8 == 0 ? group_stats<E, 8>(partial, x, pixels, channels, chunk) \
                          : group_stats<E, 1>(partial, x, pixels, channels, chunk); \
    } \
    extern "C" __global__ void __launch_bounds__(256, 4) \
    group_norm_##suffix(E* y, const E* x, const float* stats, const float* gain, const float* shift, int pixels, \
                        int channels, int groups, int chunk, float eps, int silu) { \
        channels % 8 == 0 ? group_norm<E, 8>(y, x, stats, gain, shift, pixels, channels, groups, chunk, eps, silu) \
                          : group_norm<E, 1>(y, x, stats, gain, shift, pixels, channels, groups, chunk, eps, silu); \
    }
GROUP_NORM(f16, f16)
SINCE_AMPERE(GROUP_NORM(bf16, bf16))
GROUP_NORM(float, f32)
