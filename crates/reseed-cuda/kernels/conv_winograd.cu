// conv_winograd: causal convolution with 3 x 3 taps on Hopper by Winograd F(2,3) along rows: four products per pair of
// columns where the direct algorithm has six
//
//   x, cache (frames, H, W, C) E through tensor maps that take every second column, zero outside
//   w        [Co / 64][temporal tap][C / 16][row of taps][point][half of 16][64][8] E, from `winograd_weights`
//   bias     (Co) f32
//   y        through a tensor map; `add` adds the result to its contents
//   partial  [frame][group][slot] (sum, sum of squares) of 2 x 16 pixels and the channels of a group, or null
//   grid     a block per multiprocessor, in clusters of two that share their weights; each cluster loops over pairs of
//            tiles of 16 x 16 pixels by 64 channels; a last row of tiles at most 8 pixels high has tiles of 8 x 32
//   block    two warpgroups multiply, 8 rows of 8 pairs of columns each; one thread of a third one copies
//   needs    C and Co multiples of 64, stride 1; groups of 4, 8 or 16 channels
//   differs  from the reference by the order of the sums and by roundings: of the result, of transformed inputs (sums
//            of two), of transformed weights (halved sums of three)
//
// Input columns d0 to d3 and taps g0 to g2 give two outputs. With t = (d0 - d2, d1 + d2, d2 - d1, d3 - d1),
// u = (g0, (g0 + g1 + g2) / 2, (g0 - g1 + g2) / 2, g2) and m = t * u point by point, the outputs are m0 + m1 + m2 and
// m1 - m2 + m3. Even and odd columns have a plane each, so that eight pairs read eight consecutive rows of 128 bytes.
#include "group_sums.cuh"
#include "tiles.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace winograd {

// winograd_weights: transforms weights [temporal tap][row][column][Co][C] of the direct convolution to the layout
// above: `taps_t` temporal taps, the first of which is the sum of the first `folded`. Threads stride over eight
// channels each.
template <class E>
__device__ void winograd_weights(E* out, const E* w, int c_out, int c_in, int taps_t, int folded) {
    FOR_EACH(i, (i64)taps_t * 3 * c_out * c_in / 8) {
        const int half = i % 2, n = i / 2 % 64, row = i / 128 % 3, part = i / 384 % (c_in / 16);
        const int dt = i / 384 / (c_in / 16) % taps_t, block = i / 384 / (c_in / 16) / taps_t;
        const i64 tap = (i64)c_out * c_in;
        const E* from = w + (dt == 0 ? 0 : dt + folded - 1) * 9 * tap + row * 3 * tap + (i64)(block * 64 + n) * c_in +
                        part * 16 + half * 8;
        float g[3][8] = {};
        for (int add = 0; add < (dt == 0 ? folded : 1); add++) {
            #pragma unroll
            for (int column = 0; column < 3; column++) {
                const Vec<E, 8> v = Vec<E, 8>::load(from + (add * 9 + column) * tap);
                #pragma unroll
                for (int j = 0; j < 8; j++) g[column][j] += wide(v.at[j]);
            }
        }
        Vec<E, 8> u[4];
        #pragma unroll
        for (int j = 0; j < 8; j++) {
            const float outer = g[0][j] + g[2][j];
            u[0].at[j] = narrow<E>(g[0][j]), u[3].at[j] = narrow<E>(g[2][j]);
            u[1].at[j] = narrow<E>(.5f * (outer + g[1][j])), u[2].at[j] = narrow<E>(.5f * (outer - g[1][j]));
        }
        E* to = out + (i / 384 * 3 + row) * 4096 + half * 512 + n * 8;
        #pragma unroll
        for (int point = 0; point < 4; point++) u[point].store(to + point * 1024);
    }
}

constexpr int DEPTH = 64, CHANNELS = 64, BLOCKS = 2;
constexpr int POINT = CHANNELS * 32, B_BYTES = 12 * POINT;  // 16 channels of one point, and of all points and rows
constexpr int COLUMNS = TILE / 2 + 1, WIDE_COLUMNS = TILE + 1;         // of a plane
constexpr int A_BYTES = COLUMNS * (TILE + 2) * ROW, WIDE_BYTES = WIDE_COLUMNS * (TILE / 2 + 2) * ROW;
constexpr int PLANE = (WIDE_BYTES + 1023) / 1024 * 1024;
constexpr int A_STAGES = 2, B_STAGES = 4, OUT_WARP = 2 * TILE * ROW;

// d (64 x 64) += a (64 x 16) · b (64 x 16)ᵀ; a in registers, b in matrices of 8 rows of 16 bytes, its halves 1024 bytes
// apart.
__device__ __forceinline__ void wgmma_registers(f16, float (&d)[32], u32 a0, u32 a1, u32 a2, u32 a3, u32 at) {
    const u64 b = (u64)((at & 0x3FFFF) >> 4) | (u64)(1024 >> 4) << 16 | (u64)(128 >> 4) << 32;
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,"
        "%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, 1, 1, 1, 0;"
        : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]),"+f"(d[8]),
          "+f"(d[9]),"+f"(d[10]),"+f"(d[11]),"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15]),"+f"(d[16]),
          "+f"(d[17]),"+f"(d[18]),"+f"(d[19]),"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23]),"+f"(d[24]),
          "+f"(d[25]),"+f"(d[26]),"+f"(d[27]),"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}
__device__ __forceinline__ u32 plus(f16, u32 a, u32 b) {
    u32 v;
    asm("add.f16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
    return v;
}
__device__ __forceinline__ u32 minus(f16, u32 a, u32 b) {
    u32 v;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
    return v;
}

// Copies to both blocks of a cluster and completes the barrier of each.
__device__ __forceinline__ void copy_multicast(u32 to, const void* from, u32 bytes, u32 bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, "
                 "[%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar), "h"((u16)3)
                 : "memory");
}

// Address of a lane's row of four matrices of eight pairs: two rows of pixels by two halves of 16 channels.
__device__ __forceinline__ u32 place(int first, int pitch, int lane) {
    const int pixel = first + lane / 16 * pitch + lane % 8;
    return pixel * ROW + ((lane / 8 % 2 ^ pixel % 8) << 4);
}

// A warp's part of one of the four input columns: four rows of pixels by two halves of 16 channels.
struct Column {
    u32 at[8];
    __device__ __forceinline__ void load(u32 upper, u32 lower) {
        u32 v[4];
        load_matrices(v, upper);
        at[0] = v[0], at[1] = v[1], at[2] = v[2], at[3] = v[3];
        load_matrices(v, lower);
        at[4] = v[0], at[5] = v[1], at[6] = v[2], at[7] = v[3];
    }
};

// The products of a point with its three rows of taps, as one group.
template <class E>
__device__ __forceinline__ void multiply(float (&m)[32], const u32 (&t)[8], u32 weights) {
    wgmma_fence();
    #pragma unroll
    for (int row = 0; row < 3; row++)
        wgmma_registers(E{}, m, t[2 * row], t[2 * row + 2], t[2 * row + 1], t[2 * row + 3], weights + row * 4 * POINT);
    wgmma_commit();
}

// Rounds the results of a warp into shared memory; with ADD, adds them to its contents.
template <class E, bool ADD>
__device__ __forceinline__ void round_out(float (&m)[4][32], u32 output, int lane) {
    #pragma unroll
    for (int s = 0; s < 4; s++) {  // pixels (s / 2, s % 2) of a pair of rows and of columns
        const int pixel = s / 2 * TILE + lane % 8 * 2 + s % 2;
        #pragma unroll
        for (int n = 0; n < 2; n++) {                                  // chunks of eight channels, four at a time
            const u32 at = output + pixel * ROW + ((n * 4 + lane / 8 ^ pixel % 8) << 4);
            u32 v[4];
            if (ADD) load_matrices(v, at);
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                float* sum = &m[s % 2][(n * 4 + j) * 4 + s / 2 * 2];
                if (ADD) sum[0] += wide(E{(u16)v[j]}), sum[1] += wide(E{(u16)(v[j] >> 16)});
                v[j] = pack<E>(sum[0], sum[1]);
            }
            store_matrices(v, at);
        }
    }
}

template <class E>
__device__ void conv_winograd(const Inputs& maps, const E* w, const TensorMap& map_y, const float* bias, int add,
                              float2* partial, int groups, const ConvArgs& c) {
    extern __shared__ unsigned char memory[];
    const u32 a_tiles = (shared_address(memory) + 1023) & ~1023u, b_tiles = a_tiles + A_STAGES * 2 * PLANE,
              outputs = b_tiles + B_STAGES * B_BYTES;
    const u32 a_full = outputs + 8 * OUT_WARP, a_empty = a_full + 8 * A_STAGES;
    const u32 b_full = a_empty + 8 * A_STAGES, b_empty = b_full + 8 * B_STAGES, y_full = b_empty + 8 * B_STAGES,
              y_empty = y_full + 8;
    const int group = threadIdx.x / 128, rank = cluster_rank();
    if (threadIdx.x == 0) {
        for (int i = 0; i < A_STAGES; i++) barrier_init(a_full + 8 * i, 1), barrier_init(a_empty + 8 * i, 8);
        for (int i = 0; i < B_STAGES; i++) barrier_init(b_full + 8 * i, 1), barrier_init(b_empty + 8 * i, 2 * BLOCKS);
        barrier_init(y_full, 1), barrier_init(y_empty, 8);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync();
    const int slabs = c.c_in / DEPTH, steps = c.taps_t * slabs, blocks = c.c_out / CHANNELS;
    const Cut cut(c, true);
    const int tiles = cut.tiles * c.out_frames, units = (tiles + BLOCKS - 1) / BLOCKS * blocks,
              clusters = gridDim.x / BLOCKS;
    const int start = blockIdx.x / BLOCKS;
    // The last of an odd number of tiles is computed twice and written once.
    auto tile_of = [&](int unit) {
        return cut.tile(min(unit / blocks * BLOCKS + rank, tiles - 1), unit % blocks * CHANNELS, 0);
    };
    Ring<A_STAGES> a;
    Ring<B_STAGES> b;
    if (group >= 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 256) {
            int old = 0;
            auto load_pixels = [&](const Tile& tile, int k) {
                const int channel = k % slabs * DEPTH, frame = tile.t * c.stride_t + k / slabs + c.first;
                barrier_wait(a_empty + 8 * a.at, a.parity ^ 1);
                barrier_expect(a_full + 8 * a.at, 2 * (tile.wide ? WIDE_BYTES : A_BYTES));
                for (int odd = 0; odd < 2; odd++)
                    copy_4d(a_tiles + (a.at * 2 + odd) * PLANE, frame < 0 ? &maps.cache[tile.wide] : &maps.x[tile.wide],
                            a_full + 8 * a.at, channel, tile.column - c.pad_w + odd, tile.row - c.pad_h,
                            frame < 0 ? frame + c.cache_frames : frame);
                a.next();
            };
            if (start < units) load_pixels(tile_of(start), 0);
            for (int i = start; i < units; i += clusters) {
                const Tile tile = tile_of(i);
                const char* weights =
                    (const char*)w + (i64)(i % blocks) * steps * (DEPTH / 16) * B_BYTES + rank * (B_BYTES / BLOCKS);
                for (int k = 0; k < steps; k++) {
                    for (int q = 0; q < DEPTH / 16; q++) {
                        barrier_wait(b_empty + 8 * b.at, b.parity ^ 1);
                        barrier_expect(b_full + 8 * b.at, B_BYTES);
                        copy_multicast(b_tiles + b.at * B_BYTES + rank * (B_BYTES / BLOCKS), weights, B_BYTES / BLOCKS,
                                       b_full + 8 * b.at);
                        weights += B_BYTES;
                        b.next();
                        if (q != 1) continue;                          // the pixels of the previous step have been read
                        if (k + 1 < steps) load_pixels(tile, k + 1);
                        else if (i + clusters < units) load_pixels(tile_of(i + clusters), 0);
                    }
                }
                if (add) {                                             // the multipliers have started this tile
                    barrier_wait(y_empty, old ^ 1);
                    barrier_expect(y_full, 8 * OUT_WARP);
                    for (int warp = 0; warp < 8; warp++) {
                        const int right = tile.wide ? warp / 4 : 0;
                        copy_4d(outputs + warp * OUT_WARP, &map_y, y_full, tile.channel, tile.column + right * TILE,
                                tile.row + (warp - right * 4) * 2, tile.t * c.frame_step + c.frame_start);
                    }
                    old ^= 1;
                }
            }
        }
        cluster_sync();  // neither block exits while the other may write to its memory
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const bool elected = threadIdx.x % 128 == 0;
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    const u32 output = outputs + (group * 4 + warp) * OUT_WARP;
    int made = 0;
    for (int i = start; i < units; i += clusters) {
        const Tile tile = tile_of(i);
        const int pitch = tile.wide ? WIDE_COLUMNS : COLUMNS;
        const int top = (tile.wide ? 0 : group * 8) + warp * 2, row = tile.row + top,
                  left = tile.column + (tile.wide ? group * TILE : 0);
        const int corner = top * pitch + (tile.wide ? group * TILE / 2 : 0), below = corner + 2 * pitch;
        const u32 here[2] = {place(corner, pitch, lane), place(corner + 1, pitch, lane)};
        const u32 under[2] = {place(below, pitch, lane), place(below + 1, pitch, lane)};
        float m[4][32];
        u32 t[4][8];
        #pragma unroll
        for (int j = 0; j < 8; j++) {
            const float2 shift = __ldg((const float2*)(bias + tile.channel + j * 8 + lane % 4 * 2));
            #pragma unroll
            for (int s = 0; s < 4; s++)
                m[1][j * 4 + s] = s % 2 ? shift.y : shift.x, m[0][j * 4 + s] = m[2][j * 4 + s] = m[3][j * 4 + s] = 0.f;
        }
        int used = -1;
        for (int k = 0; k < steps; k++) {
            barrier_wait(a_full + 8 * a.at, a.parity);
            const u32 even = a_tiles + a.at * 2 * PLANE, odd = even + PLANE;
            for (int q = 0; q < ROW; q += 32) {
                Column d0, d1, d2, d3;
                d0.load(even + (here[0] ^ q), even + (under[0] ^ q));
                d2.load(even + (here[1] ^ q), even + (under[1] ^ q));
                barrier_wait(b_full + 8 * b.at, b.parity);
                const u32 weights = b_tiles + b.at * B_BYTES;
                wgmma_wait<3>();  // a point's operands are free once its previous group has ended
                #pragma unroll
                for (int j = 0; j < 8; j++) t[0][j] = minus(E{}, d0.at[j], d2.at[j]);
                multiply<E>(m[0], t[0], weights);
                d1.load(odd + (here[0] ^ q), odd + (under[0] ^ q));
                wgmma_wait<3>();
                #pragma unroll
                for (int j = 0; j < 8; j++) t[1][j] = plus(E{}, d1.at[j], d2.at[j]);
                multiply<E>(m[1], t[1], weights + POINT);
                d3.load(odd + (here[1] ^ q), odd + (under[1] ^ q));
                wgmma_wait<3>();
                #pragma unroll
                for (int j = 0; j < 8; j++) t[2][j] = minus(E{}, d2.at[j], d1.at[j]);
                multiply<E>(m[2], t[2], weights + 2 * POINT);
                wgmma_wait<3>();
                if (elected && used >= 0) arrive_cluster<BLOCKS>(b_empty + 8 * used);  // all its readers are done
                #pragma unroll
                for (int j = 0; j < 8; j++) t[3][j] = minus(E{}, d3.at[j], d1.at[j]);
                multiply<E>(m[3], t[3], weights + 3 * POINT);
                used = b.at;
                b.next();
            }
            __syncwarp();
            if (lane == 0) barrier_arrive(a_empty + 8 * a.at);
            a.next();
            if (made > 0 && k == 0 && lane == 0) {                     // the previous output has been read
                store_wait_read();
                barrier_arrive(y_empty);
            }
        }
        wgmma_wait<0>();
        if (elected) arrive_cluster<BLOCKS>(b_empty + 8 * used);
        #pragma unroll
        for (int j = 0; j < 32; j++) {
            const float sum = m[1][j] + m[2][j], difference = m[1][j] - m[2][j];
            m[0][j] += sum, m[1][j] = difference + m[3][j];
        }
        const i64 frame = tile.t * c.frame_step + c.frame_start;
        const bool live = i / blocks * BLOCKS + rank < tiles;
        if (add) barrier_wait(y_full, made & 1);
        __syncwarp();
        add ? round_out<E, true>(m, output, lane) : round_out<E, false>(m, output, lane);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (lane == 0) {
            if (live) store_4d(&map_y, output, tile.channel, left, row, (int)frame);
            store_commit();
        }
        if (partial && live && left < c.out_w) {
            const int column = left + lane / 4 * 2;
            if (tile.row + TILE > c.out_h || left + TILE > c.out_w) {
                #pragma unroll
                for (int j = 0; j < 64; j++)
                    if (row + j / 2 % 2 >= c.out_h || column + j / 32 >= c.out_w) m[j / 32][j % 32] = 0.f;
            }
            const int width = c.c_out / groups, slots = cut.lines * cut.columns;
            float2* out =
                partial + (frame * groups + tile.channel / width) * slots + row / 2 * cut.columns + left / TILE;
            group_sums<8>([&](int side, int j) { return m[side][j]; }, width, out, slots, lane);
        }
        made++;
    }
    if (lane == 0) store_wait();
    cluster_sync();
}
}

extern "C" __global__ void winograd_weights_f16(f16* out, const f16* w, int c_out, int c_in, int taps_t, int folded) {
    winograd::winograd_weights(out, w, c_out, c_in, taps_t, folded);
}

extern "C" __global__ void __launch_bounds__(384, 1) __cluster_dims__(2, 1, 1)
    conv_winograd_f16(const __grid_constant__ Inputs inputs, const f16* w, const __grid_constant__ TensorMap y,
                      const float* bias, int add, float2* partial, int groups, const __grid_constant__ ConvArgs c) {
    winograd::conv_winograd(inputs, w, y, bias, add, partial, groups, c);
}

#endif
