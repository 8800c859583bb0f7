// attention_512: softmax(q kᵀ / √512) v on Hopper for one head of 512 channels, without a matrix of scores
//
//   q, k, v  (sequences, tokens, 512) E through tensor maps, zero outside        out  (sequences, tokens, 512) E
//   grid     tiles of 64 queries, an even number of them, by sequences; two blocks share every key and value they read
//   block    two warpgroups: each scores 64 of 128 keys, then adds up 256 of the 512 channels; one thread of a third copies
//   differs  from the reference by the order of the sums, the rounding of the weights and that of the result
#include "hopper.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int QUERIES = 64, KEYS = 128, CHUNK = 16384, CHUNKS = 8;      // a chunk: 64 channels of 128 keys, or 256 of 32 values

// The unit copies to both blocks of a pair, and tells the barrier of each.
__device__ __forceinline__ void copy_3d_both(u32 to, const TensorMap* map, u32 bar, int channel, int token, int sequence) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3,%4,%5}], [%2], %6;" ::"r"(to),
                 "l"(map), "r"(bar), "r"(channel), "r"(token), "r"(sequence), "h"((u16)3) : "memory");
}
__device__ __forceinline__ void copy_3d(u32 to, const TensorMap* map, u32 bar, int channel, int token, int sequence) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(channel), "r"(token), "r"(sequence) : "memory");
}
__device__ __forceinline__ void meet_groups(int which) { asm volatile("bar.sync %0, 256;" ::"r"(which) : "memory"); }

#define MINUS_INFINITY __int_as_float(0xFF800000)

// What a thread knows of its two rows of queries.
struct Row { float top = MINUS_INFINITY, total = 0.f; };

// Keys and values take turns in the ring, so that a chunk of keys always completes an even round and one of values an odd one.

// s (64 x 64) = q kᵀ for this warpgroup's half of the keys, queued; all chunks but the last are given back.
template <class E>
__device__ __forceinline__ void score(float (&s)[32], u32 queries, u32 ring, u32 full, u32 empty, int group, bool speaks) {
    #pragma unroll
    for (int i = 0; i < 32; i++) s[i] = 0.f;
    #pragma unroll 1
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        barrier_wait(full + 8 * chunk, 0);
        wgmma_fence();
        #pragma unroll
        for (int q = 0; q < ROW; q += 32)
            wgmma(E{}, s, descriptor(queries + chunk * QUERIES * ROW + q, 8 * ROW), descriptor(ring + chunk * CHUNK + group * 64 * ROW + q, 8 * ROW));
        wgmma_commit();
        if (chunk == 0) continue;
        wgmma_wait<1>();
        if (speaks) arrive_both(empty + 8 * (chunk - 1));
    }
}

template <class E>
__device__ void attention_512(const TensorMap& map_q, const TensorMap& map_k, const TensorMap& map_v, E* out, int tokens, float scale) {
    extern __shared__ unsigned char memory[];
    const u32 queries = (shared_address(memory) + 1023) & ~1023u, ring = queries + QUERIES * 1024, weights = ring + CHUNKS * CHUNK;
    const u32 full = weights + QUERIES * KEYS * 2, empty = full + 8 * CHUNKS, q_full = empty + 8 * CHUNKS;
    __shared__ float exchange[2][QUERIES];
    const int group = threadIdx.x / 128, sequence = blockIdx.y, first = blockIdx.x * QUERIES, blocks = (tokens + KEYS - 1) / KEYS;
    if (threadIdx.x == 0) {
        for (int i = 0; i < CHUNKS; i++) barrier_init(full + 8 * i, 1), barrier_init(empty + 8 * i, 4);
        barrier_init(q_full, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    meet_pair();
    if (group == 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 256) {
            const u32 rank = rank_in_pair();
            barrier_expect(q_full, QUERIES * 1024);
            for (int i = 0; i < 8; i++) copy_3d(queries + i * QUERIES * ROW, &map_q, q_full, i * 64, first, sequence);
            for (int block = 0; block < blocks; block++) {
                for (int i = 0; i < CHUNKS; i++) {                     // each block of the pair brings half of the keys
                    barrier_wait(empty + 8 * i, 1);
                    barrier_expect(full + 8 * i, CHUNK);
                    copy_3d_both(ring + i * CHUNK + rank * CHUNK / 2, &map_k, full + 8 * i, i * 64, block * KEYS + rank * 64, sequence);
                }
                for (int i = 0; i < CHUNKS; i++) {                     // and half of the channels of the values
                    barrier_wait(empty + 8 * i, 0);
                    barrier_expect(full + 8 * i, CHUNK);
                    for (int b = rank * 2; b < rank * 2 + 2; b++)
                        copy_3d_both(ring + i * CHUNK + b * CHUNK / 4, &map_v, full + 8 * i, i % 2 * 256 + b * 64, block * KEYS + i / 2 * 32, sequence);
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const bool speaks = threadIdx.x % 128 == 0;
        const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32, mine = warp * 16 + lane / 4;
        const float log2_scale = scale * 1.44269504f;
        float sums[128] = {}, s[32];
        Row rows[2];
        barrier_wait(q_full, 0);
        score<E>(s, queries, ring, full, empty, group, speaks);
        for (int block = 0; block < blocks; block++) {
            wgmma_wait<0>();
            if (speaks) arrive_both(empty + 8 * (CHUNKS - 1));
            float alpha[2];
            #pragma unroll
            for (int half = 0; half < 2; half++) {
                float top = MINUS_INFINITY;
                #pragma unroll
                for (int j = 0; j < 16; j++) {
                    float& v = s[j / 2 * 4 + half * 2 + j % 2];
                    if (block * KEYS + group * 64 + j / 2 * 8 + lane % 4 * 2 + j % 2 >= tokens) v = MINUS_INFINITY;
                    top = fmaxf(top, v);
                }
                top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
                top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
                alpha[half] = top;
                if (lane % 4 == 0) exchange[group][mine + half * 8] = top;
            }
            meet_groups(1);
            #pragma unroll
            for (int half = 0; half < 2; half++) {
                Row& row = rows[half];
                const float top = fmaxf(row.top, fmaxf(alpha[half], exchange[group ^ 1][mine + half * 8]));
                alpha[half] = exp2_fast((row.top - top) * log2_scale);
                row.top = top, row.total *= alpha[half];
                #pragma unroll
                for (int j = 0; j < 8; j++) {
                    const E lo = narrow<E>(exp2_fast((s[j * 4 + half * 2] - top) * log2_scale)), hi = narrow<E>(exp2_fast((s[j * 4 + half * 2 + 1] - top) * log2_scale));
                    row.total += wide(lo) + wide(hi);
                    const int r = mine + half * 8;
                    const u32 at = weights + group * QUERIES * ROW + r * ROW + ((j ^ (r & 7)) * 16) + lane % 4 * 4;
                    asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(lo.bits | (u32)hi.bits << 16) : "memory");
                }
            }
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            meet_groups(2);
            if (__any_sync(~0u, alpha[0] != 1.f || alpha[1] != 1.f)) {
                #pragma unroll
                for (int i = 0; i < 128; i++) sums[i] *= alpha[i / 2 % 2];
            }
            #pragma unroll
            for (int i = 0; i < 4; i++) {                              // 32 values at a time
                const u32 values = ring + (i * 2 + group) * CHUNK, chosen = weights + i / 2 * QUERIES * ROW + i % 2 * 64;
                barrier_wait(full + 8 * (i * 2 + group), 1);
                wgmma_fence();
                wgmma_as_it_lies(E{}, sums, descriptor(chosen, 8 * ROW), descriptor(values, 8 * ROW, CHUNK / 4));
                wgmma_as_it_lies(E{}, sums, descriptor(chosen + 32, 8 * ROW), descriptor(values + 16 * ROW, 8 * ROW, CHUNK / 4));
                wgmma_commit();
                if (i == 0) continue;
                wgmma_wait<1>();
                if (speaks) arrive_both(empty + 8 * (i * 2 - 2)), arrive_both(empty + 8 * (i * 2 - 1));
            }
            wgmma_wait<0>();
            if (speaks) arrive_both(empty + 8 * 6), arrive_both(empty + 8 * 7);
            if (block + 1 < blocks) score<E>(s, queries, ring, full, empty, group, speaks);
        }
        #pragma unroll
        for (int half = 0; half < 2; half++) {
            float total = rows[half].total;
            total += __shfl_xor_sync(~0u, total, 1);
            total += __shfl_xor_sync(~0u, total, 2);
            rows[half].total = total;
            if (lane % 4 == 0) exchange[group][mine + half * 8] = total;
        }
        meet_groups(1);
        #pragma unroll
        for (int half = 0; half < 2; half++) {
            const int query = first + mine + half * 8;
            const float one = 1.f / (rows[half].total + exchange[group ^ 1][mine + half * 8]);
            if (query >= tokens) continue;
            E* to = out + ((i64)sequence * tokens + query) * 512 + group * 256 + lane % 4 * 2;
            #pragma unroll
            for (int j = 0; j < 32; j++)
                *(u32*)(to + j * 8) = narrow<E>(sums[j * 4 + half * 2] * one).bits | (u32)narrow<E>(sums[j * 4 + half * 2 + 1] * one).bits << 16;
        }
    }
    meet_pair();                                                       // neither block leaves while the other may write to it
}

#define ATTENTION_512(E)                                                                                                \
    extern "C" __global__ void __launch_bounds__(384, 1) __cluster_dims__(2, 1, 1)                                      \
    attention_512_##E(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,                         \
                      const __grid_constant__ TensorMap v, E* out, int tokens, float scale) {                           \
        attention_512<E>(q, k, v, out, tokens, scale);                                                                  \
    }
ATTENTION_512(f16)
ATTENTION_512(bf16)

#endif
