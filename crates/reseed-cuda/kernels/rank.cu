// Rank matching: the i-th smallest value becomes the i-th smallest of the target; equal values rank in pixel order.
//
// Values are quantised to keys of 24 bits. A stable radix sort takes eight bits at a time:
//
//   rank_count     how many keys of each tile have each digit                     counts (256, tiles)
//   rank_scan      sums of the counts over the tiles before, and over all tiles   totals (256)
//   rank_scatter   keys and their pixels, sorted by the digit
//
// The last pass writes no keys: rank_replace_lab and rank_replace_hsv give the pixel its new value instead.
//
//   grid     a block of 256 threads per tile of 4096 keys; rank_scan a block per digit
//   differs  from the host in nothing: sorts of the same keys have one result
#include "strict.cuh"

#define RANK_THREADS 256
#define RANK_ROUNDS 16
#define RANK_TILE (RANK_THREADS * RANK_ROUNDS)
#define RANK_WARPS (RANK_THREADS / 32)
#define RANK_KERNEL(name) extern "C" __global__ void __launch_bounds__(RANK_THREADS) name

// 2^24 - 1 keys from `low` on, `scale` of them per unit.
struct Quantizer {
    float low, scale;
    __device__ __forceinline__ u32 key(strict value) const {
        return (u32)fminf(fmaxf(((value - low) * scale).v, 0.f), 16777215.f);
    }
    __device__ __forceinline__ strict value(u32 key) const { return strict(low) + strict((float)key) / scale; }
};

RANK_KERNEL(rank_count)(u32* counts, const u32* keys, int shift, i64 count) {
    __shared__ u32 digits[256];
    digits[threadIdx.x] = 0;
    __syncthreads();
    const i64 first = (i64)blockIdx.x * RANK_TILE;
    for (int i = threadIdx.x; i < RANK_TILE && first + i < count; i += RANK_THREADS)
        atomicAdd(&digits[keys[first + i] >> shift & 255], 1u);
    __syncthreads();
    counts[(i64)threadIdx.x * gridDim.x + blockIdx.x] = digits[threadIdx.x];
}

// The sum of the values of all threads before this one; `all` receives the sum of all.
__device__ __forceinline__ u32 sum_before(u32 value, u32& all) {
    __shared__ u32 warps[RANK_WARPS];
    const int lane = threadIdx.x % 32;
    u32 sum = value;
    #pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const u32 other = __shfl_up_sync(~0u, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    u32 before = sum - value;
    all = 0;
    #pragma unroll
    for (int w = 0; w < RANK_WARPS; w++) {
        if (w < threadIdx.x / 32) before += warps[w];
        all += warps[w];
    }
    __syncthreads();
    return before;
}

RANK_KERNEL(rank_scan)(u32* counts, u32* totals, int tiles) {
    u32* row = counts + (i64)blockIdx.x * tiles;
    u32 sum = 0;
    for (int first = 0; first < tiles; first += RANK_THREADS) {
        const int tile = first + threadIdx.x;
        u32 all;
        const u32 before = sum_before(tile < tiles ? row[tile] : 0, all);
        if (tile < tiles) row[tile] = sum + before;
        sum += all;
    }
    if (threadIdx.x == 0) totals[blockIdx.x] = sum;
}

// Calls put(position, first position of the digit, digit, key, pixel) for every key of a tile, in the order of
// positions: keys of one digit leave for consecutive addresses.
template <class Put>
__device__ __forceinline__ void rank_each(const u32* keys, const u32* pixels, const u32* counts, const u32* totals,
                                          int shift, i64 count, Put put) {
    __shared__ u32 ranks[RANK_WARPS][256];
    __shared__ u32 starts[256], offsets[256], locals[256];
    __shared__ u32 tile_keys[RANK_TILE], tile_pixels[RANK_TILE];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 all;
    const u32 start = sum_before(totals[threadIdx.x], all);
    starts[threadIdx.x] = start;
    offsets[threadIdx.x] = start + counts[(i64)threadIdx.x * gridDim.x + blockIdx.x];
    for (int d = lane; d < 256; d += 32) ranks[warp][d] = 0;
    __syncwarp();
    // A warp takes consecutive keys, 32 at a time; lanes with the same digit rank in their order.
    const i64 tile = (i64)blockIdx.x * RANK_TILE, first = tile + warp * 32 * RANK_ROUNDS + lane;
    u32 key[RANK_ROUNDS], rank[RANK_ROUNDS];
    #pragma unroll
    for (int r = 0; r < RANK_ROUNDS; r++) {
        const bool valid = first + 32 * r < count;
        key[r] = valid ? keys[first + 32 * r] : 0;
        const u32 digit = key[r] >> shift & 255;
        u32 same = __ballot_sync(~0u, valid);
        #pragma unroll
        for (int b = 0; b < 8; b++) {
            const u32 set = __ballot_sync(~0u, digit >> b & 1);
            same &= digit >> b & 1 ? set : ~set;
        }
        const u32 before = ranks[warp][digit];
        rank[r] = before + __popc(same & ((1u << lane) - 1));
        __syncwarp();
        if (valid && lane == __ffs(same) - 1) ranks[warp][digit] = before + __popc(same);
        __syncwarp();
    }
    __syncthreads();
    u32 sum = 0;
    #pragma unroll
    for (int w = 0; w < RANK_WARPS; w++) {
        const u32 own = ranks[w][threadIdx.x];
        ranks[w][threadIdx.x] = sum;
        sum += own;
    }
    locals[threadIdx.x] = sum_before(sum, all);
    __syncthreads();
    #pragma unroll
    for (int r = 0; r < RANK_ROUNDS; r++) {
        const i64 i = first + 32 * r;
        if (i >= count) continue;
        const u32 digit = key[r] >> shift & 255, at = locals[digit] + ranks[warp][digit] + rank[r];
        tile_keys[at] = key[r];
        tile_pixels[at] = pixels ? pixels[i] : (u32)i;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < RANK_TILE && tile + i < count; i += RANK_THREADS) {
        const u32 key = tile_keys[i], digit = key >> shift & 255;
        put(offsets[digit] + i - locals[digit], starts[digit], digit, key, tile_pixels[i]);
    }
}

// Sorted keys are `stride` apart; without `to_pixels` only keys are sorted.
RANK_KERNEL(rank_scatter)(u32* to_keys, u32* to_pixels, const u32* keys, const u32* pixels, const u32* counts,
                          const u32* totals, int shift, int stride, i64 count) {
    rank_each(keys, pixels, counts, totals, shift, count, [&](u32 at, u32, u32, u32 key, u32 pixel) {
        to_keys[(i64)at * stride] = key;
        if (to_pixels) to_pixels[at] = pixel;
    });
}

// The rank among m values of rank i among n.
__device__ __forceinline__ u64 target_rank(u32 i, u32 n, u32 m) {
    const u64 last = n > 1 ? n - 1 : 1, last_target = m - 1;
    return last == last_target ? i : i * last_target / last;
}

__device__ __forceinline__ float blended(strict value, strict weight, strict target) {
    return ((strict(1.f) - weight) * value + weight * target).v;
}

// Keys of one channel of Lab pixels, and the replacement of its values; values and sorted targets are three apart.
extern "C" __global__ void rank_keys_lab(u32* keys, const float* values, float low, float scale, i64 count) {
    FOR_EACH(i, count) keys[i] = Quantizer{low, scale}.key(values[3 * i]);
}

RANK_KERNEL(rank_replace_lab)(float* values, const u32* targets, const u32* keys, const u32* pixels,
                              const u32* counts, const u32* totals, int shift, i64 count, float low, float scale,
                              float weight) {
    rank_each(keys, pixels, counts, totals, shift, count, [&](u32 at, u32, u32, u32, u32 pixel) {
        const u32 target = targets[3 * target_rank(at, count, count)];
        float* value = values + (i64)3 * pixel;
        *value = blended(*value, weight, Quantizer{low, scale}.value(target));
    });
}

// Replaces the saturations of the pixels of hue bands, where content and target both have more than a hundred pixels
// of a band. The digit of this last pass is the band.
RANK_KERNEL(rank_replace_hsv)(float* saturations, const u32* targets, const u32* target_totals, const u32* keys,
                              const u32* pixels, const u32* counts, const u32* totals, i64 count, int merged) {
    __shared__ u32 target_starts[256];
    u32 all;
    target_starts[threadIdx.x] = sum_before(target_totals[threadIdx.x], all);
    __syncthreads();
    const Quantizer quantizer{0.f, 16777215.f};
    rank_each(keys, pixels, counts, totals, 24, count, [&](u32 at, u32 start, u32 band, u32, u32 pixel) {
        const u32 n = totals[band], m = target_totals[band];
        if ((merged ? band > 0 : band == 0 || band > 11) || n <= 100 || m <= 100) return;
        const u32 target = targets[target_starts[band] + target_rank(at - start, n, m)] & 0xffffff;
        saturations[pixel] = blended(saturations[pixel], 1.f, quantizer.value(target));
    });
}
