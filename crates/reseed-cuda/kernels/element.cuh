// Element types of activations and weights: storage, conversion, and the tensor-core instructions that multiply them.
// No CUDA headers: these files compile with NVRTC alone.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// The threads of all blocks stride over n values.
#define FOR_EACH(i, n) \
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (i64)gridDim.x * blockDim.x)

struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct s8 { signed char bits; };

__device__ __forceinline__ float wide(float v) { return v; }
__device__ __forceinline__ float wide(f16 v) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits)); return f; }
__device__ __forceinline__ float wide(bf16 v) { return __uint_as_float((u32)v.bits << 16); }

template <class E> __device__ __forceinline__ E narrow(float v);
template <> __device__ __forceinline__ float narrow<float>(float v) { return v; }
template <> __device__ __forceinline__ f16 narrow<f16>(float v) {
    f16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(v));
    return h;
}
#if __CUDA_ARCH__ >= 800
template <> __device__ __forceinline__ bf16 narrow<bf16>(float v) {
    bf16 h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h.bits) : "f"(v));
    return h;
}
#else
template <> __device__ __forceinline__ bf16 narrow<bf16>(float v) {
    const u32 bits = __float_as_uint(v);
    return {(u16)(v != v ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
#endif

// Kernels for bf16, which a GPU computes in since Ampere.
#if __CUDA_ARCH__ >= 800
#define SINCE_AMPERE(...) __VA_ARGS__
#else
#define SINCE_AMPERE(...)
#endif

// N consecutive values, loaded and stored in units of up to 16 bytes.
template <class E, int N> struct alignas(N * sizeof(E) > 16 ? 16 : N * sizeof(E)) Vec {
    E at[N];
    __device__ __forceinline__ static Vec load(const E* from) { return *(const Vec*)from; }
    __device__ __forceinline__ void store(E* to) const { *(Vec*)to = *this; }
};

// d += a · b by one warp, 16x8x16; f32 is rounded to tf32, 16x8x8. Turing has only f16, 16x8x8 twice.
template <class E> __device__ __forceinline__ void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1);
#if __CUDA_ARCH__ >= 800
template <> __device__ __forceinline__ void mma<f16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> __device__ __forceinline__ void mma<bf16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> __device__ __forceinline__ void mma<float>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#else
template <> __device__ __forceinline__ void mma<f16>(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    #pragma unroll
    for (int i = 0; i < 2; i++)
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[2 * i]), "r"(a[2 * i + 1]), "r"(i == 0 ? b0 : b1));
}
#endif

// The same of signed bytes, 16x8x32. Turing has 8x8x16, four times.
__device__ __forceinline__ void mma(int (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    #pragma unroll
    for (int i = 0; i < 4; i++)
        asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                     : "+r"(d[i % 2 * 2]), "+r"(d[i % 2 * 2 + 1])
                     : "r"(a[i]), "r"(i < 2 ? b0 : b1));
#endif
}

// Sums of a lane in a product of 16 x 8 values: two neighbouring columns of row lane / 4, then of the row eight below.
struct WideSum {
    float v[4];
    __device__ __forceinline__ float at(int i) const { return v[i]; }
    __device__ __forceinline__ void clear() { v[0] = v[1] = v[2] = v[3] = 0.f; }
};
// The same in pairs of f16, for GPUs that multiply twice as fast with these.
struct HalfSum {
    u32 v[2];
    __device__ __forceinline__ float at(int i) const { return wide(f16{(u16)(v[i / 2] >> i % 2 * 16)}); }
    __device__ __forceinline__ void clear() { v[0] = v[1] = 0; }
};

template <class E> __device__ __forceinline__ void mma(WideSum& d, const u32 (&a)[4], u32 b0, u32 b1) {
    mma<E>(d.v, a, b0, b1);
}
#if __CUDA_ARCH__ >= 800
template <class E> __device__ __forceinline__ void mma(HalfSum& d, const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
                 : "+r"(d.v[0]), "+r"(d.v[1])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

// How often a product is issued: once, but in the builds of `tools/kernels.py --emulate`, which time the balance of
// another GPU.
#ifndef MMA_REPEAT
#define MMA_REPEAT 1
#define MMA_REPEAT_HALF 1
#endif
__device__ constexpr int repeats(WideSum) { return MMA_REPEAT; }
__device__ constexpr int repeats(HalfSum) { return MMA_REPEAT_HALF; }

// d[row][j] += a · b of column j, N columns of eight; from zero if CLEAR. Further products are of zeros, so that
// results stay the same, and belong to other rows, so that none waits for the one before; where rows are cleared later,
// they would be lost.
template <class E, bool CLEAR = false, class Sum, int M, int N>
__device__ __forceinline__ void mma_row(Sum (&d)[M][N], int row, const u32 (&a)[4], const u32 (&b)[N / 2][4]) {
    #pragma unroll
    for (int j = 0; CLEAR && j < N; j++) d[row][j].clear();
    #pragma unroll
    for (int n = 0; n < repeats(Sum{}); n++) {
        const u32 operand[4] = {n ? 0 : a[0], n ? 0 : a[1], n ? 0 : a[2], n ? 0 : a[3]};
        #pragma unroll
        for (int j = 0; j < N; j++)
            mma<E>(d[CLEAR ? row : (row + n) % M][j], operand, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
}

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// Starts a copy of 16 bytes, or of zeros, to shared memory; on Turing the copy is synchronous.
__device__ __forceinline__ void copy_async(u32 to, const void* from, bool valid) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
#else
    const uint4 v = valid ? *(const uint4*)from : uint4{0, 0, 0, 0};
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
#endif
}
// Ends a group of copies; waits until at most N groups are pending.
__device__ __forceinline__ void copy_commit() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int N> __device__ __forceinline__ void copy_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

// Loads four matrices of 8 rows of 16 bytes, one row per lane: either operand of `mma`.
__device__ __forceinline__ void load_matrix(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
// The same with each matrix transposed.
__device__ __forceinline__ void load_matrix_transposed(u32 (&r)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
template <class E> __device__ __forceinline__ void load_operand(u32 (&r)[4], u32 at) { load_matrix(r, at); }
#if __CUDA_ARCH__ >= 800
template <> __device__ __forceinline__ void load_operand<float>(u32 (&r)[4], u32 at) {
    load_matrix(r, at);
    #pragma unroll
    for (int i = 0; i < 4; i++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r[i]) : "f"(__uint_as_float(r[i])));
}
#endif

// Four lanes hold the channels of a pixel: lane q has pair q of each chunk of eight. Afterwards lane q has chunk q. Its
// own inverse.
__device__ __forceinline__ void transpose_chunks(u32& a, u32& b, u32& c, u32& d, int lane) {
    auto swap = [](u32& lo, u32& hi, bool upper, int distance) {
        const u32 got = __shfl_xor_sync(~0u, upper ? lo : hi, distance);
        (upper ? lo : hi) = got;
    };
    swap(a, b, lane & 1, 1), swap(c, d, lane & 1, 1);
    swap(a, c, lane & 2, 2), swap(b, d, lane & 2, 2);
}

template <class E> __device__ __forceinline__ u32 pack(float lo, float hi) {
    return narrow<E>(lo).bits | (u32)narrow<E>(hi).bits << 16;
}
#if __CUDA_ARCH__ >= 800
template <> __device__ __forceinline__ u32 pack<f16>(float lo, float hi) {
    u32 v;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
    return v;
}
template <> __device__ __forceinline__ u32 pack<bf16>(float lo, float hi) {
    u32 v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
    return v;
}
#endif

// Sum and maximum over the lanes of a warp, returned to every lane.
__device__ __forceinline__ float warp_sum(float v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    return v;
}

__device__ __forceinline__ float warp_max(float v) {
    for (int d = 16; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, d));
    return v;
}

__device__ __forceinline__ float exp2_fast(float v) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
