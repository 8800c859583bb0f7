// conv_halo: causal convolution on Hopper. The pixels that a tile reads are brought to shared memory once, with their
// border, and every spatial tap multiplies the same pixels at another address.
//
//   x, past  (frames, H, W, C) E through tensor maps, zero outside        w  [phase][tap][Co][C] E        y  E        bias f32
//   partial  [frame][group][slot] (mean, sum of squared deviations) of 2 x 16 pixels and a group's channels each, or null
//   grid     as many blocks as multiprocessors, each walks over tiles of 16 x 16 pixels by BN channels
//   block    two warpgroups multiply, 8 rows of pixels each; one thread of a third one copies
//   needs    C a multiple of 64, stride S in space, Co a multiple of 8 or (few) at most 16; groups of 4, 8 or 16 channels;
//            weights beyond Co are read and dropped
//   differs  from the reference by the order of the sums and one rounding
//
// A pixel's 64 channels are one 128-byte row of the swizzle, and the swizzle follows the address alone. So a tap that
// moves the tile by (dy, dx) moves the start address by whole rows and nothing else: groups of 8 pixels stay one row of
// pixels apart, whatever the border's width. With stride 2 the pixels come in four planes, even and odd rows and columns,
// each with the taps that read it.
#include "hopper.cuh"
#include "params.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int TILE = 16, HALO_BK = 64, A_STAGES = 2, B_STAGES = 6;

struct Tile { int t, row, column, channel, phase; };

template <int BN>
__device__ __forceinline__ Tile tile_of(const ConvArgs& c, int i) {
    const int blocks = (c.c_out + BN - 1) / BN, columns = (c.out_w + TILE - 1) / TILE, rows = (c.out_h + TILE - 1) / TILE;
    const int channel = i % blocks * BN; i /= blocks;
    const int phase = i % c.phases; i /= c.phases;
    const int column = i % columns * TILE; i /= columns;
    return {i / rows, i % rows * TILE, column, channel, phase};
}

// The taps that read a plane of pixels: all of them with stride 1, those of its parity with stride 2.
template <int K, int S>
struct Plane {
    int y, x, count_x, count;
    __device__ __forceinline__ explicit Plane(int plane) : y(plane / S), x(plane % S) {
        count_x = (K - x + S - 1) / S, count = (K - y + S - 1) / S * count_x;
    }
    __device__ __forceinline__ int row(int s) const { return s / count_x; }         // within the plane
    __device__ __forceinline__ int column(int s) const { return s % count_x; }
    __device__ __forceinline__ int tap(int s) const { return (row(s) * S + y) * K + column(s) * S + x; }
};

__device__ __forceinline__ int halo_class(int i, int n) { return i == 0 ? 0 : i == n - 1 ? 3 : 1 + (i & 1); }

// Where a thread's pixel is written: row, column and offset of the frame's plane, whether it exists, and its bias.
struct Spot { bool inside; i64 at; const float* shift; };

__device__ __forceinline__ Spot spot_of(const ConvArgs& c, const Tile& tile, int row, int column, const float* bias) {
    const bool inside = row < c.out_h && column < c.out_w;
    int h = c.out_h, w = c.out_w;
    if (c.phases == 4) {
        row = 2 * row + (tile.phase >> 1), column = 2 * column + (tile.phase & 1), h *= 2, w *= 2;
        bias += inside ? (halo_class(row, h) * 4 + halo_class(column, w)) * c.c_out : 0;
    }
    const i64 frame = tile.t * c.frame_step + c.frame_start;
    return {inside, ((frame * h + row) * w + column) * c.y_pitch + tile.channel, bias + tile.channel};
}

// Joins the statistics of `n` values with those of `others`: mean and sum of squared deviations.
__device__ __forceinline__ void join(float& mean, float& square, float n, float other_mean, float other_square, float others) {
    const float share = others / fmaxf(n + others, 1.f), delta = other_mean - mean;
    mean += delta * share, square += other_square + delta * delta * n * share;
}

// Two lanes each join one half of their chunks with the other's, N chunks a half.
template <int N>
__device__ __forceinline__ void halve(float (&mean)[16], float (&square)[16], float& n, int lane) {
    const bool upper = lane & N * 2;
    const float others = __shfl_xor_sync(~0u, n, N * 2);
    #pragma unroll
    for (int j = 0; j < N; j++) {
        const float other_mean = __shfl_xor_sync(~0u, upper ? mean[j] : mean[j + N], N * 2);
        const float other_square = __shfl_xor_sync(~0u, upper ? square[j] : square[j + N], N * 2);
        if (upper) mean[j] = mean[j + N], square[j] = square[j + N];
        join(mean[j], square[j], n, other_mean, other_square, others);
    }
    n += others;
}

// Statistics of what a warp has made: 2 rows of 16 pixels by 128 channels, in groups of `width`. The lanes of different
// pixels halve the channels among themselves at every step, so that a step costs half of the one before.
__device__ __forceinline__ void group_sums(const float (&v)[2][64], const bool (&inside)[2][2], int width, float2* out, int slots, int lane) {
    float mean[16], square[16], n = 0.f;
    #pragma unroll
    for (int i = 0; i < 4; i++) n += inside[i / 2][i % 2] ? 2.f : 0.f;
    const float one = 1.f / fmaxf(n, 1.f);
    #pragma unroll
    for (int j = 0; j < 16; j++) {
        float sum = 0.f, squares = 0.f;
        #pragma unroll
        for (int i = 0; i < 4; i++)
            if (inside[i / 2][i % 2]) sum += v[i / 2][j * 4 + i % 2 * 2] + v[i / 2][j * 4 + i % 2 * 2 + 1];
        sum *= one;
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            const float a = v[i / 2][j * 4 + i % 2 * 2] - sum, b = v[i / 2][j * 4 + i % 2 * 2 + 1] - sum;
            if (inside[i / 2][i % 2]) squares += a * a + b * b;
        }
        mean[j] = sum, square[j] = squares;
    }
    halve<8>(mean, square, n, lane);
    halve<4>(mean, square, n, lane);
    halve<2>(mean, square, n, lane);
    // Left: chunks `first` and `first` + 1 of eight channels, a pair of each in every one of four lanes.
    const int first = lane / 4 * 2;
    #pragma unroll
    for (int distance = 1; distance <= 2; distance *= 2) {
        if (distance * 2 >= width) break;
        #pragma unroll
        for (int j = 0; j < 2; j++) join(mean[j], square[j], n, __shfl_xor_sync(~0u, mean[j], distance), __shfl_xor_sync(~0u, square[j], distance), n);
        n += n;
    }
    if (width == 16) join(mean[0], square[0], n, mean[1], square[1], n);
    if (lane % 4 == 0 || (width == 4 && lane % 4 == 2)) {
        #pragma unroll
        for (int j = 0; j < 2; j++)
            if (width < 16 || j == 0) out[(i64)((first + j) * 8 + lane % 4 * 2) / width * slots] = {mean[j], square[j]};
    }
}

template <class E, int K, int S, int BN>
__device__ void conv_halo(const TensorMap& map_x, const TensorMap& map_past, const TensorMap& map_w, E* y, const float* bias, const E* residual,
                          float2* partial, int groups, const ConvArgs& c) {
    constexpr int B_BYTES = BN * ROW, PLANES = S * S;
    constexpr int HALO = TILE + (K - 1) / S, A_BYTES = HALO * HALO * ROW, A_STAGE = (A_BYTES + 1023) / 1024 * 1024;
    extern __shared__ unsigned char memory[];
    const u32 a_tiles = (shared_address(memory) + 1023) & ~1023u, b_tiles = a_tiles + A_STAGES * A_STAGE;
    const u32 a_full = b_tiles + B_STAGES * B_BYTES, a_empty = a_full + 8 * A_STAGES;
    const u32 b_full = a_empty + 8 * A_STAGES, b_empty = b_full + 8 * B_STAGES;
    const int group = threadIdx.x / 128;
    if (threadIdx.x == 0) {
        for (int i = 0; i < A_STAGES; i++) barrier_init(a_full + 8 * i, 1), barrier_init(a_empty + 8 * i, 2);
        for (int i = 0; i < B_STAGES; i++) barrier_init(b_full + 8 * i, 1), barrier_init(b_empty + 8 * i, 2);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int slabs = c.c_in / HALO_BK, taps = c.taps_t * K * K;
    const int columns = (c.out_w + TILE - 1) / TILE, rows = (c.out_h + TILE - 1) / TILE;
    const int tiles = columns * rows * ((c.c_out + BN - 1) / BN) * c.phases * c.out_frames;
    Ring<A_STAGES> a;
    Ring<B_STAGES> b;
    if (group == 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x != 256) return;
        for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
            const Tile tile = tile_of<BN>(c, i);
            const int row = tile.row * S - c.pad_h + (tile.phase >> 1), column = tile.column * S - c.pad_w + (tile.phase & 1);
            for (int k = 0; k < c.taps_t * slabs * PLANES; k++) {
                const Plane<K, S> plane(k % PLANES);
                const int dt = k / PLANES / slabs, channel = k / PLANES % slabs * HALO_BK, frame = tile.t * c.stride_t + dt + c.first;
                barrier_wait(a_empty + 8 * a.at, a.parity ^ 1);
                barrier_expect(a_full + 8 * a.at, A_BYTES);
                copy_4d(a_tiles + a.at * A_STAGE, frame < 0 ? &map_past : &map_x, a_full + 8 * a.at, channel, column + plane.x, row + plane.y,
                        frame < 0 ? frame + c.past_frames : frame);
                a.next();
                for (int s = 0; s < plane.count; s++) {
                    barrier_wait(b_empty + 8 * b.at, b.parity ^ 1);
                    barrier_expect(b_full + 8 * b.at, B_BYTES);
                    copy_2d(b_tiles + b.at * B_BYTES, &map_w, b_full + 8 * b.at, channel,
                            (tile.phase * taps + dt * K * K + plane.tap(s)) * c.c_out + tile.channel);
                    b.next();
                }
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const bool speaks = threadIdx.x % 128 == 0;
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
        const Tile tile = tile_of<BN>(c, i);
        float sums[2][BN / 2] = {};                                    // 8 x 8 pixels each, left and right
        int used_a = -1, used_b = -1;
        for (int k = 0; k < c.taps_t * slabs * PLANES; k++) {
            const Plane<K, S> plane(k % PLANES);
            barrier_wait(a_full + 8 * a.at, a.parity);
            const u32 pixels = a_tiles + a.at * A_STAGE + group * 8 * HALO * ROW;
            for (int s = 0; s < plane.count; s++) {
                barrier_wait(b_full + 8 * b.at, b.parity);
                const u32 at = pixels + (plane.row(s) * HALO + plane.column(s)) * ROW, weights = b_tiles + b.at * B_BYTES;
                wgmma_fence();
                #pragma unroll
                for (int q = 0; q < ROW; q += 32) {
                    const u64 w = descriptor(weights + q, 8 * ROW);
                    wgmma(E{}, sums[0], descriptor(at + q, HALO * ROW), w);
                    wgmma(E{}, sums[1], descriptor(at + 8 * ROW + q, HALO * ROW), w);
                }
                wgmma_commit();
                wgmma_wait<1>();
                // What the product before this one read is free now.
                if (speaks && used_b >= 0) barrier_arrive(b_empty + 8 * used_b);
                if (speaks && used_a >= 0) barrier_arrive(a_empty + 8 * used_a);
                used_a = -1, used_b = b.at;
                b.next();
            }
            used_a = a.at;
            a.next();
        }
        const int row = tile.row + group * 8 + warp * 2, column = tile.column + lane / 4;
        if constexpr (BN < 128) {                                      // channels that fill no chunk, let alone a tile
            wgmma_wait<0>();
            if (speaks) barrier_arrive(b_empty + 8 * used_b), barrier_arrive(a_empty + 8 * used_a);
            for (int s = 0; s < 4; s++) {
                const Spot spot = spot_of(c, tile, row + s % 2, column + s / 2 * 8, bias);
                if (!spot.inside) continue;
                #pragma unroll
                for (int j = 0; j < BN / 4; j++) {
                    const int channel = j / 2 * 8 + lane % 4 * 2 + j % 2;
                    if (channel >= c.c_out) continue;
                    const float r = residual ? wide(residual[spot.at + channel]) : 0.f;
                    const float sum = s == 0 ? sums[0][j / 2 * 4 + j % 2] : s == 1 ? sums[0][j / 2 * 4 + 2 + j % 2]
                                    : s == 2 ? sums[1][j / 2 * 4 + j % 2] : sums[1][j / 2 * 4 + 2 + j % 2];
                    y[spot.at + channel] = narrow<E>(sum + spot.shift[channel] + r);
                }
            }
        } else {
            Spot spots[2][2];
            uint4 before[2][2][4];
            const int mine = lane % 4 * 8;                             // channels of a turned lane within 32
            #pragma unroll
            for (int s = 0; s < 4; s++) {
                spots[s / 2][s % 2] = spot_of(c, tile, row + s % 2, column + s / 2 * 8, bias);
                if (!residual) continue;
                const Spot& spot = spots[s / 2][s % 2];
                #pragma unroll
                for (int q = 0; q < 4; q++)
                    if (spot.inside && tile.channel + q * 32 + mine < c.c_out) before[s / 2][s % 2][q] = *(const uint4*)(residual + spot.at + q * 32 + mine);
            }
            wgmma_wait<0>();
            if (speaks) barrier_arrive(b_empty + 8 * used_b), barrier_arrive(a_empty + 8 * used_a);
            bool inside[2][2];
            #pragma unroll
            for (int s = 0; s < 4; s++) {
                const Spot& spot = spots[s / 2][s % 2];
                inside[s / 2][s % 2] = spot.inside;
                #pragma unroll
                for (int q = 0; q < 4; q++) {
                    uint4& r = before[s / 2][s % 2][q];
                    if (residual) turn(r.x, r.y, r.z, r.w, lane);
                    u32 out[4];
                    #pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int channel = (q * 4 + j) * 8 + lane % 4 * 2;
                        const u32 old = residual ? (j == 0 ? r.x : j == 1 ? r.y : j == 2 ? r.z : r.w) : 0u;
                        float* sum = &sums[s / 2][(q * 4 + j) * 4 + s % 2 * 2];
                        if (tile.channel + channel < c.c_out) {
                            const float2 shift = *(const float2*)(spot.shift + channel);
                            sum[0] += shift.x + wide(E{(u16)old}), sum[1] += shift.y + wide(E{(u16)(old >> 16)});
                        }
                        out[j] = pack<E>(sum[0], sum[1]);
                    }
                    turn(out[0], out[1], out[2], out[3], lane);
                    if (spot.inside && tile.channel + q * 32 + mine < c.c_out) *(uint4*)(y + spot.at + q * 32 + mine) = uint4{out[0], out[1], out[2], out[3]};
                }
            }
            if (partial) {
                const int width = c.c_out / groups, slots = c.phases * rows * 8 * columns;
                const int slot = (tile.phase * rows * 8 + row / 2) * columns + tile.column / TILE;
                const i64 frame = tile.t * c.frame_step + c.frame_start;
                group_sums(sums, inside, width, partial + (frame * groups + tile.channel / width) * slots + slot, slots, lane);
            }
        }
    }
}

#define CONV_HALO(name, E, K, S, BN)                                                                                    \
    extern "C" __global__ void __launch_bounds__(384, 1)                                                                \
    name(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap past, const __grid_constant__ TensorMap w, \
         E* y, const float* bias, const E* residual, float2* partial, int groups, const __grid_constant__ ConvArgs c) { \
        conv_halo<E, K, S, BN>(x, past, w, y, bias, residual, partial, groups, c);                                      \
    }
#define CONV_HALOS(E)                                                                                                   \
    CONV_HALO(conv_halo_3x3_##E, E, 3, 1, 128)                                                                          \
    CONV_HALO(conv_halo_3x3_by2_##E, E, 3, 2, 128)                                                                     \
    CONV_HALO(conv_halo_3x3_few_##E, E, 3, 1, 16)                                                                       \
    CONV_HALO(conv_halo_2x2_##E, E, 2, 1, 128)                                                                          \
    CONV_HALO(conv_halo_1x1_##E, E, 1, 1, 128)
CONV_HALOS(f16)
CONV_HALOS(bf16)

#endif
