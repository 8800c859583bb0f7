// conv_halo: causal convolution on Hopper. The pixels that a tile reads are brought to shared memory once, with their
// border, and every spatial tap multiplies the same pixels at another address.
//
//   x, past  (frames, H, W, C) E through tensor maps, zero outside        w  [phase][tap][Co][C] E        y  E        bias f32
//   grid     as many blocks as multiprocessors, each walks over tiles of 16 x 16 pixels by BN channels
//   block    two warpgroups multiply, 8 rows of pixels each; one thread of a third one copies
//   needs    C a multiple of 64, stride 1, Co even or (few) at most 16; weights beyond Co are read and dropped
//   differs  from the reference by the order of the sums and one rounding
//
// A pixel's 64 channels are one 128-byte row of the swizzle, and the swizzle follows the address alone. So a tap that
// moves the tile by (dy, dx) moves the start address by whole rows and nothing else: groups of 8 pixels stay one row of
// pixels apart, whatever the border's width.
#include "element.cuh"
#include "params.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct alignas(64) TensorMap { u64 opaque[16]; };

constexpr int TILE = 16, HALO_BK = 64, ROW = 128;                       // ROW: bytes of 64 channels
constexpr int A_STAGES = 2, B_STAGES = 6;

__device__ __forceinline__ void barrier_init(u32 bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count));
}
__device__ __forceinline__ void barrier_expect(u32 bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 bar, int phase) {
    asm volatile("{\n.reg .pred p;\nL_%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra L_%=;\n}" ::"r"(bar), "r"(phase) : "memory");
}
__device__ __forceinline__ void copy_pixels(u32 to, const TensorMap* map, u32 bar, int channel, int column, int row, int frame) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(channel), "r"(column), "r"(row), "r"(frame) : "memory");
}
__device__ __forceinline__ void copy_weights(u32 to, const TensorMap* map, u32 bar, int channel, int row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(channel), "r"(row) : "memory");
}

// Rows of 128 bytes, swizzled; `group` bytes between groups of eight.
__device__ __forceinline__ u64 descriptor(u32 address, u32 group) {
    return (u64)((address & 0x3FFFF) >> 4) | (u64)1 << 16 | (u64)(group >> 4) << 32 | (u64)1 << 62;
}

// d (64 x 128) = a (64 x 16) · b (128 x 16)ᵀ + (live ? d : 0)
#define WGMMA(type)                                                                                                     \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                           \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {"                                               \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}," \
        "%64, %65, p, 1, 1, 0, 0;\n}"                                                                                   \
        : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]),"+f"(d[8]),"+f"(d[9]),"+f"(d[10]),"+f"(d[11]),"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15]), \
          "+f"(d[16]),"+f"(d[17]),"+f"(d[18]),"+f"(d[19]),"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23]),"+f"(d[24]),"+f"(d[25]),"+f"(d[26]),"+f"(d[27]),"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31]), \
          "+f"(d[32]),"+f"(d[33]),"+f"(d[34]),"+f"(d[35]),"+f"(d[36]),"+f"(d[37]),"+f"(d[38]),"+f"(d[39]),"+f"(d[40]),"+f"(d[41]),"+f"(d[42]),"+f"(d[43]),"+f"(d[44]),"+f"(d[45]),"+f"(d[46]),"+f"(d[47]), \
          "+f"(d[48]),"+f"(d[49]),"+f"(d[50]),"+f"(d[51]),"+f"(d[52]),"+f"(d[53]),"+f"(d[54]),"+f"(d[55]),"+f"(d[56]),"+f"(d[57]),"+f"(d[58]),"+f"(d[59]),"+f"(d[60]),"+f"(d[61]),"+f"(d[62]),"+f"(d[63]) \
        : "l"(a), "l"(b), "r"(live))
// The same with 16 columns.
#define WGMMA_16(type)                                                                                                  \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"                                                           \
        "wgmma.mma_async.sync.aligned.m64n16k16.f32." type "." type " {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p, 1, 1, 0, 0;\n}" \
        : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7])                       \
        : "l"(a), "l"(b), "r"(live))
__device__ __forceinline__ void wgmma(f16, float (&d)[64], u64 a, u64 b, int live) { WGMMA("f16"); }
__device__ __forceinline__ void wgmma(bf16, float (&d)[64], u64 a, u64 b, int live) { WGMMA("bf16"); }
__device__ __forceinline__ void wgmma(f16, float (&d)[8], u64 a, u64 b, int live) { WGMMA_16("f16"); }
__device__ __forceinline__ void wgmma(bf16, float (&d)[8], u64 a, u64 b, int live) { WGMMA_16("bf16"); }

// A position in a ring of buffers, and the parity of its round.
template <int STAGES> struct Ring {
    int at = 0, parity = 0;
    __device__ __forceinline__ void next() { if (++at == STAGES) at = 0, parity ^= 1; }
};

struct Tile { int t, row, column, channel, phase; };

template <int BN>
__device__ __forceinline__ Tile tile_of(const ConvArgs& c, int i) {
    const int blocks = (c.c_out + BN - 1) / BN, columns = (c.out_w + TILE - 1) / TILE, rows = (c.out_h + TILE - 1) / TILE;
    const int channel = i % blocks * BN; i /= blocks;
    const int phase = i % c.phases; i /= c.phases;
    const int column = i % columns * TILE; i /= columns;
    return {i / rows, i % rows * TILE, column, channel, phase};
}

__device__ __forceinline__ int halo_class(int i, int n) { return i == 0 ? 0 : i == n - 1 ? 3 : 1 + (i & 1); }

template <class E> __device__ __forceinline__ float2 load_pair(const E* p) {
    const u32 v = *(const u32*)p;
    return {wide(E{(u16)v}), wide(E{(u16)(v >> 16)})};
}
template <> __device__ __forceinline__ float2 load_pair<float>(const float* p) { return *(const float2*)p; }
template <class E> __device__ __forceinline__ void store_pair(E* p, float lo, float hi) {
    *(u32*)p = narrow<E>(lo).bits | (u32)narrow<E>(hi).bits << 16;
}
template <> __device__ __forceinline__ void store_pair<float>(float* p, float lo, float hi) { *(float2*)p = {lo, hi}; }

template <class E, class Out, int K, int BN>
__device__ void conv_halo(const TensorMap& map_x, const TensorMap& map_past, const TensorMap& map_w, Out* y, const float* bias, const Out* residual, const ConvArgs& c) {
    constexpr int B_BYTES = BN * ROW;
    constexpr int HALO = TILE + K - 1, A_BYTES = HALO * HALO * ROW, A_STAGE = (A_BYTES + 1023) / 1024 * 1024;
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
    const int tiles = ((c.out_w + TILE - 1) / TILE) * ((c.out_h + TILE - 1) / TILE) * ((c.c_out + BN - 1) / BN) * c.phases * c.out_frames;
    Ring<A_STAGES> a;
    Ring<B_STAGES> b;
    if (group == 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x != 256) return;
        for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
            const Tile tile = tile_of<BN>(c, i);
            const int row = tile.row - c.pad_h + (tile.phase >> 1), column = tile.column - c.pad_w + (tile.phase & 1);
            for (int k = 0; k < c.taps_t * slabs; k++) {
                const int dt = k / slabs, channel = k % slabs * HALO_BK, frame = tile.t + dt + c.first;
                barrier_wait(a_empty + 8 * a.at, a.parity ^ 1);
                barrier_expect(a_full + 8 * a.at, A_BYTES);
                copy_pixels(a_tiles + a.at * A_STAGE, frame < 0 ? &map_past : &map_x, a_full + 8 * a.at, channel, column, row,
                            frame < 0 ? frame + c.past_frames : frame);
                a.next();
                for (int s = 0; s < K * K; s++) {
                    barrier_wait(b_empty + 8 * b.at, b.parity ^ 1);
                    barrier_expect(b_full + 8 * b.at, B_BYTES);
                    copy_weights(b_tiles + b.at * B_BYTES, &map_w, b_full + 8 * b.at, channel,
                                 (tile.phase * taps + dt * K * K + s) * c.c_out + tile.channel);
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
        float sums[2][BN / 2];                                         // 8 x 8 pixels each, left and right
        int live = 0, used_a = -1, used_b = -1;
        for (int k = 0; k < c.taps_t * slabs; k++) {
            barrier_wait(a_full + 8 * a.at, a.parity);
            const u32 pixels = a_tiles + a.at * A_STAGE + group * 8 * HALO * ROW;
            for (int s = 0; s < K * K; s++) {
                barrier_wait(b_full + 8 * b.at, b.parity);
                const u32 at = pixels + (s / K * HALO + s % K) * ROW, weights = b_tiles + b.at * B_BYTES;
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                #pragma unroll
                for (int q = 0; q < ROW; q += 32) {
                    const u64 w = descriptor(weights + q, 8 * ROW);
                    wgmma(E{}, sums[0], descriptor(at + q, HALO * ROW), w, live);
                    wgmma(E{}, sums[1], descriptor(at + 8 * ROW + q, HALO * ROW), w, live);
                    live = 1;
                }
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                // What the product before this one read is free now.
                if (speaks && used_b >= 0) barrier_arrive(b_empty + 8 * used_b);
                if (speaks && used_a >= 0) barrier_arrive(a_empty + 8 * used_a);
                used_a = -1, used_b = b.at;
                b.next();
            }
            used_a = a.at;
            a.next();
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (speaks) barrier_arrive(b_empty + 8 * used_b), barrier_arrive(a_empty + 8 * used_a);
        #pragma unroll
        for (int side = 0; side < 2; side++) {
            #pragma unroll
            for (int half = 0; half < 2; half++) {
                const int pixel = warp * 16 + half * 8 + lane / 4;
                int row = tile.row + group * 8 + pixel / 8, column = tile.column + side * 8 + pixel % 8, h = c.out_h, w = c.out_w;
                if (row >= h || column >= w) continue;
                const float* shift = bias;
                if (c.phases == 4) {
                    row = 2 * row + (tile.phase >> 1), column = 2 * column + (tile.phase & 1), h *= 2, w *= 2;
                    shift += (halo_class(row, h) * 4 + halo_class(column, w)) * c.c_out;
                }
                const int first = tile.channel + lane % 4 * 2;
                const i64 at = (((i64)(tile.t * c.frame_step + c.frame_start) * h + row) * w + column) * c.y_pitch + first;
                #pragma unroll
                for (int j = 0; j < BN / 8; j++) {
                    const float* sum = &sums[side][j * 4 + half * 2];
                    if (BN < 128) {                                    // channels that fill no pair, let alone a tile
                        for (int k = 0; k < 2 && first + j * 8 + k < c.c_out; k++) {
                            const float r = residual ? wide(residual[at + j * 8 + k]) : 0.f;
                            y[at + j * 8 + k] = narrow<Out>(sum[k] + shift[first + j * 8 + k] + r);
                        }
                        continue;
                    }
                    if (first + j * 8 >= c.c_out) break;
                    const float2 v = *(const float2*)(shift + first + j * 8);
                    const float2 r = residual ? load_pair(residual + at + j * 8) : float2{0.f, 0.f};
                    store_pair(y + at + j * 8, sum[0] + v.x + r.x, sum[1] + v.y + r.y);
                }
            }
        }
    }
}

#define CONV_HALO(name, E, Out, K, BN)                                                                                  \
    extern "C" __global__ void __launch_bounds__(384, 1)                                                                \
    name(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap past, const __grid_constant__ TensorMap w, \
         Out* y, const float* bias, const Out* residual, const __grid_constant__ ConvArgs c) {                          \
        conv_halo<E, Out, K, BN>(x, past, w, y, bias, residual, c);                                                     \
    }
CONV_HALO(conv_halo_3x3_f16, f16, f16, 3, 128)
CONV_HALO(conv_halo_3x3_bf16, bf16, bf16, 3, 128)
CONV_HALO(conv_halo_3x3_few_f16, f16, f16, 3, 16)
CONV_HALO(conv_halo_3x3_few_bf16, bf16, bf16, 3, 16)
CONV_HALO(conv_halo_2x2_f16, f16, f16, 2, 128)
CONV_HALO(conv_halo_2x2_bf16, bf16, bf16, 2, 128)
CONV_HALO(conv_halo_1x1_f16, f16, f16, 1, 128)
CONV_HALO(conv_halo_1x1_bf16, bf16, bf16, 1, 128)
CONV_HALO(conv_halo_1x1_f16_f32, f16, float, 1, 128)
CONV_HALO(conv_halo_1x1_bf16_f32, bf16, float, 1, 128)

#endif
