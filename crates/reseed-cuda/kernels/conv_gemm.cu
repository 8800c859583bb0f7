// conv_gemm: any causal convolution as an implicit matrix product; pixels are gathered on the way into shared memory
//
//   x, cache (frames, H, W, C) E        w  [phase][tap][Co][C] E        y  (frames, H', W', Co) Out        bias  f32
//   grid     (pixels / BM, Co / BN, frames * phases): one block owns BM pixels of one phase of one output frame
//   block    256 threads; 16-bit types on tensor cores with four stages of copies, f32 on CUDA cores; no bf16 on Turing
//   differs  from the reference by the order of the sums and one rounding
#include "element.cuh"
#include "params.cuh"

// An output pixel of a block.
struct Site {
    int row, column;        // in the plane of this launch
    bool inside;
};

__device__ __forceinline__ Site site(const ConvArgs& c, int pixel) {
    return {pixel / c.out_w, pixel % c.out_w, pixel < c.out_h * c.out_w};
}

// Address of the input pixel that tap (dt, dy, dx) of output frame t reads, or null in the padding.
template <class E>
__device__ __forceinline__ const E* source(const ConvArgs& c, const E* x, const E* cache, Site s, int phase, int t,
                                           int dt, int dy, int dx) {
    const int py = phase >> 1, px = phase & 1;
    const int row = s.row * c.stride_h + dy - (c.pad_h - py), column = s.column * c.stride_w + dx - (c.pad_w - px);
    if (!s.inside || row < 0 || column < 0 || row >= c.in_h || column >= c.in_w) return nullptr;
    const int frame = t * c.stride_t + dt + c.first;
    const E* clip = frame < 0 ? cache : x;
    const i64 at = ((i64)(frame < 0 ? frame + c.cache_frames : frame) * c.in_h + row) * c.in_w + column;
    return clip + at * c.x_pitch;
}

// Index of an output pixel, and offset of its bias.
__device__ __forceinline__ i64 place(const ConvArgs& c, Site s, int phase, int t, int& bias) {
    int row = s.row, column = s.column, h = c.out_h, w = c.out_w;
    bias = 0;
    if (c.phases == 4) {
        row = 2 * row + (phase >> 1), column = 2 * column + (phase & 1), h *= 2, w *= 2;
        bias = (border_class(row, h) * 4 + border_class(column, w)) * c.c_out;
    }
    return ((i64)(t * c.frame_step + c.frame_start) * h + row) * w + column;
}

template <class Out>
__device__ __forceinline__ void finish(Out* y, const float* bias, const Out* residual, i64 at, int channel, float sum) {
    float v = sum + bias[channel];
    if (residual) v += wide(residual[at + channel]);
    y[at + channel] = narrow<Out>(v);
}

// A block's loop over taps and channels: 32 channels per step, several taps per step where there are fewer channels.
struct Walk {
    int per_tap, at_once;      // steps per tap, or taps per step
    int dt, dy, dx, chunk;     // current position when taps come one at a time
    int step;
};

template <class E, class Out>
__device__ void conv_gemm_tensor(Out* y, const E* x, const E* cache, const E* w, const float* bias, const Out* residual,
                                 const ConvArgs& c) {
    constexpr int BM = 128, BN = 64, BK = 32, PITCH = BK + 8;          // rows of 80 bytes: no bank conflicts
    constexpr int STAGES = __CUDA_ARCH__ >= 800 ? 4 : 2;               // Turing has no asynchronous copies
    constexpr int ROWS = (BM + BN) / 64, WARPS_M = 4, MI = BM / WARPS_M / 16, NJ = 4;
    extern __shared__ unsigned char memory[];
    E* const tiles = (E*)memory;
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, lane8 = thread % 4 * 8;
    const int phase = blockIdx.z % c.phases, t = blockIdx.z / c.phases;
    const int first_pixel = blockIdx.x * BM, first_channel = blockIdx.y * BN;
    const int taps = c.taps_t * c.taps_h * c.taps_w;
    const bool vector = (c.c_in % 8 | c.x_pitch % 8 | c.w_pitch % 8) == 0 && (((u64)x | (u64)cache | (u64)w) & 15) == 0;
    Walk walk = {(c.c_in + BK - 1) / BK, c.c_in < BK && BK % c.c_in == 0 ? BK / c.c_in : 1, 0, 0, 0, 0, 0};
    const int steps = vector ? (taps + walk.at_once - 1) / walk.at_once * walk.per_tap : (taps * c.c_in + BK - 1) / BK;
    w += (i64)phase * taps * c.c_out * c.w_pitch;

    int row0[2], column0[2];                                           // of this thread's two pixels, at tap (0, 0)
    #pragma unroll
    for (int i = 0; i < 2; i++) {
        const Site s = site(c, first_pixel + i * 64 + thread / 4);
        row0[i] = s.inside ? s.row * c.stride_h - (c.pad_h - (phase >> 1)) : -(1 << 20);
        column0[i] = s.column * c.stride_w - (c.pad_w - (phase & 1));
    }

    auto load_vectors = [&](E* tile) {
        int dt = walk.dt, dy = walk.dy, dx = walk.dx, channel = walk.chunk * BK + lane8;
        if (walk.at_once > 1) {
            const int tap = walk.step * walk.at_once + lane8 / c.c_in;
            dt = tap / (c.taps_h * c.taps_w), dy = tap / c.taps_w % c.taps_h, dx = tap % c.taps_w,
            channel = lane8 % c.c_in;
        }
        const int tap = (dt * c.taps_h + dy) * c.taps_w + dx, frame = t * c.stride_t + dt + c.first;
        const bool valid = tap < taps && channel < c.c_in;
        const E* plane = (frame < 0 ? cache + (i64)(frame + c.cache_frames) * c.in_h * c.in_w * c.x_pitch
                                    : x + (i64)frame * c.in_h * c.in_w * c.x_pitch) + channel;
        #pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const E* from = w;
            bool inside = valid;
            if (i < 2) {
                const int row = row0[i] + dy, column = column0[i] + dx;
                inside = inside && (u32)row < (u32)c.in_h && (u32)column < (u32)c.in_w;
                from = plane + ((i64)row * c.in_w + column) * c.x_pitch;
            } else {
                const int n = first_channel + (i - 2) * 64 + thread / 4;
                inside = inside && n < c.c_out;
                from = w + ((i64)tap * c.c_out + n) * c.w_pitch + channel;
            }
            copy_async(shared_address(tile + (i * 64 + thread / 4) * PITCH + lane8), inside ? from : w, inside);
        }
    };
    auto load_values = [&](E* tile) {
        #pragma unroll 1
        for (int i = thread; i < (BM + BN) * BK; i += 256) {
            const int row = i / BK, k = walk.step * BK + i % BK, tap = k / c.c_in, channel = k % c.c_in;
            const E* from = nullptr;
            if (tap < taps) {
                const int dt = tap / (c.taps_h * c.taps_w), dy = tap / c.taps_w % c.taps_h, dx = tap % c.taps_w;
                const int n = first_channel + row - BM;
                if (row < BM) from = source(c, x, cache, site(c, first_pixel + row), phase, t, dt, dy, dx);
                else if (n < c.c_out) from = w + ((i64)tap * c.c_out + n) * c.w_pitch;
            }
            tile[row * PITCH + i % BK] = from ? from[channel] : narrow<E>(0.f);
        }
    };
    auto load = [&] {
        if (walk.step < steps) {
            E* const tile = tiles + walk.step % STAGES * (BM + BN) * PITCH;
            if (vector) load_vectors(tile); else load_values(tile);
            walk.step++;
            if (++walk.chunk == walk.per_tap) {
                walk.chunk = 0;
                if (++walk.dx == c.taps_w) walk.dx = 0, walk.dy++;
                if (walk.dy == c.taps_h) walk.dy = 0, walk.dt++;
            }
        }
        copy_commit();
    };

    WideSum sums[MI][NJ] = {};
    const int warp_m = warp % WARPS_M * MI * 16, warp_n = warp / WARPS_M * 32;
    for (int s = 0; s < STAGES - 1; s++) load();
    for (int step = 0; step < steps; step++) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        load();
        const E* tile = tiles + step % STAGES * (BM + BN) * PITCH;
        #pragma unroll
        for (int k = 0; k < BK; k += 16) {
            u32 a[MI][4], b[2][4];
            #pragma unroll
            for (int i = 0; i < MI; i++)
                load_matrix(a[i], shared_address(tile + (warp_m + i * 16 + lane % 16) * PITCH + k + lane / 16 * 8));
            #pragma unroll
            for (int i = 0; i < 2; i++)
                load_matrix(b[i], shared_address(tile + (BM + warp_n + i * 16 + lane / 16 * 8 + lane % 8) * PITCH + k +
                                                 lane / 8 % 2 * 8));
            #pragma unroll
            for (int i = 0; i < MI; i++)
                mma_row<E>(sums, i, a[i], b);
        }
    }
    #pragma unroll
    for (int i = 0; i < 2 * MI; i++) {                                 // 16-pixel tile i / 2, rows 0..7 or 8..15 of it
        const Site s = site(c, first_pixel + warp_m + i / 2 * 16 + i % 2 * 8 + lane / 4);
        if (!s.inside) continue;
        int class_bias;
        const i64 at = place(c, s, phase, t, class_bias) * c.y_pitch;
        #pragma unroll
        for (int j = 0; j < 2 * NJ; j++) {
            const int channel = first_channel + warp_n + j / 2 * 8 + lane % 4 * 2 + j % 2;
            if (channel < c.c_out)
                finish(y, bias + class_bias, residual, at, channel, sums[i / 2][j / 2].v[i % 2 * 2 + j % 2]);
        }
    }
}

__device__ void conv_gemm_plain(float* y, const float* x, const float* cache, const float* w, const float* bias,
                                const float* residual, const ConvArgs& c) {
    constexpr int BM = 64, BN = 64, BK = 16, PITCH = 68;
    __shared__ float a[BK][PITCH], b[BK][PITCH];
    const int thread = threadIdx.x, row0 = thread / 16 * 4, column0 = thread % 16 * 4;
    const int phase = blockIdx.z % c.phases, t = blockIdx.z / c.phases;
    const int first_pixel = blockIdx.x * BM, first_channel = blockIdx.y * BN;
    const int taps = c.taps_t * c.taps_h * c.taps_w, depth = taps * c.c_in;
    float sums[4][4] = {};
    for (int k0 = 0; k0 < depth; k0 += BK) {
        #pragma unroll 1
        for (int i = thread; i < BM * BK; i += 256) {
            const int row = i / BK, k = k0 + i % BK, tap = k / c.c_in, channel = k % c.c_in;
            float va = 0.f, vb = 0.f;
            if (tap < taps) {
                const int dt = tap / (c.taps_h * c.taps_w), dy = tap / c.taps_w % c.taps_h, dx = tap % c.taps_w;
                const float* from = source(c, x, cache, site(c, first_pixel + row), phase, t, dt, dy, dx);
                if (from) va = from[channel];
                const int n = first_channel + row;
                if (n < c.c_out) vb = w[((i64)(phase * taps + tap) * c.c_out + n) * c.w_pitch + channel];
            }
            a[i % BK][row] = va, b[i % BK][row] = vb;
        }
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < BK; k++)
            #pragma unroll
            for (int i = 0; i < 4; i++)
                #pragma unroll
                for (int j = 0; j < 4; j++) sums[i][j] += a[k][row0 + i] * b[k][column0 + j];
        __syncthreads();
    }
    for (int i = 0; i < 4; i++) {
        const Site s = site(c, first_pixel + row0 + i);
        if (!s.inside) continue;
        int class_bias;
        const i64 at = place(c, s, phase, t, class_bias) * c.y_pitch;
        for (int j = 0; j < 4; j++) {
            const int channel = first_channel + column0 + j;
            if (channel < c.c_out) finish(y, bias + class_bias, residual, at, channel, sums[i][j]);
        }
    }
}

#define CONV_GEMM(name, E, Out, body) \
    extern "C" __global__ void __launch_bounds__(256) name(Out* y, const E* x, const E* cache, const E* w, \
                                                           const float* bias, const Out* residual, ConvArgs c) { \
        body(y, x, cache, w, bias, residual, c); \
    }
CONV_GEMM(conv_gemm_f16, f16, f16, (conv_gemm_tensor<f16, f16>))
CONV_GEMM(conv_gemm_f16_f32, f16, float, (conv_gemm_tensor<f16, float>))
#if __CUDA_ARCH__ >= 800
SINCE_AMPERE(CONV_GEMM(conv_gemm_bf16, bf16, bf16, (conv_gemm_tensor<bf16, bf16>)))
SINCE_AMPERE(CONV_GEMM(conv_gemm_bf16_f32, bf16, float, (conv_gemm_tensor<bf16, float>)))
#endif
CONV_GEMM(conv_gemm_f32, float, float, conv_gemm_plain)
