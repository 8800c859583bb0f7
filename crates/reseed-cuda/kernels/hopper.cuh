// Shared by kernels for Hopper: barriers in shared memory, the tensor memory accelerator (TMA), tensor-core products.
#pragma once
#include "element.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

constexpr int ROW = 128;  // bytes of a row of a box, one span of the swizzle pattern

struct alignas(64) TensorMap { u64 opaque[16]; };

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
    asm volatile(
        "{\n.reg .pred p;\nL_%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra L_%=;\n}" ::"r"(bar),
        "r"(phase)
        : "memory");
}
__device__ __forceinline__ void copy_4d(u32 to, const TensorMap* map, u32 bar, int channel, int column, int row,
                                        int frame) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
                 "{%3,%4,%5,%6}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(channel), "r"(column), "r"(row), "r"(frame)
                 : "memory");
}
__device__ __forceinline__ void copy_2d(u32 to, const TensorMap* map, u32 bar, int channel, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3,%4}], [%2];" ::"r"(
            to),
        "l"(map), "r"(bar), "r"(channel), "r"(row)
        : "memory");
}

// Copies to both blocks of a cluster and completes the barrier of each.
__device__ __forceinline__ void copy_2d_multicast(u32 to, const TensorMap* map, u32 bar, int channel, int row) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%3,%4}], [%2], %5;" ::"r"(to),
                 "l"(map), "r"(bar), "r"(channel), "r"(row), "h"((u16)3)
                 : "memory");
}
// Arrives at a barrier in every block of a cluster.
template <int BLOCKS> __device__ __forceinline__ void arrive_cluster(u32 bar) {
    #pragma unroll
    for (int rank = 0; rank < BLOCKS; rank++)
        asm volatile(
            "{\n.reg .b32 a;\nmapa.shared::cluster.u32 a, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [a];\n}" ::
                "r"(bar),
            "r"(rank)
            : "memory");
}
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Stores a box of shared memory to a tensor, clipped to its bounds.
__device__ __forceinline__ void store_4d(const TensorMap* map, u32 from, int channel, int column, int row, int frame) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2,%3,%4,%5}], [%1];" ::"l"(map),
                 "r"(from), "r"(channel), "r"(column), "r"(row), "r"(frame)
                 : "memory");
}
__device__ __forceinline__ void store_2d(const TensorMap* map, u32 from, int channel, int row) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2,%3}], [%1];" ::"l"(map), "r"(from),
                 "r"(channel), "r"(row)
                 : "memory");
}
__device__ __forceinline__ void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until all store groups but the last LEFT have read shared memory; or until all stores are complete.
template <int LEFT = 0> __device__ __forceinline__ void store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}
__device__ __forceinline__ void store_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Four matrices of 8 rows of 16 bytes, one row per lane, between shared memory and the register layout of products.
__device__ __forceinline__ void load_matrices(u32 (&v)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(row)
                 : "memory");
}
__device__ __forceinline__ void store_matrices(const u32 (&v)[4], u32 row) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%4], {%0,%1,%2,%3};" ::"r"(v[0]), "r"(v[1]), "r"(v[2]),
                 "r"(v[3]), "r"(row)
                 : "memory");
}

__device__ __forceinline__ void load_shared(u32 (&v)[4], u32 at) {
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(at)
                 : "memory");
}
__device__ __forceinline__ void store_shared(u32 at, const u32 (&v)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
}

// wgmma descriptor of rows of 128 bytes, swizzled: `group` bytes between groups of eight rows and, for a transposed
// operand, `span` bytes between groups of 64 columns.
__device__ __forceinline__ u64 descriptor(u32 address, u32 group, u32 span = 16) {
    return (u64)((address & 0x3FFFF) >> 4) | (u64)(span >> 4) << 16 | (u64)(group >> 4) << 32 | (u64)1 << 62;
}

// d (64 x N) += a (64 x 16) · b (N x 16)ᵀ, operands in shared memory; wgmma_transposed_b reads b as 16 rows of N.
#define WGMMA_16(type) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32." type "." type " {" \
        "%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, 1, 1, 1, 0, 0;" \
        : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]) \
        : "l"(a), "l"(b))
#define WGMMA_64(type) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26," \
        "%27,%28,%29,%30,%31}, %32, %33, 1, 1, 1, 0, 0;" \
        : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]),"+f"(d[8]), \
          "+f"(d[9]),"+f"(d[10]),"+f"(d[11]),"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15]),"+f"(d[16]), \
          "+f"(d[17]),"+f"(d[18]),"+f"(d[19]),"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23]),"+f"(d[24]), \
          "+f"(d[25]),"+f"(d[26]),"+f"(d[27]),"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31]) \
        : "l"(a), "l"(b))
#define WGMMA_128(type) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26," \
        "%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51," \
        "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, 1, 1, 1, 0, 0;" \
        : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]),"+f"(d[8]), \
          "+f"(d[9]),"+f"(d[10]),"+f"(d[11]),"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15]),"+f"(d[16]), \
          "+f"(d[17]),"+f"(d[18]),"+f"(d[19]),"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23]),"+f"(d[24]), \
          "+f"(d[25]),"+f"(d[26]),"+f"(d[27]),"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31]),"+f"(d[32]), \
          "+f"(d[33]),"+f"(d[34]),"+f"(d[35]),"+f"(d[36]),"+f"(d[37]),"+f"(d[38]),"+f"(d[39]),"+f"(d[40]), \
          "+f"(d[41]),"+f"(d[42]),"+f"(d[43]),"+f"(d[44]),"+f"(d[45]),"+f"(d[46]),"+f"(d[47]),"+f"(d[48]), \
          "+f"(d[49]),"+f"(d[50]),"+f"(d[51]),"+f"(d[52]),"+f"(d[53]),"+f"(d[54]),"+f"(d[55]),"+f"(d[56]), \
          "+f"(d[57]),"+f"(d[58]),"+f"(d[59]),"+f"(d[60]),"+f"(d[61]),"+f"(d[62]),"+f"(d[63]) \
        : "l"(a), "l"(b))
#define WGMMA_256(type, lies) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " {" \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26," \
        "%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51," \
        "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76," \
        "%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100," \
        "%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120," \
        "%121,%122,%123,%124,%125,%126,%127}, %128, %129, 1, 1, 1, 0, " lies ";" \
        : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]),"+f"(d[8]), \
          "+f"(d[9]),"+f"(d[10]),"+f"(d[11]),"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15]),"+f"(d[16]), \
          "+f"(d[17]),"+f"(d[18]),"+f"(d[19]),"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23]),"+f"(d[24]), \
          "+f"(d[25]),"+f"(d[26]),"+f"(d[27]),"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31]),"+f"(d[32]), \
          "+f"(d[33]),"+f"(d[34]),"+f"(d[35]),"+f"(d[36]),"+f"(d[37]),"+f"(d[38]),"+f"(d[39]),"+f"(d[40]), \
          "+f"(d[41]),"+f"(d[42]),"+f"(d[43]),"+f"(d[44]),"+f"(d[45]),"+f"(d[46]),"+f"(d[47]),"+f"(d[48]), \
          "+f"(d[49]),"+f"(d[50]),"+f"(d[51]),"+f"(d[52]),"+f"(d[53]),"+f"(d[54]),"+f"(d[55]),"+f"(d[56]), \
          "+f"(d[57]),"+f"(d[58]),"+f"(d[59]),"+f"(d[60]),"+f"(d[61]),"+f"(d[62]),"+f"(d[63]),"+f"(d[64]), \
          "+f"(d[65]),"+f"(d[66]),"+f"(d[67]),"+f"(d[68]),"+f"(d[69]),"+f"(d[70]),"+f"(d[71]),"+f"(d[72]), \
          "+f"(d[73]),"+f"(d[74]),"+f"(d[75]),"+f"(d[76]),"+f"(d[77]),"+f"(d[78]),"+f"(d[79]),"+f"(d[80]), \
          "+f"(d[81]),"+f"(d[82]),"+f"(d[83]),"+f"(d[84]),"+f"(d[85]),"+f"(d[86]),"+f"(d[87]),"+f"(d[88]), \
          "+f"(d[89]),"+f"(d[90]),"+f"(d[91]),"+f"(d[92]),"+f"(d[93]),"+f"(d[94]),"+f"(d[95]),"+f"(d[96]), \
          "+f"(d[97]),"+f"(d[98]),"+f"(d[99]),"+f"(d[100]),"+f"(d[101]),"+f"(d[102]),"+f"(d[103]),"+f"(d[104]), \
          "+f"(d[105]),"+f"(d[106]),"+f"(d[107]),"+f"(d[108]),"+f"(d[109]),"+f"(d[110]),"+f"(d[111]),"+f"(d[112]), \
          "+f"(d[113]),"+f"(d[114]),"+f"(d[115]),"+f"(d[116]),"+f"(d[117]),"+f"(d[118]),"+f"(d[119]),"+f"(d[120]), \
          "+f"(d[121]),"+f"(d[122]),"+f"(d[123]),"+f"(d[124]),"+f"(d[125]),"+f"(d[126]),"+f"(d[127]) \
        : "l"(a), "l"(b))
#define WGMMA(N) \
    __device__ __forceinline__ void wgmma(f16, float (&d)[N / 2], u64 a, u64 b) { WGMMA_##N("f16"); } \
    __device__ __forceinline__ void wgmma(bf16, float (&d)[N / 2], u64 a, u64 b) { WGMMA_##N("bf16"); }
WGMMA(16)
WGMMA(64)
WGMMA(128)
__device__ __forceinline__ void wgmma(f16, float (&d)[128], u64 a, u64 b) { WGMMA_256("f16", "0"); }
__device__ __forceinline__ void wgmma(bf16, float (&d)[128], u64 a, u64 b) { WGMMA_256("bf16", "0"); }
__device__ __forceinline__ void wgmma_transposed_b(f16, float (&d)[128], u64 a, u64 b) { WGMMA_256("f16", "1"); }
__device__ __forceinline__ void wgmma_transposed_b(bf16, float (&d)[128], u64 a, u64 b) { WGMMA_256("bf16", "1"); }

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most LEFT groups are pending.
template <int LEFT> __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// A position in a ring of buffers, and the parity of the current round.
template <int STAGES> struct Ring {
    int at = 0, parity = 0;
    __device__ __forceinline__ void next() { if (++at == STAGES) at = 0, parity ^= 1; }
};

#endif
