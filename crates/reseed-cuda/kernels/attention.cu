// attention_512: softmax(q kᵀ / √512) v on Hopper for one head of 512 channels, without a matrix of scores
//
//   q, k, v  (sequences, tokens, 512) E through tensor maps, zero outside        out  (sequences, tokens, 512) E
//   grid     tiles of 64 queries, an even number of them, by sequences; two blocks share every key and value they read
//   block    two warpgroups: each scores 64 of 128 keys, then adds up 256 of the 512 channels; one thread of a third copies
//   differs  from the reference by the order of the sums, the rounding of the weights and that of the result
#include "hopper.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int QUERIES = 64, KEYS = 128, CHUNK = 16384, CHUNKS = 8, WEIGHTS = QUERIES * KEYS * 2;      // a chunk: 64 channels of 128 keys, or 256 of 32 values

// Blocks of a cluster, which share every key and value they read: each brings its part of a chunk to all of them.
constexpr int CLUSTER = 2;

__device__ __forceinline__ void copy_3d_all(u32 to, const TensorMap* map, u32 bar, int channel, int token, int sequence) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3,%4,%5}], [%2], %6;" ::"r"(to),
                 "l"(map), "r"(bar), "r"(channel), "r"(token), "r"(sequence), "h"((u16)((1 << CLUSTER) - 1)) : "memory");
}
__device__ __forceinline__ void copy_3d(u32 to, const TensorMap* map, u32 bar, int channel, int token, int sequence) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(channel), "r"(token), "r"(sequence) : "memory");
}
__device__ __forceinline__ void meet_groups(int which) { asm volatile("bar.sync %0, 256;" ::"r"(which) : "memory"); }

#define MINUS_INFINITY __int_as_float(0xFF800000)

// The ring of chunks in shared memory. Keys and values go through it eight chunks at a time, k0 k1 v0 k2 v1 ... v, so that
// there are scores to soften while tensor cores add up values; each eight is a round, of alternating parity.
struct Chunks {
    u32 ring, full, empty;
    bool speaks;
    __device__ __forceinline__ u32 at(int i) const { return ring + i * CHUNK; }
    __device__ __forceinline__ void wait(int i, int parity) const { barrier_wait(full + 8 * i, parity); }
    __device__ __forceinline__ void give_back(int i) const { if (speaks) arrive_all<CLUSTER>(empty + 8 * i); }
};

// What a thread knows of its two rows of queries.
struct Rows {
    float top[2] = {MINUS_INFINITY, MINUS_INFINITY}, total[2] = {}, alpha[2] = {1.f, 1.f};
};

// Arithmetic with these values stays on its side of this: the compiler knows nothing of products under way.
template <int N> __device__ __forceinline__ void hold(float (&values)[N]) {
    #pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(values[i])::"memory");
}

// Sums as they are when the greatest score has grown.
__device__ __forceinline__ void shrink(float (&sums)[128], const Rows& rows) {
    hold(sums);
    #pragma unroll
    for (int i = 0; i < 128; i++) sums[i] *= rows.alpha[i / 2 % 2];
    hold(sums);
}

// s (64 x 64) = q kᵀ for this warpgroup's half of the keys, queued; all chunks but the last are given back.
template <class E>
__device__ __forceinline__ void score(float (&s)[32], const Chunks& chunks, int parity, u32 queries, int group) {
    #pragma unroll
    for (int i = 0; i < 32; i++) s[i] = 0.f;
    #pragma unroll 1
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        chunks.wait(chunk, parity);
        wgmma_fence();
        #pragma unroll
        for (int q = 0; q < ROW; q += 32)
            wgmma(E{}, s, descriptor(queries + chunk * QUERIES * ROW + q, 8 * ROW), descriptor(chunks.at(chunk) + group * 64 * ROW + q, 8 * ROW));
        wgmma_commit();
        if (chunk == 0) continue;
        wgmma_wait<1>();
        chunks.give_back(chunk - 1);
    }
}

// sums (64 x 256) += weights v for a quarter of the keys, 32 of them, and this warpgroup's half of the channels; queued.
template <class E>
__device__ __forceinline__ void mix(float (&sums)[128], const Chunks& chunks, int parity, u32 weights, int quarter, int group) {
    const int chunk = quarter * 2 + group;
    const u32 values = chunks.at(chunk), chosen = weights + quarter / 2 * QUERIES * ROW + quarter % 2 * 64;
    chunks.wait(chunk, parity);
    wgmma_fence();
    wgmma_as_it_lies(E{}, sums, descriptor(chosen, 8 * ROW), descriptor(values, 8 * ROW, CHUNK / 4));
    wgmma_as_it_lies(E{}, sums, descriptor(chosen + 32, 8 * ROW), descriptor(values + 16 * ROW, 8 * ROW, CHUNK / 4));
    wgmma_commit();
}

// The greatest score of this warpgroup's keys, of which `keys` exist, for the other to read.
__device__ __forceinline__ void find_top(float (&s)[32], float* exchange, float (&top)[2], int keys, int lane) {
    hold(s);
    #pragma unroll
    for (int half = 0; half < 2; half++) {
        top[half] = MINUS_INFINITY;
        #pragma unroll
        for (int j = 0; j < 16; j++) {
            float& v = s[j / 2 * 4 + half * 2 + j % 2];
            if (j / 2 * 8 + lane % 4 * 2 + j % 2 >= keys) v = MINUS_INFINITY;
            top[half] = fmaxf(top[half], v);
        }
        top[half] = fmaxf(top[half], __shfl_xor_sync(~0u, top[half], 1));
        top[half] = fmaxf(top[half], __shfl_xor_sync(~0u, top[half], 2));
        if (lane % 4 == 0) exchange[half * 8] = top[half];
    }
}

// Scores of one of a thread's two rows become weights in shared memory.
template <class E>
__device__ __forceinline__ void soften(const float (&s)[32], Rows& rows, float greatest, int half, u32 to, int row, int lane, float scale) {
    const float top = fmaxf(rows.top[half], greatest), alpha = exp2_fast((rows.top[half] - top) * scale);
    rows.top[half] = top, rows.alpha[half] = alpha, rows.total[half] *= alpha;
    #pragma unroll
    for (int j = 0; j < 8; j++) {
        const E lo = narrow<E>(exp2_fast((s[j * 4 + half * 2] - top) * scale)), hi = narrow<E>(exp2_fast((s[j * 4 + half * 2 + 1] - top) * scale));
        rows.total[half] += wide(lo) + wide(hi);
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + row * ROW + ((j ^ (row & 7)) * 16) + lane % 4 * 4), "r"(lo.bits | (u32)hi.bits << 16) : "memory");
    }
}

// The thread that copies. Each block of a cluster brings its part of the keys and of the channels of the values.
__device__ __forceinline__ void bring(const TensorMap& map_k, const TensorMap& map_v, const Chunks& chunks, int blocks, int sequence) {
    const u32 rank = rank_in_cluster();
    int round = 0;
    auto keys = [&](int block) {
        for (int i = 0; i < CHUNKS; i++) {
            barrier_wait(chunks.empty + 8 * i, ~round & 1);
            barrier_expect(chunks.full + 8 * i, CHUNK);
            copy_3d_all(chunks.at(i) + rank * CHUNK / CLUSTER, &map_k, chunks.full + 8 * i, i * 64, block * KEYS + rank * KEYS / CLUSTER, sequence);
        }
        round++;
    };
    auto values = [&](int block) {
        for (int i = 0; i < CHUNKS; i++) {
            barrier_wait(chunks.empty + 8 * i, ~round & 1);
            barrier_expect(chunks.full + 8 * i, CHUNK);
            for (int b = rank * 4 / CLUSTER; b < (rank + 1) * 4 / CLUSTER; b++)
                copy_3d_all(chunks.at(i) + b * CHUNK / 4, &map_v, chunks.full + 8 * i, i % 2 * 256 + b * 64, block * KEYS + i / 2 * 32, sequence);
        }
        round++;
    };
    keys(0);
    for (int block = 1; block < blocks; block++) keys(block), values(block - 1);
    values(blocks - 1);
}

template <class E>
__device__ void attention_512(const TensorMap& map_q, const TensorMap& map_k, const TensorMap& map_v, E* out, int tokens, float scale) {
    extern __shared__ unsigned char memory[];
    const u32 queries = (shared_address(memory) + 1023) & ~1023u, ring = queries + QUERIES * 1024, weights = ring + CHUNKS * CHUNK;
    const u32 full = weights + 2 * WEIGHTS, q_full = full + 16 * CHUNKS;
    const Chunks chunks{ring, full, full + 8 * CHUNKS, threadIdx.x % 128 == 0};
    __shared__ float exchange[2][QUERIES];
    const int group = threadIdx.x / 128, sequence = blockIdx.y, first = blockIdx.x * QUERIES, blocks = (tokens + KEYS - 1) / KEYS;
    if (threadIdx.x == 0) {
        for (int i = 0; i < CHUNKS; i++) barrier_init(chunks.full + 8 * i, 1), barrier_init(chunks.empty + 8 * i, 2 * CLUSTER);
        barrier_init(q_full, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    meet_cluster();
    if (group == 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 256) {
            barrier_expect(q_full, QUERIES * 1024);
            for (int i = 0; i < 8; i++) copy_3d(queries + i * QUERIES * ROW, &map_q, q_full, i * 64, first, sequence);
            bring(map_k, map_v, chunks, blocks, sequence);
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int lane = threadIdx.x % 32, mine = threadIdx.x % 128 / 32 * 16 + lane / 4;
        const float log2_scale = scale * 1.44269504f;
        float *const told = &exchange[group][mine], *const heard = &exchange[group ^ 1][mine];
        float sums[128] = {}, s[32], top[2];
        Rows rows;
        barrier_wait(q_full, 0);
        score<E>(s, chunks, 0, queries, group);
        wgmma_wait<0>();
        chunks.give_back(CHUNKS - 1);
        find_top(s, told, top, tokens - group * 64, lane);
        meet_groups(1);
        #pragma unroll
        for (int half = 0; half < 2; half++)
            soften<E>(s, rows, fmaxf(top[half], heard[half * 8]), half, weights + group * QUERIES * ROW, mine + half * 8, lane, log2_scale);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        int parity = 1;
        for (int block = 1; block < blocks; block++) {                 // the next scores, and the values of those before
            score<E>(s, chunks, parity, queries, group);
            parity ^= 1;
            if (__any_sync(~0u, rows.alpha[0] != 1.f || rows.alpha[1] != 1.f)) shrink(sums, rows);
            meet_groups(2);                                            // both have left their weights, and read those before
            const u32 chosen = weights + (block - 1) % 2 * WEIGHTS, next = weights + block % 2 * WEIGHTS + group * QUERIES * ROW;
            mix<E>(sums, chunks, parity, chosen, 0, group);
            wgmma_wait<1>();
            chunks.give_back(CHUNKS - 1);
            mix<E>(sums, chunks, parity, chosen, 1, group);
            find_top(s, told, top, tokens - block * KEYS - group * 64, lane);
            wgmma_wait<1>();
            chunks.give_back(0), chunks.give_back(1);
            mix<E>(sums, chunks, parity, chosen, 2, group);
            meet_groups(1);
            soften<E>(s, rows, fmaxf(top[0], heard[0]), 0, next, mine, lane, log2_scale);
            wgmma_wait<1>();
            chunks.give_back(2), chunks.give_back(3);
            mix<E>(sums, chunks, parity, chosen, 3, group);
            soften<E>(s, rows, fmaxf(top[1], heard[8]), 1, next, mine + 8, lane, log2_scale);
            wgmma_wait<1>();
            chunks.give_back(4), chunks.give_back(5);
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            wgmma_wait<0>();                                           // products do not outlive a turn: that is more than ptxas follows
            chunks.give_back(6), chunks.give_back(7);
            parity ^= 1;
        }
        shrink(sums, rows);
        meet_groups(2);
        #pragma unroll
        for (int quarter = 0; quarter < 4; quarter++) mix<E>(sums, chunks, parity, weights + (blocks - 1) % 2 * WEIGHTS, quarter, group);
        wgmma_wait<0>();
        #pragma unroll
        for (int half = 0; half < 2; half++) {
            float total = rows.total[half];
            total += __shfl_xor_sync(~0u, total, 1);
            total += __shfl_xor_sync(~0u, total, 2);
            rows.total[half] = total;
            if (lane % 4 == 0) told[half * 8] = total;
        }
        meet_groups(1);
        #pragma unroll
        for (int half = 0; half < 2; half++) {
            const int query = first + mine + half * 8;
            const float one = 1.f / (rows.total[half] + heard[half * 8]);
            if (query >= tokens) continue;
            E* to = out + ((i64)sequence * tokens + query) * 512 + group * 256 + lane % 4 * 2;
            #pragma unroll
            for (int j = 0; j < 32; j++)
                *(u32*)(to + j * 8) = narrow<E>(sums[j * 4 + half * 2] * one).bits | (u32)narrow<E>(sums[j * 4 + half * 2 + 1] * one).bits << 16;
        }
    }
    meet_cluster();                                                    // no block leaves while another may write to it
}

#define ATTENTION_512(E)                                                                                                \
    extern "C" __global__ void __launch_bounds__(384, 1) __cluster_dims__(CLUSTER, 1, 1)                                      \
    attention_512_##E(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,                         \
                      const __grid_constant__ TensorMap v, E* out, int tokens, float scale) {                           \
        attention_512<E>(q, k, v, out, tokens, scale);                                                                  \
    }
ATTENTION_512(f16)
ATTENTION_512(bf16)

#endif
