// conv_winograd: causal convolution with 3 x 3 taps on Hopper by Winograd F(3,3) along rows: five products for three
// columns where the direct algorithm has nine
//
//   x, cache (frames, H, W, C) E through tensor maps that take every third column, zero outside
//   w        [Co / 64][temporal tap][C / 16][row of taps][point][half of 16][64][8] E, from `winograd_weights`
//   bias     (Co) f32
//   y        through a tensor map; `add` adds the result to its contents
//   partial  [frame][group][slot] (sum, sum of squares) of 2 x 24 pixels and the channels of a group, or null
//   grid     a block per multiprocessor, in clusters of two that share their weights; each cluster loops over pairs of
//            tiles of 16 x 24 pixels by 64 channels; a last row of tiles at most 8 pixels high has tiles of 8 x 48
//   block    two warpgroups multiply, 8 rows of 8 triples of columns each; two threads of a third one copy
//   needs    C and Co multiples of 64, stride 1; groups of 4, 8 or 16 channels
//   differs  from the reference by the order of the sums and by roundings: of the result, of transformed inputs (and of
//            sums of two on the way to them), of transformed weights
//
// Five input columns d and three taps g give three outputs. With the points p = a, -a, b, -b, where a = 3/8 and
// b = 5/4, and infinity, the transformed inputs t and weights u are
//
//   t(+-a)      = (d3 - b^2 d1) +- a (d2 - b^2 d0)       u(+-a) = (g0 +- a g1 + a^2 g2) / (+- 2 a (a^2 - b^2))
//   t(+-b)      = (d3 - a^2 d1) +- b (d2 - a^2 d0)       u(+-b) = (g0 +- b g1 + b^2 g2) / (+- 2 b (b^2 - a^2))
//   t(infinity) = d4 - (a^2 + b^2) d2 + a^2 b^2 d0       u(infinity) = g2
//
// and with m = t * u point by point, output k is the sum of p^k m(p); the last one has m(infinity) too. f16
// represents these points and their squares, and their roundings are small (docs/numerics.md). Columns have a plane
// each by their remainder of three, so that eight triples read eight consecutive pixels.
#include "group_sums.cuh"
#include "tiles.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace winograd {

constexpr float A = 3.f / 8, B = 5.f / 4;                              // points
constexpr int DEPTH = 32, CHANNELS = 64, BLOCKS = 2, POINTS = 5, OUTPUTS = 3;
constexpr int WIDTH = 8 * OUTPUTS;                                     // columns of a tile
constexpr int POINT = CHANNELS * 32, B_BYTES = 3 * POINTS * POINT;     // 16 channels of a point; of all points and rows
constexpr int PIXEL = DEPTH * 2;                                       // bytes of a pixel in a plane
constexpr int COLUMNS = WIDTH / OUTPUTS + 1, WIDE_COLUMNS = 2 * WIDTH / OUTPUTS + 1;  // of a plane
constexpr int A_BYTES = COLUMNS * (TILE + 2) * PIXEL, WIDE_BYTES = WIDE_COLUMNS * (TILE / 2 + 2) * PIXEL;
constexpr int PLANE = (WIDE_BYTES + 1023) / 1024 * 1024;
constexpr int A_STAGES = 2, B_STAGES = 3, OUT_WARP = 2 * WIDTH * ROW;

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
        Vec<E, 8> u[POINTS];
        #pragma unroll
        for (int j = 0; j < 8; j++) {
            #pragma unroll
            for (int point = 0; point < 4; point++) {
                const float p = point < 2 ? A : B, other = point < 2 ? B : A, sign = point % 2 ? -1.f : 1.f;
                const float scale = sign / (2 * p * (p * p - other * other));
                u[point].at[j] = narrow<E>(scale * (g[0][j] + p * (sign * g[1][j] + p * g[2][j])));
            }
            u[4].at[j] = narrow<E>(g[2][j]);
        }
        E* to = out + (i / 384 * 3 + row) * POINTS * 1024 + half * 512 + n * 8;
        #pragma unroll
        for (int point = 0; point < POINTS; point++) u[point].store(to + point * 1024);
    }
}

// Low half of the descriptor of weights: matrices of 8 rows of 16 bytes, halves of 16 channels 1024 bytes apart. The
// next matrix is 128 bytes further, in the upper half.
__device__ __forceinline__ u32 descriptor_of(u32 weights) { return (weights & 0x3FFFF) >> 4 | 1024 >> 4 << 16; }

// d (64 x 64) += a (64 x 16) · b (64 x 16)ᵀ; a in registers, b by its descriptor.
__device__ __forceinline__ void wgmma_registers(f16, float (&d)[32], const u32 (&a)[4], u32 b) {
    asm volatile("{\n.reg .b64 b;\nmov.b64 b, {%36, %37};\nwgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,"
        "%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, b, 1, 1, 1, 0;\n}"
        : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]),"+f"(d[8]),
          "+f"(d[9]),"+f"(d[10]),"+f"(d[11]),"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15]),"+f"(d[16]),
          "+f"(d[17]),"+f"(d[18]),"+f"(d[19]),"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23]),"+f"(d[24]),
          "+f"(d[25]),"+f"(d[26]),"+f"(d[27]),"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(128 >> 4));
}

// c x + y for two values. The numbers c are exact in f16.
__device__ __forceinline__ u32 fma(f16, float c, u32 x, u32 y) {
    u32 v;
    const u32 factor = narrow<f16>(c).bits * 0x10001u;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(factor), "r"(x), "r"(y));
    return v;
}

// Copies to both blocks of a cluster and completes the barrier of each.
__device__ __forceinline__ void copy_multicast(u32 to, const void* from, u32 bytes, u32 bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, "
                 "[%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar), "h"((u16)3)
                 : "memory");
}

// One lane of a warp arrives at a barrier, or at those of both blocks of a cluster.
__device__ __forceinline__ void arrive_elected(u32 bar) {
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\n@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::
                 "r"(bar)
                 : "memory");
}
__device__ __forceinline__ void arrive_elected_cluster(u32 bar) {
    #pragma unroll
    for (int rank = 0; rank < BLOCKS; rank++)
        asm volatile("{\n.reg .pred p;\n.reg .b32 a;\nelect.sync _|p, 0xffffffff;\n"
                     "mapa.shared::cluster.u32 a, %0, %1;\n@p mbarrier.arrive.shared::cluster.b64 _, [a];\n}" ::
                     "r"(bar), "r"(rank)
                     : "memory");
}

// Address of a lane's row of four matrices of eight triples: two neighbouring columns by two halves of 16 channels.
__device__ __forceinline__ u32 place(int first, int lane) {
    const int pixel = first + lane / 16 + lane % 8;
    return pixel * PIXEL + ((lane / 8 % 2 ^ pixel / 2 % 4) << 4);
}

// Five columns of a row of pixels, eight triples by two halves of 16 channels.
struct Columns {
    u32 d[5][2];
    __device__ __forceinline__ void load(u32 at) {
        u32 v[4];
        load_matrices(v, at);
        d[0][0] = v[0], d[0][1] = v[1], d[3][0] = v[2], d[3][1] = v[3];
        load_matrices(v, at + PLANE);
        d[1][0] = v[0], d[1][1] = v[1], d[4][0] = v[2], d[4][1] = v[3];
        load_two_matrices(d[2], at + 2 * PLANE);
    }
};

// The inputs of each point, made of a row of pixels.
struct Points {
    u32 t[POINTS][2];
    template <class E> __device__ __forceinline__ void make(const Columns& row) {
        #pragma unroll
        for (int half = 0; half < 2; half++) {
            const u32 d0 = row.d[0][half], d1 = row.d[1][half], d2 = row.d[2][half], d3 = row.d[3][half];
            const u32 odd_a = fma(E{}, -B * B, d1, d3), even_a = fma(E{}, -B * B, d0, d2);
            const u32 odd_b = fma(E{}, -A * A, d1, d3), even_b = fma(E{}, -A * A, d0, d2);
            t[0][half] = fma(E{}, A, even_a, odd_a), t[1][half] = fma(E{}, -A, even_a, odd_a);
            t[2][half] = fma(E{}, B, even_b, odd_b), t[3][half] = fma(E{}, -B, even_b, odd_b);
            t[4][half] = fma(E{}, A * A * B * B, d0, fma(E{}, -(A * A + B * B), d2, row.d[4][half]));
        }
    }
};

// Rounds the results of a warp into shared memory; with ADD, adds them to its contents.
template <class E, bool ADD>
__device__ __forceinline__ void round_out(float (&m)[POINTS][32], u32 output, int lane) {
    #pragma unroll
    for (int s = 0; s < 2 * OUTPUTS; s++) {  // pixels (s / 3, s % 3) of a pair of rows and a triple of columns
        const int pixel = s / OUTPUTS * WIDTH + lane % 8 * OUTPUTS + s % OUTPUTS;
        #pragma unroll
        for (int n = 0; n < 2; n++) {                                  // chunks of eight channels, four at a time
            const u32 at = output + pixel * ROW + ((n * 4 + lane / 8 ^ pixel % 8) << 4);
            u32 v[4];
            if (ADD) load_matrices(v, at);
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                float* sum = &m[s % OUTPUTS][(n * 4 + j) * 4 + s / OUTPUTS * 2];
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
    const u32 a_tiles = (shared_address(memory) + 1023) & ~1023u, b_tiles = a_tiles + A_STAGES * OUTPUTS * PLANE,
              outputs = b_tiles + B_STAGES * B_BYTES;
    const u32 a_full = outputs + 8 * OUT_WARP, a_empty = a_full + 8 * A_STAGES;
    const u32 b_full = a_empty + 8 * A_STAGES, b_empty = b_full + 8 * B_STAGES, y_full = b_empty + 8 * B_STAGES,
              y_empty = y_full + 8;
    // The compiler keeps in uniform registers what it knows to be equal in a warp.
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0), rank = __shfl_sync(~0u, cluster_rank(), 0);
    if (threadIdx.x == 0) {
        for (int i = 0; i < A_STAGES; i++) barrier_init(a_full + 8 * i, 1), barrier_init(a_empty + 8 * i, 8);
        for (int i = 0; i < B_STAGES; i++) barrier_init(b_full + 8 * i, 1), barrier_init(b_empty + 8 * i, 8 * BLOCKS);
        barrier_init(y_full, 1), barrier_init(y_empty, 8);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync();
    const int slabs = c.c_in / DEPTH, steps = c.taps_t * slabs, blocks = c.c_out / CHANNELS;
    const Cut cut(c, true, WIDTH);
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
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 256) {                                      // pixels
            for (int i = start; i < units; i += clusters) {
                const Tile tile = tile_of(i);
                for (int k = 0; k < steps; k++) {
                    const int frame = tile.t * c.stride_t + k / slabs + c.first;
                    barrier_wait(a_empty + 8 * a.at, a.parity ^ 1);
                    barrier_expect(a_full + 8 * a.at, OUTPUTS * (tile.wide ? WIDE_BYTES : A_BYTES));
                    for (int plane = 0; plane < OUTPUTS; plane++)
                        copy_4d(a_tiles + (a.at * OUTPUTS + plane) * PLANE,
                                frame < 0 ? &maps.cache[tile.wide] : &maps.x[tile.wide], a_full + 8 * a.at,
                                k % slabs * DEPTH, tile.column - c.pad_w + plane, tile.row - c.pad_h,
                                frame < 0 ? frame + c.cache_frames : frame);
                    a.next();
                }
            }
        }
        if (threadIdx.x == 288) {                                      // weights, and the contents of y
            int old = 0;
            for (int i = start; i < units; i += clusters) {
                const int parts = steps * (DEPTH / 16);
                const char* from = (const char*)w + (i64)(i % blocks) * parts * B_BYTES + rank * (B_BYTES / BLOCKS);
                for (int k = 0; k < parts; k++, from += B_BYTES) {
                    barrier_wait(b_empty + 8 * b.at, b.parity ^ 1);
                    barrier_expect(b_full + 8 * b.at, B_BYTES);
                    copy_multicast(b_tiles + b.at * B_BYTES + rank * (B_BYTES / BLOCKS), from, B_BYTES / BLOCKS,
                                   b_full + 8 * b.at);
                    b.next();
                    if (!add || k != min(parts - 1, 6)) continue;      // the multipliers have started this tile
                    const Tile tile = tile_of(i);
                    barrier_wait(y_empty, old ^ 1);
                    barrier_expect(y_full, 8 * OUT_WARP);
                    for (int warp = 0; warp < 8; warp++) {
                        const int right = tile.wide ? warp / 4 : 0;
                        copy_4d(outputs + warp * OUT_WARP, &map_y, y_full, tile.channel, tile.column + right * WIDTH,
                                tile.row + (warp - right * 4) * 2, tile.t * c.frame_step + c.frame_start);
                    }
                    old ^= 1;
                }
            }
        }
        cluster_sync();  // neither block exits while the other may write to its memory
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int warp = __shfl_sync(~0u, threadIdx.x % 128 / 32, 0), lane = threadIdx.x % 32;
    const u32 output = outputs + (group * 4 + warp) * OUT_WARP;
    const int width = partial ? c.c_out / groups : 0;                  // of a group: 4, 8 or 16
    int made = 0;
    for (int i = start; i < units; i += clusters) {
        const Tile tile = tile_of(i);
        const int pitch = tile.wide ? WIDE_COLUMNS : COLUMNS;
        const int top = (tile.wide ? 0 : group * 8) + warp * 2, row = tile.row + top,
                  left = tile.column + (tile.wide ? group * WIDTH : 0);
        u32 rows[4];
        #pragma unroll
        for (int r = 0; r < 4; r++)
            rows[r] = place((top + r) * pitch + (tile.wide ? group * (WIDTH / OUTPUTS) : 0), lane);
        float m[POINTS][32] = {};
        u32 t[POINTS][4];                                              // upper and lower row by halves of 16 channels
        Columns first, next;                                           // loaded ahead of use, where registers are free
        barrier_wait(a_full + 8 * a.at, a.parity);
        u32 planes = a_tiles + a.at * OUTPUTS * PLANE;
        first.load(planes + rows[0]), next.load(planes + rows[1]);
        barrier_wait(b_full + 8 * b.at, b.parity);
        int used = -1;
        for (int k = 0; k < steps; k++) {
            #pragma unroll
            for (int q = 0; q < PIXEL; q += 32) {
                const u32 weights = descriptor_of(b_tiles + b.at * B_BYTES);
                #pragma unroll
                for (int r = 0; r < 3; r++) {
                    Points upper, lower;
                    if (r == 0) upper.make<E>(first);
                    lower.make<E>(next);
                    #pragma unroll
                    for (int p = 0; p < POINTS; p++) {
                        wgmma_wait<POINTS - 1>();                      // the point's previous product has been computed
                        t[p][0] = r == 0 ? upper.t[p][0] : t[p][1], t[p][2] = r == 0 ? upper.t[p][1] : t[p][3];
                        t[p][1] = lower.t[p][0], t[p][3] = lower.t[p][1];
                        wgmma_fence();
                        wgmma_registers(E{}, m[p], t[p], weights + ((r * POINTS + p) * POINT >> 4));
                        wgmma_commit();
                        if (r < 2 && p == (r == 0 ? 2 : 0)) next.load(planes + (rows[r + 2] ^ q));
                        const int after = q + 32 < PIXEL ? q + 32 : 0;
                        const bool more = after > 0 || k + 1 < steps;
                        if (r == 2 && p == 0) {
                            used = b.at;
                            b.next();
                            if (after == 0) {                          // these pixels have been read
                                arrive_elected(a_empty + 8 * a.at);
                                a.next();
                                planes = a_tiles + a.at * OUTPUTS * PLANE;
                                if (more) barrier_wait(a_full + 8 * a.at, a.parity);
                            }
                            if (more) first.load(planes + (rows[0] ^ after));
                        }
                        if (r == 2 && p == 3 && more) {
                            barrier_wait(b_full + 8 * b.at, b.parity);
                            next.load(planes + (rows[1] ^ after));
                        }
                    }
                    // The last product with the previous weights has been computed.
                    if (r == 0 && used >= 0) arrive_elected_cluster(b_empty + 8 * used);
                }
            }
            if (made > 0 && k == 0 && lane == 0) {                     // the previous output has been read
                store_wait_read();
                barrier_arrive(y_empty);
            }
        }
        wgmma_wait<0>();
        arrive_elected_cluster(b_empty + 8 * used);
        #pragma unroll
        for (int j = 0; j < 32; j++) {
            const float2 pair = __ldg((const float2*)(bias + tile.channel + j / 4 * 8 + lane % 4 * 2));
            const float shift = j % 2 ? pair.y : pair.x;
            const float sum_a = m[0][j] + m[1][j], difference_a = m[0][j] - m[1][j];
            const float sum_b = m[2][j] + m[3][j], difference_b = m[2][j] - m[3][j];
            m[0][j] = sum_a + (sum_b + shift);
            m[1][j] = fmaf(A, difference_a, fmaf(B, difference_b, shift));
            m[2][j] = fmaf(A * A, sum_a, fmaf(B * B, sum_b, m[4][j] + shift));
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
            const int column = left + lane / 4 * OUTPUTS;
            if (tile.row + TILE > c.out_h || left + WIDTH > c.out_w) {
                #pragma unroll
                for (int j = 0; j < OUTPUTS * 32; j++)
                    if (row + j / 2 % 2 >= c.out_h || column + j / 32 >= c.out_w) m[j / 32][j % 32] = 0.f;
            }
            const int slots = cut.lines * cut.columns;
            float2* out = partial + (frame * groups + (tile.channel >> 31 - __clz(width))) * slots +
                          row / 2 * cut.columns + left / WIDTH;
            group_sums<8, OUTPUTS>([&](int side, int j) { return m[side][j]; }, width, out, slots, lane);
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
