// attention_512: softmax(q kᵀ / √512) v on Hopper for one head of 512 channels; the scores stay in registers
//
//   q, k, v  (sequences, tokens, 512) E through tensor maps, zero outside        out  (sequences, tokens, 512) E
//   grid     (tiles of 64 queries, an even number; sequences); the two blocks of a cluster share keys and values
//   block    two warpgroups: each scores 64 of 128 keys, then sums 256 of the 512 channels; a third one copies
//   differs  from the reference by the order of the sums, the rounding of the weights and that of the result
#include "hopper.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// A chunk holds 64 channels of 128 keys, or 256 channels of 32 values.
constexpr int QUERIES = 64, KEYS = 128, CHUNK = 16384, CHUNKS = 8, WEIGHTS = QUERIES * KEYS * 2;

// Blocks of a cluster. They share keys and values: each copies its part of a chunk to all of them.
constexpr int CLUSTER = 2;

__device__ __forceinline__ void copy_3d_multicast(u32 to, const TensorMap* map, u32 bar, int channel, int token,
                                                  int sequence) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%3,%4,%5}], [%2], %6;" ::"r"(to),
                 "l"(map), "r"(bar), "r"(channel), "r"(token), "r"(sequence), "h"((u16)((1 << CLUSTER) - 1))
                 : "memory");
}
__device__ __forceinline__ void copy_3d(u32 to, const TensorMap* map, u32 bar, int channel, int token, int sequence) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5}], [%2];" ::
            "r"(to),
        "l"(map), "r"(bar), "r"(channel), "r"(token), "r"(sequence)
        : "memory");
}
__device__ __forceinline__ void sync_groups(int which) { asm volatile("bar.sync %0, 256;" ::"r"(which) : "memory"); }

#define MINUS_INFINITY __int_as_float(0xFF800000)

// A ring of chunks in shared memory. Keys and values pass through it eight chunks at a time, in the order k0 k1 v0 k2
// v1 ..., so that the softmax of one block of keys overlaps with the value products of the block before. Eight chunks
// are a round; the parity of the barriers alternates with the rounds.
struct Chunks {
    u32 ring, full, empty;
    bool elected;
    __device__ __forceinline__ u32 at(int i) const { return ring + i * CHUNK; }
    __device__ __forceinline__ void wait(int i, int parity) const { barrier_wait(full + 8 * i, parity); }
    __device__ __forceinline__ void release(int i) const { if (elected) arrive_cluster<CLUSTER>(empty + 8 * i); }
};

// Softmax state of the two queries of a thread: maximum, sum of weights, factor for the sums so far.
struct Rows {
    float top[2] = {MINUS_INFINITY, MINUS_INFINITY}, total[2] = {}, alpha[2] = {1.f, 1.f};
};

// Keeps arithmetic with these values from moving across: the compiler does not see asynchronous products.
template <int N> __device__ __forceinline__ void hold(float (&values)[N]) {
    #pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(values[i])::"memory");
}

// Rescales the sums after the maximum has changed.
__device__ __forceinline__ void shrink(float (&sums)[128], const Rows& rows) {
    hold(sums);
    #pragma unroll
    for (int i = 0; i < 128; i++) sums[i] *= rows.alpha[i / 2 % 2];
    hold(sums);
}

// Queues s (64 x 64) = q kᵀ for this warpgroup's half of the keys, and releases all chunks but the last.
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
            wgmma(E{}, s, descriptor(queries + chunk * QUERIES * ROW + q, 8 * ROW),
                  descriptor(chunks.at(chunk) + group * 64 * ROW + q, 8 * ROW));
        wgmma_commit();
        if (chunk == 0) continue;
        wgmma_wait<1>();
        chunks.release(chunk - 1);
    }
}

// Queues sums (64 x 256) += weights v for 32 of the 128 keys and this warpgroup's half of the channels.
template <class E>
__device__ __forceinline__ void mix(float (&sums)[128], const Chunks& chunks, int parity, u32 weights, int quarter,
                                    int group) {
    const int chunk = quarter * 2 + group;
    const u32 values = chunks.at(chunk), chosen = weights + quarter / 2 * QUERIES * ROW + quarter % 2 * 64;
    chunks.wait(chunk, parity);
    wgmma_fence();
    wgmma_transposed_b(E{}, sums, descriptor(chosen, 8 * ROW), descriptor(values, 8 * ROW, CHUNK / 4));
    wgmma_transposed_b(E{}, sums, descriptor(chosen + 32, 8 * ROW), descriptor(values + 16 * ROW, 8 * ROW, CHUNK / 4));
    wgmma_commit();
}

// Writes the maximum over this warpgroup's keys, `keys` of which exist, to shared memory for the other warpgroup.
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

// Turns the scores of one of a thread's two queries into weights in shared memory.
template <class E>
__device__ __forceinline__ void softmax_row(const float (&s)[32], Rows& rows, float greatest, int half, u32 to, int row,
                                            int lane, float scale) {
    const float top = fmaxf(rows.top[half], greatest), alpha = exp2_fast((rows.top[half] - top) * scale);
    rows.top[half] = top, rows.alpha[half] = alpha, rows.total[half] *= alpha;
    #pragma unroll
    for (int j = 0; j < 8; j++) {
        const E lo = narrow<E>(exp2_fast((s[j * 4 + half * 2] - top) * scale)),
                hi = narrow<E>(exp2_fast((s[j * 4 + half * 2 + 1] - top) * scale));
        rows.total[half] += wide(lo) + wide(hi);
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(to + row * ROW + ((j ^ (row & 7)) * 16) + lane % 4 * 4),
                     "r"(lo.bits | (u32)hi.bits << 16)
                     : "memory");
    }
}

// The copying thread. Each block of a cluster copies its part of the keys and of the channels of the values.
__device__ __forceinline__ void load_keys_and_values(const TensorMap& map_k, const TensorMap& map_v,
                                                     const Chunks& chunks, int blocks, int sequence) {
    const u32 rank = cluster_rank();
    int round = 0;
    auto keys = [&](int block) {
        for (int i = 0; i < CHUNKS; i++) {
            barrier_wait(chunks.empty + 8 * i, ~round & 1);
            barrier_expect(chunks.full + 8 * i, CHUNK);
            copy_3d_multicast(chunks.at(i) + rank * CHUNK / CLUSTER, &map_k, chunks.full + 8 * i, i * 64,
                              block * KEYS + rank * KEYS / CLUSTER, sequence);
        }
        round++;
    };
    auto values = [&](int block) {
        for (int i = 0; i < CHUNKS; i++) {
            barrier_wait(chunks.empty + 8 * i, ~round & 1);
            barrier_expect(chunks.full + 8 * i, CHUNK);
            for (int b = rank * 4 / CLUSTER; b < (rank + 1) * 4 / CLUSTER; b++)
                copy_3d_multicast(chunks.at(i) + b * CHUNK / 4, &map_v, chunks.full + 8 * i, i % 2 * 256 + b * 64,
                                  block * KEYS + i / 2 * 32, sequence);
        }
        round++;
    };
    keys(0);
    for (int block = 1; block < blocks; block++) keys(block), values(block - 1);
    values(blocks - 1);
}

template <class E>
__device__ void attention_512(const TensorMap& map_q, const TensorMap& map_k, const TensorMap& map_v, E* out,
                              int tokens, float scale) {
    extern __shared__ unsigned char memory[];
    const u32 queries = (shared_address(memory) + 1023) & ~1023u, ring = queries + QUERIES * 1024,
              weights = ring + CHUNKS * CHUNK;
    const u32 full = weights + 2 * WEIGHTS, q_full = full + 16 * CHUNKS;
    const Chunks chunks{ring, full, full + 8 * CHUNKS, threadIdx.x % 128 == 0};
    __shared__ float exchange[2][QUERIES];
    const int group = threadIdx.x / 128, sequence = blockIdx.y, first = blockIdx.x * QUERIES,
              blocks = (tokens + KEYS - 1) / KEYS;
    if (threadIdx.x == 0) {
        for (int i = 0; i < CHUNKS; i++)
            barrier_init(chunks.full + 8 * i, 1), barrier_init(chunks.empty + 8 * i, 2 * CLUSTER);
        barrier_init(q_full, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync();
    if (group == 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 256) {
            barrier_expect(q_full, QUERIES * 1024);
            for (int i = 0; i < 8; i++) copy_3d(queries + i * QUERIES * ROW, &map_q, q_full, i * 64, first, sequence);
            load_keys_and_values(map_k, map_v, chunks, blocks, sequence);
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int lane = threadIdx.x % 32, mine = threadIdx.x % 128 / 32 * 16 + lane / 4;
        const float log2_scale = scale * 1.44269504f;
        float *const sent = &exchange[group][mine], *const received = &exchange[group ^ 1][mine];
        float sums[128] = {}, s[32], top[2];
        Rows rows;
        barrier_wait(q_full, 0);
        score<E>(s, chunks, 0, queries, group);
        wgmma_wait<0>();
        chunks.release(CHUNKS - 1);
        find_top(s, sent, top, tokens - group * 64, lane);
        sync_groups(1);
        #pragma unroll
        for (int half = 0; half < 2; half++)
            softmax_row<E>(s, rows, fmaxf(top[half], received[half * 8]), half, weights + group * QUERIES * ROW,
                           mine + half * 8, lane, log2_scale);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        int parity = 1;
        for (int block = 1; block < blocks; block++) {                 // scores of this block, values of the one before
            score<E>(s, chunks, parity, queries, group);
            parity ^= 1;
            if (__any_sync(~0u, rows.alpha[0] != 1.f || rows.alpha[1] != 1.f)) shrink(sums, rows);
            sync_groups(2);  // both have written their weights and read the previous ones
            const u32 chosen = weights + (block - 1) % 2 * WEIGHTS,
                      next = weights + block % 2 * WEIGHTS + group * QUERIES * ROW;
            mix<E>(sums, chunks, parity, chosen, 0, group);
            wgmma_wait<1>();
            chunks.release(CHUNKS - 1);
            mix<E>(sums, chunks, parity, chosen, 1, group);
            find_top(s, sent, top, tokens - block * KEYS - group * 64, lane);
            wgmma_wait<1>();
            chunks.release(0), chunks.release(1);
            mix<E>(sums, chunks, parity, chosen, 2, group);
            sync_groups(1);
            softmax_row<E>(s, rows, fmaxf(top[0], received[0]), 0, next, mine, lane, log2_scale);
            wgmma_wait<1>();
            chunks.release(2), chunks.release(3);
            mix<E>(sums, chunks, parity, chosen, 3, group);
            softmax_row<E>(s, rows, fmaxf(top[1], received[8]), 1, next, mine + 8, lane, log2_scale);
            wgmma_wait<1>();
            chunks.release(4), chunks.release(5);
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            wgmma_wait<0>();                                           // ptxas cannot follow products across iterations
            chunks.release(6), chunks.release(7);
            parity ^= 1;
        }
        shrink(sums, rows);
        sync_groups(2);
        #pragma unroll
        for (int quarter = 0; quarter < 4; quarter++)
            mix<E>(sums, chunks, parity, weights + (blocks - 1) % 2 * WEIGHTS, quarter, group);
        wgmma_wait<0>();
        #pragma unroll
        for (int half = 0; half < 2; half++) {
            float total = rows.total[half];
            total += __shfl_xor_sync(~0u, total, 1);
            total += __shfl_xor_sync(~0u, total, 2);
            rows.total[half] = total;
            if (lane % 4 == 0) sent[half * 8] = total;
        }
        sync_groups(1);
        #pragma unroll
        for (int half = 0; half < 2; half++) {
            const int query = first + mine + half * 8;
            const float one = 1.f / (rows.total[half] + received[half * 8]);
            if (query >= tokens) continue;
            E* to = out + ((i64)sequence * tokens + query) * 512 + group * 256 + lane % 4 * 2;
            #pragma unroll
            for (int j = 0; j < 32; j++)
                *(u32*)(to + j * 8) = narrow<E>(sums[j * 4 + half * 2] * one).bits |
                                      (u32)narrow<E>(sums[j * 4 + half * 2 + 1] * one).bits << 16;
        }
    }
    cluster_sync();  // no block exits while another may write to its memory
}

#define ATTENTION_512(E) \
    extern "C" __global__ void __launch_bounds__(384, 1) __cluster_dims__(CLUSTER, 1, 1) \
    attention_512_##E(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k, \
                      const __grid_constant__ TensorMap v, E* out, int tokens, float scale) { \
        attention_512<E>(q, k, v, out, tokens, scale); \
    }
ATTENTION_512(f16)
ATTENTION_512(bf16)

#endif
