// group_stats, group_stats_combine, group_stats_join: mean and variance of each frame and group, in a fixed order and
// without atomics
// group_norm: y = act((x - mean) / sqrt(var + eps) * gain + shift)
//
//   x, y     (frames, pixels, channels) E        partial  [frame][block][channel][2] f32        stats [frame][group][2] f32
//   differs  from the reference by the order of the sums and one rounding; squares are of deviations from a block's first
//            pixel, so that nothing cancels
#include "element.cuh"

constexpr int NORM_PIXELS = 256;                                        // pixels of a block of group_norm

template <class E>
__device__ void group_stats(float* partial, const E* x, int pixels, int channels, int chunk) {
    __shared__ float sums[2][2048];
    const int first = blockIdx.x * chunk, count = min(chunk, pixels - first);
    const E* base = x + ((i64)blockIdx.y * pixels + first) * channels;
    float* out = partial + ((i64)blockIdx.y * gridDim.x + blockIdx.x) * channels * 2;
    const int lanes = channels % 8 == 0 ? 8 : 1;                       // channels a thread reads at once
    for (int c0 = 0; c0 < channels; c0 += 256 * lanes) {
        const int width = min(256, (channels - c0) / lanes), rows = 256 / width;
        const int row = threadIdx.x / width, c = c0 + threadIdx.x % width * lanes;
        float origin[8], sum[8] = {}, square[8] = {};
        if (row < rows) {
            for (int j = 0; j < lanes; j++) origin[j] = wide(base[c + j]);
            #pragma unroll 4                                           // loads in flight
            for (int p = row; p < count; p += rows) {
                const E* at = base + (i64)p * channels + c;
                if (lanes == 8) {
                    const Eight<E> v = *(const Eight<E>*)at;
                    #pragma unroll
                    for (int j = 0; j < 8; j++) {
                        const float d = wide(v.at[j]) - origin[j];
                        sum[j] += d, square[j] += d * d;
                    }
                } else {
                    const float d = wide(*at) - origin[0];
                    sum[0] += d, square[0] += d * d;
                }
            }
            for (int j = 0; j < lanes; j++) {
                sums[0][(row * width + threadIdx.x % width) * lanes + j] = sum[j];
                sums[1][(row * width + threadIdx.x % width) * lanes + j] = square[j];
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < width * lanes; i += 256) {
            float s = 0.f, q = 0.f;
            for (int r = 0; r < rows; r++) s += sums[0][r * width * lanes + i], q += sums[1][r * width * lanes + i];
            out[(c0 + i) * 2] = wide(base[c0 + i]) + s / count;
            out[(c0 + i) * 2 + 1] = fmaxf(q - s * s / count, 0.f);
        }
        __syncthreads();
    }
}

// Set by statistics that are not finite, cleared by who reads it.
__device__ int not_finite;

struct Running { double count, mean, square; };

__device__ __forceinline__ Running join(Running a, Running b) {
    const double total = a.count + b.count;
    if (total == 0.) return a;
    const double delta = b.mean - a.mean, share = b.count / total;
    return {total, a.mean + delta * share, a.square + b.square + delta * delta * a.count * share};
}

// Mean and variance from what each of 128 threads has joined.
__device__ __forceinline__ void finish_stats(float* out, Running mine) {
    __shared__ Running all[128];
    all[threadIdx.x] = mine;
    for (int half = 64; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) all[threadIdx.x] = join(all[threadIdx.x], all[threadIdx.x + half]);
    }
    if (threadIdx.x == 0) {
        out[0] = (float)all[0].mean, out[1] = (float)(all[0].square / all[0].count);
        if (!(fabsf(out[0]) + out[1] < __int_as_float(0x7f800000))) not_finite = 1;
    }
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

// From what conv_halo leaves: [frame][group][slot], slots of 2 rows by 16 columns of each of `phases` planes of h x w pixels,
// a plane's rows filled up to a multiple of 16.
extern "C" __global__ void __launch_bounds__(128)
group_stats_join(float* stats, const float2* partial, int h, int w, int phases, int width) {
    const int columns = (w + 15) / 16, rows = (h + 15) / 16 * 8, slots = phases * rows * columns;
    const i64 group = (i64)blockIdx.y * gridDim.x + blockIdx.x;
    Running mine = {0., 0., 0.};
    #pragma unroll 4
    for (int i = threadIdx.x; i < slots; i += 128) {
        const int high = min(2, h - i / columns % rows * 2), wide = min(16, w - i % columns * 16);
        const float2 at = partial[group * slots + i];
        mine = join(mine, {(double)(max(high, 0) * wide * width), at.x, at.y});
    }
    finish_stats(stats + group * 2, mine);
}

__device__ __forceinline__ float activate(float z, int silu) { return silu ? __fdividef(z, 1.f + __expf(-z)) : z; }

// Threads keep eight channels each and walk down the pixels of their block.
template <class E>
__device__ void group_norm(E* y, const E* x, const float* stats, const float* gain, const float* shift, int pixels, int channels, int groups, float eps, int silu) {
    const i64 frame = (i64)blockIdx.y * pixels * channels;
    const float* s = stats + (i64)blockIdx.y * groups * 2;
    const int width = channels / groups, lanes = channels % 8 == 0 ? 8 : 1;
    const int first = blockIdx.x * NORM_PIXELS, last = min(first + NORM_PIXELS, pixels);
    for (int c0 = 0; c0 < channels; c0 += 256 * lanes) {
        const int span = min(256, (channels - c0) / lanes), rows = 256 / span;
        const int c = c0 + threadIdx.x % span * lanes, row = threadIdx.x / span;
        if (row >= rows) continue;
        float mean[8], slope[8], bias[8];
        for (int j = 0; j < lanes; j++) {
            const int g = (c + j) / width;
            mean[j] = s[2 * g], slope[j] = gain[c + j] / sqrtf(s[2 * g + 1] + eps), bias[j] = shift[c + j];
        }
        #pragma unroll 8
        for (int p = first + row; p < last; p += rows) {
            const i64 at = frame + (i64)p * channels + c;
            if (lanes == 8) {
                Eight<E> v = *(const Eight<E>*)(x + at);
                #pragma unroll
                for (int j = 0; j < 8; j++) v.at[j] = narrow<E>(activate((wide(v.at[j]) - mean[j]) * slope[j] + bias[j], silu));
                *(Eight<E>*)(y + at) = v;
            } else {
                y[at] = narrow<E>(activate((wide(x[at]) - mean[0]) * slope[0] + bias[0], silu));
            }
        }
    }
}

#define GROUP_NORM(E, suffix)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256) group_stats_##suffix(float* partial, const E* x, int pixels,     \
                                                                           int channels, int chunk) {                   \
        group_stats<E>(partial, x, pixels, channels, chunk);                                                            \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256)                                                                   \
    group_norm_##suffix(E* y, const E* x, const float* stats, const float* gain, const float* shift, int pixels,       \
                        int channels, int groups, float eps, int silu) {                                                \
        group_norm<E>(y, x, stats, gain, shift, pixels, channels, groups, eps, silu);                                   \
    }
GROUP_NORM(f16, f16)
GROUP_NORM(bf16, bf16)
GROUP_NORM(float, f32)
