// conv_hopper: causal convolution on Hopper, implicit GEMM with wgmma. A tile's input pixels are copied to shared
// memory once, with their halo, and every spatial tap multiplies the same pixels at another address.
//
//   x, cache (frames, H, W, C) E through tensor maps, zero outside        w  [phase][tap][Co][C] E        bias  f32
//            of the kernel for bytes: 128 channels in the first half of every 256 bytes of x and cache, bytes in w, and
//            pairs of f32 in bias: the value of one unit of the sum, and the bias
//   y        through a tensor map per phase; directly for few channels; `add` adds the result to its contents
//   partial  [frame][group][slot] (sum, sum of squares) of 2 x 16 pixels and the channels of a group, or null
//   grid     a block per multiprocessor, each loops over tiles of 16 x 16 pixels by BN channels; a last row of tiles
//            that is at most 8 pixels high has tiles of 8 x 32
//   block    two warpgroups multiply, 8 rows of 16 pixels each; one thread of a third one copies
//   needs    C a multiple of 8, stride S in space, Co a multiple of 8 or (few) at most 16; groups of 4, 8 or 16
//            channels
//   differs  from the reference by the order of the sums and one rounding; sums of bytes are exact
//
// Channels beyond C are zeros; weights beyond Co are read and ignored. The 64 channels of a pixel are one 128-byte row
// of the swizzle pattern, which depends on the address alone. A tap (dy, dx) therefore only moves the start address by
// whole rows: groups of 8 pixels stay one row of pixels apart, whatever the width of the halo. With stride 2 the pixels
// come in four planes, even and odd rows and columns, each with the taps that read it.
#include "group_sums.cuh"
#include "tiles.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int OUT_WARP = 8192, OUT_HALF = 4096;  // bytes of a warp's output, and of 64 of its channels

struct Phases { TensorMap of[4]; };

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

// The bias of a pixel: the same for all pixels, or for upsamplers one of a table indexed by the distance to the border.
template <int K>
__device__ __forceinline__ const float* bias_of(const ConvArgs& c, const Tile& tile, int row, int column,
                                                const float* bias) {
    if (K == 2) {
        row = min(2 * row + (tile.phase >> 1), 2 * c.out_h - 1),
        column = min(2 * column + (tile.phase & 1), 2 * c.out_w - 1);
        bias += (border_class(row, 2 * c.out_h) * 4 + border_class(column, 2 * c.out_w)) * c.c_out;
    }
    return bias + tile.channel;
}

// Initialises sums with the bias of their channels; those of channels beyond Co with zero.
template <int K>
__device__ __forceinline__ void begin(float (&sums)[2][64], const ConvArgs& c, const Tile& tile, int row, int column,
                                      const float* bias, int lane) {
    #pragma unroll
    for (int s = 0; s < 4; s++) {                                      // pixels (s % 2, s / 2 * 8) from row, column
        if (K != 2 && s > 0) break;                                    // the same for all pixels
        const float* shift = bias_of<K>(c, tile, row + s % 2, column + s / 2 * 8, bias) + lane % 4 * 2;
        #pragma unroll
        for (int j = 0; j < 16; j++) {
            const float2 b = tile.channel + j * 8 < c.c_out ? __ldg((const float2*)(shift + j * 8)) : float2{0.f, 0.f};
            #pragma unroll
            for (int same = s; same < (K == 2 ? s + 1 : 4); same++)
                sums[same / 2][j * 4 + same % 2 * 2] = b.x, sums[same / 2][j * 4 + same % 2 * 2 + 1] = b.y;
        }
    }
}

// The values of sums of bytes, with the bias; zero for channels beyond Co.
__device__ __forceinline__ void scale(float (&values)[2][64], const int (&sums)[2][64], const ConvArgs& c,
                                      const Tile& tile, const float* factors, int lane) {
    factors += 2 * (tile.channel + lane % 4 * 2);
    #pragma unroll
    for (int j = 0; j < 16; j++) {
        const float4 f = tile.channel + j * 8 < c.c_out ? __ldg((const float4*)(factors + j * 16)) : float4{};
        #pragma unroll
        for (int s = 0; s < 4; s++) {
            const int at = j * 4 + s % 2 * 2;
            values[s / 2][at] = (float)sums[s / 2][at] * f.x + f.y,
            values[s / 2][at + 1] = (float)sums[s / 2][at + 1] * f.z + f.w;
        }
    }
}

// Rounds the results of a warp into shared memory; with ADD, adds them to its contents.
template <class E, bool ADD>
__device__ __forceinline__ void round_out(float (&sums)[2][64], u32 output, int lane) {
    #pragma unroll
    for (int s = 0; s < 4; s++) {
        const u32 pixels = output + (s % 2 * 16 + s / 2 * 8 + lane % 8) * ROW;
        u32 v[4][4];
        #pragma unroll
        for (int n = 0; n < 4 && ADD; n++)
            load_matrices(v[n], pixels + n / 2 * OUT_HALF + (((n % 2 * 4 + lane / 8) ^ (lane % 8)) << 4));
        #pragma unroll
        for (int n = 0; n < 4; n++) {                                  // chunks of eight channels, four at a time
            #pragma unroll
            for (int j = 0; j < 4; j++) {
                float* sum = &sums[s / 2][(n * 4 + j) * 4 + s % 2 * 2];
                if (ADD) sum[0] += wide(E{(u16)v[n][j]}), sum[1] += wide(E{(u16)(v[n][j] >> 16)});
                v[n][j] = pack<E>(sum[0], sum[1]);
            }
            store_matrices(v[n], pixels + n / 2 * OUT_HALF + (((n % 2 * 4 + lane / 8) ^ (lane % 8)) << 4));
        }
    }
}

template <class In> struct Sums { using Type = float; };
template <> struct Sums<s8> { using Type = int; };

// `In` is the type of both operands, E that of the result.
template <class E, class In, int K, int S, int BN>
__device__ void conv_hopper(const Inputs& maps, const TensorMap& map_w, const Phases& maps_y, E* y, const float* bias,
                            int add, float2* partial, int groups, const ConvArgs& c) {
    // Weights of many channels are copied tap by tap. Those of few channels are copied for all taps at once, since a
    // tap's products would take less time than a wait at a barrier.
    constexpr bool BYTES = sizeof(In) == 1;
    constexpr int BK = ROW / sizeof(In), X_STEP = BYTES ? 2 * BK : BK;  // channels of a row, and their distance in x
    constexpr int TOGETHER = BN < 128 ? K * K : 1, A_STAGES = BN < 128 ? 4 : 2, B_STAGES = BN < 128 ? 2 : 4;
    constexpr int B_TAP = BN * ROW, B_BYTES = TOGETHER * B_TAP, PLANES = S * S;
    constexpr int BORDER = (K - 1) / S, HALO = TILE + BORDER, WIDE = 2 * TILE + BORDER;
    constexpr int A_BYTES = HALO * HALO * ROW, WIDE_BYTES = WIDE * (TILE / 2 + BORDER) * ROW;
    constexpr int A_STAGE = ((WIDE_BYTES > A_BYTES ? WIDE_BYTES : A_BYTES) + 1023) / 1024 * 1024;
    extern __shared__ unsigned char memory[];
    const u32 a_tiles = (shared_address(memory) + 1023) & ~1023u, b_tiles = a_tiles + A_STAGES * A_STAGE,
              outputs = b_tiles + B_STAGES * B_BYTES;
    const u32 a_full = outputs + (BN == 128 ? 8 * OUT_WARP : 0), a_empty = a_full + 8 * A_STAGES;
    const u32 b_full = a_empty + 8 * A_STAGES, b_empty = b_full + 8 * B_STAGES, y_full = b_empty + 8 * B_STAGES,
              y_empty = y_full + 8;
    const int group = threadIdx.x / 128;
    if (threadIdx.x == 0) {
        for (int i = 0; i < A_STAGES; i++) barrier_init(a_full + 8 * i, 1), barrier_init(a_empty + 8 * i, 2);
        for (int i = 0; i < B_STAGES; i++) barrier_init(b_full + 8 * i, 1), barrier_init(b_empty + 8 * i, 2);
        barrier_init(y_full, 1), barrier_init(y_empty, 8);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int slabs = (c.c_in + BK - 1) / BK, taps = c.taps_t * K * K, steps = c.taps_t * slabs * PLANES;
    const Cut cut(c, K > 1 && S == 1);
    const int blocks = (c.c_out + BN - 1) / BN, tiles = cut.tiles * blocks * c.phases * c.out_frames;
    auto tile_of = [&](int i) { return cut.tile(i / blocks / c.phases, i % blocks * BN, i / blocks % c.phases); };
    Ring<A_STAGES> a;
    Ring<B_STAGES> b;
    if (group >= 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x != 256) return;
        int old = 0;
        auto load_pixels = [&](const Tile& tile, int k) {
            const Plane<K, S> plane(k % PLANES);
            const int channel = k / PLANES % slabs * X_STEP,
                      frame = tile.t * c.stride_t + k / PLANES / slabs + c.first;
            const int row = tile.row * S - c.pad_h + (tile.phase >> 1) + plane.y,
                      column = tile.column * S - c.pad_w + (tile.phase & 1) + plane.x;
            barrier_wait(a_empty + 8 * a.at, a.parity ^ 1);
            barrier_expect(a_full + 8 * a.at, tile.wide ? WIDE_BYTES : A_BYTES);
            copy_4d(a_tiles + a.at * A_STAGE, frame < 0 ? &maps.cache[tile.wide] : &maps.x[tile.wide],
                    a_full + 8 * a.at, channel, column, row, frame < 0 ? frame + c.cache_frames : frame);
            a.next();
        };
        if (blockIdx.x < tiles) load_pixels(tile_of(blockIdx.x), 0);
        for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
            const Tile tile = tile_of(i);
            for (int k = 0; k < steps; k++) {
                const Plane<K, S> plane(k % PLANES);
                const int dt = k / PLANES / slabs, channel = k / PLANES % slabs * BK;
                for (int s = 0; s < plane.count; s += TOGETHER) {
                    barrier_wait(b_empty + 8 * b.at, b.parity ^ 1);
                    barrier_expect(b_full + 8 * b.at, B_BYTES);
                    for (int j = 0; j < TOGETHER; j++)
                        copy_2d(b_tiles + b.at * B_BYTES + j * B_TAP, &map_w, b_full + 8 * b.at, channel,
                                (tile.phase * taps + dt * K * K + plane.tap(s + j)) * c.c_out + tile.channel);
                    b.next();
                    // Pixels of the next step, once the multipliers have released those of the previous one.
                    if (s != min(B_STAGES, plane.count - TOGETHER)) continue;
                    if (k + 1 < steps) load_pixels(tile, k + 1);
                    else if (i + gridDim.x < tiles) load_pixels(tile_of(i + gridDim.x), 0);
                }
            }
            if (BN == 128 && add) {                                    // the multipliers have started this tile
                const int halves = c.c_out - tile.channel > 64 ? 2 : 1;
                barrier_wait(y_empty, old ^ 1);
                barrier_expect(y_full, 8 * halves * OUT_HALF);
                for (int i = 0; i < 8 * halves; i++) {
                    const int warp = i / halves, right = tile.wide ? warp / 4 : 0;
                    copy_4d(outputs + warp * OUT_WARP + i % halves * OUT_HALF, &maps_y.of[0], y_full,
                            tile.channel + i % halves * 64, tile.column + right * TILE,
                            tile.row + (warp - right * 4) * 2, tile.t * c.frame_step + c.frame_start);
                }
                old ^= 1;
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const bool elected = threadIdx.x % 128 == 0;
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    const u32 output = outputs + (group * 4 + warp) * OUT_WARP;
    int made = 0;
    for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
        const Tile tile = tile_of(i);
        const int pitch = tile.wide ? WIDE : HALO,
                  part = tile.wide ? TILE : (TILE / 2) * HALO;  // offset of the second warpgroup's pixels
        const int row = tile.row + (tile.wide ? 0 : group * 8) + warp * 2,
                  left = tile.column + (tile.wide ? group * TILE : 0), column = left + lane / 4;
        typename Sums<In>::Type sums[2][BN / 2];                       // 8 x 8 pixels each, left and right
        if constexpr (BN == 128 && !BYTES) {
            begin<K>(sums, c, tile, row, column, bias, lane);
        } else {
            #pragma unroll
            for (int j = 0; j < BN; j++) sums[j % 2][j / 2] = 0;
        }
        int used_a = -1, used_b = -1;
        for (int k = 0; k < steps; k++) {
            const Plane<K, S> plane(k % PLANES);
            barrier_wait(a_full + 8 * a.at, a.parity);
            const u32 pixels = a_tiles + a.at * A_STAGE + group * part * ROW;
            for (int s = 0; s < plane.count; s += TOGETHER) {
                barrier_wait(b_full + 8 * b.at, b.parity);
                wgmma_fence();
                #pragma unroll
                for (int i = 0; i < TOGETHER; i++) {
                    const u32 at = pixels + (plane.row(s + i) * pitch + plane.column(s + i)) * ROW,
                              weights = b_tiles + b.at * B_BYTES + i * B_TAP;
                    #pragma unroll
                    for (int q = 0; q < ROW; q += 32) {
                        const u64 w = descriptor(weights + q, 8 * ROW);
                        wgmma(In{}, sums[0], descriptor(at + q, pitch * ROW), w);
                        wgmma(In{}, sums[1], descriptor(at + 8 * ROW + q, pitch * ROW), w);
                    }
                }
                wgmma_commit();
                if (BN == 128 && made > 0 && k == 0 && s == 0 && lane == 0) {  // the previous output has been read
                    store_wait_read();
                    barrier_arrive(y_empty);
                }
                wgmma_wait<1>();
                // The operands of the previous product are free.
                if (elected && used_b >= 0) barrier_arrive(b_empty + 8 * used_b);
                if (elected && used_a >= 0) barrier_arrive(a_empty + 8 * used_a);
                used_a = -1, used_b = b.at;
                b.next();
            }
            used_a = a.at;
            a.next();
        }
        wgmma_wait<0>();
        if (elected) barrier_arrive(b_empty + 8 * used_b), barrier_arrive(a_empty + 8 * used_a);
        const i64 frame = tile.t * c.frame_step + c.frame_start;
        if constexpr (BN < 128) {                                      // too few channels for a chunk of eight
            #pragma unroll
            for (int s = 0; s < 4; s++) {
                const int r = row + s % 2, q = column + s / 2 * 8;
                if (r >= c.out_h || q >= c.out_w) continue;
                E* to = y + ((frame * c.out_h + r) * c.out_w + q) * c.y_pitch;
                #pragma unroll
                for (int j = 0; j < BN / 4; j++) {
                    const int channel = j / 2 * 8 + lane % 4 * 2 + j % 2;
                    if (channel >= c.c_out) continue;
                    const float old = add ? wide(to[channel]) : 0.f;
                    to[channel] = narrow<E>(sums[s / 2][j / 2 * 4 + s % 2 * 2 + j % 2] + bias[channel] + old);
                }
            }
        } else {
            auto finish = [&](float (&sums)[2][64]) {
                if (add) barrier_wait(y_full, made & 1);
                __syncwarp();
                add ? round_out<E, true>(sums, output, lane) : round_out<E, false>(sums, output, lane);
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                __syncwarp();
                if (lane == 0) {
                    for (int h = 0; h < 2 && tile.channel + h * 64 < c.c_out; h++)
                        store_4d(&maps_y.of[tile.phase], output + h * OUT_HALF, tile.channel + h * 64, left, row,
                                 (int)frame);
                    store_commit();
                }
                if (partial && left < c.out_w) {
                    if (tile.row + TILE > c.out_h || left + TILE > c.out_w) {
                        #pragma unroll
                        for (int i = 0; i < 128; i++)
                            if (row + i / 2 % 2 >= c.out_h || column + i / 64 * 8 >= c.out_w)
                                sums[i / 64][i % 64] = 0.f;
                    }
                    const int width = c.c_out / groups, slots = c.phases * cut.lines * cut.columns;
                    const int slot = (tile.phase * cut.lines + row / 2) * cut.columns + left / TILE;
                    float2* out = partial + (frame * groups + tile.channel / width) * slots + slot;
                    group_sums<16>([&](int side, int i) { return sums[side][i]; }, width, out, slots, lane);
                }
            };
            if constexpr (BYTES) {
                float values[2][64];
                scale(values, sums, c, tile, bias, lane);
                finish(values);
            } else {
                finish(sums);
            }
            made++;
        }
    }
    if (BN == 128 && lane == 0) store_wait();
}

#define CONV_HOPPER(name, E, In, K, S, BN)                                                                             \
    extern "C" __global__ void __launch_bounds__(384, 1)                                                           \
        name(const __grid_constant__ Inputs inputs, const __grid_constant__ TensorMap w,                           \
             const __grid_constant__ Phases phases, E* y, const float* bias, int add, float2* partial, int groups, \
             const __grid_constant__ ConvArgs c) {                                                                 \
        conv_hopper<E, In, K, S, BN>(inputs, w, phases, y, bias, add, partial, groups, c);                         \
    }
#define CONV_HOPPERS(E) \
    CONV_HOPPER(conv_hopper_3x3_##E, E, E, 3, 1, 128) \
    CONV_HOPPER(conv_hopper_3x3_by2_##E, E, E, 3, 2, 128) \
    CONV_HOPPER(conv_hopper_3x3_few_##E, E, E, 3, 1, 16) \
    CONV_HOPPER(conv_hopper_2x2_##E, E, E, 2, 1, 128) \
    CONV_HOPPER(conv_hopper_1x1_##E, E, E, 1, 1, 128)
CONV_HOPPERS(f16)
SINCE_AMPERE(CONV_HOPPERS(bf16))
CONV_HOPPER(conv_hopper_3x3_int8_f16, f16, s8, 3, 1, 128)

#endif
