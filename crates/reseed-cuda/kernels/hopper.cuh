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
// The first two of them; lanes from 16 on give no address.
__device__ __forceinline__ void load_two_matrices(u32 (&v)[2], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(v[0]), "=r"(v[1])
                 : "r"(row)
                 : "memory");
}
__device__ __forceinline__ void store_matrices(const u32 (&v)[4], u32 row) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%4], {%0,%1,%2,%3};" ::"r"(v[0]), "r"(v[1]), "r"(v[2]),
                 "r"(v[3]), "r"(row)
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
#define REGISTERS_128(c) \
    c(d[0]),c(d[1]),c(d[2]),c(d[3]),c(d[4]),c(d[5]),c(d[6]),c(d[7]),c(d[8]),c(d[9]),c(d[10]),c(d[11]),c(d[12]), \
    c(d[13]),c(d[14]),c(d[15]),c(d[16]),c(d[17]),c(d[18]),c(d[19]),c(d[20]),c(d[21]),c(d[22]),c(d[23]),c(d[24]), \
    c(d[25]),c(d[26]),c(d[27]),c(d[28]),c(d[29]),c(d[30]),c(d[31]),c(d[32]),c(d[33]),c(d[34]),c(d[35]),c(d[36]), \
    c(d[37]),c(d[38]),c(d[39]),c(d[40]),c(d[41]),c(d[42]),c(d[43]),c(d[44]),c(d[45]),c(d[46]),c(d[47]),c(d[48]), \
    c(d[49]),c(d[50]),c(d[51]),c(d[52]),c(d[53]),c(d[54]),c(d[55]),c(d[56]),c(d[57]),c(d[58]),c(d[59]),c(d[60]), \
    c(d[61]),c(d[62]),c(d[63])
#define WGMMA_128(instruction, c, rest) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128" instruction " {" \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26," \
        "%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51," \
        "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, " rest ";" \
        : REGISTERS_128(c) : "l"(a), "l"(b))
#define REGISTERS_256(c) \
    c(d[0]),c(d[1]),c(d[2]),c(d[3]),c(d[4]),c(d[5]),c(d[6]),c(d[7]),c(d[8]),c(d[9]),c(d[10]),c(d[11]),c(d[12]), \
    c(d[13]),c(d[14]),c(d[15]),c(d[16]),c(d[17]),c(d[18]),c(d[19]),c(d[20]),c(d[21]),c(d[22]),c(d[23]),c(d[24]), \
    c(d[25]),c(d[26]),c(d[27]),c(d[28]),c(d[29]),c(d[30]),c(d[31]),c(d[32]),c(d[33]),c(d[34]),c(d[35]),c(d[36]), \
    c(d[37]),c(d[38]),c(d[39]),c(d[40]),c(d[41]),c(d[42]),c(d[43]),c(d[44]),c(d[45]),c(d[46]),c(d[47]),c(d[48]), \
    c(d[49]),c(d[50]),c(d[51]),c(d[52]),c(d[53]),c(d[54]),c(d[55]),c(d[56]),c(d[57]),c(d[58]),c(d[59]),c(d[60]), \
    c(d[61]),c(d[62]),c(d[63]),c(d[64]),c(d[65]),c(d[66]),c(d[67]),c(d[68]),c(d[69]),c(d[70]),c(d[71]),c(d[72]), \
    c(d[73]),c(d[74]),c(d[75]),c(d[76]),c(d[77]),c(d[78]),c(d[79]),c(d[80]),c(d[81]),c(d[82]),c(d[83]),c(d[84]), \
    c(d[85]),c(d[86]),c(d[87]),c(d[88]),c(d[89]),c(d[90]),c(d[91]),c(d[92]),c(d[93]),c(d[94]),c(d[95]),c(d[96]), \
    c(d[97]),c(d[98]),c(d[99]),c(d[100]),c(d[101]),c(d[102]),c(d[103]),c(d[104]),c(d[105]),c(d[106]),c(d[107]), \
    c(d[108]),c(d[109]),c(d[110]),c(d[111]),c(d[112]),c(d[113]),c(d[114]),c(d[115]),c(d[116]),c(d[117]),c(d[118]), \
    c(d[119]),c(d[120]),c(d[121]),c(d[122]),c(d[123]),c(d[124]),c(d[125]),c(d[126]),c(d[127])
#define WGMMA_256(before, instruction, c, rest, after, ...) \
    asm volatile(before "wgmma.mma_async.sync.aligned.m64n256" instruction " {" \
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28," \
        "%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54," \
        "%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80," \
        "%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105," \
        "%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126," \
        "%127}, %128, %129, " rest ";" after \
        : REGISTERS_256(c) : "l"(a), "l"(b) __VA_ARGS__)
#define WGMMA(N) \
    __device__ __forceinline__ void wgmma(f16, float (&d)[N / 2], u64 a, u64 b) { WGMMA_##N("f16"); } \
    __device__ __forceinline__ void wgmma(bf16, float (&d)[N / 2], u64 a, u64 b) { WGMMA_##N("bf16"); }
WGMMA(16)
WGMMA(64)
__device__ __forceinline__ void wgmma(f16, float (&d)[64], u64 a, u64 b) {
    WGMMA_128("k16.f32.f16.f16", "+f", "1, 1, 1, 0, 0");
}
__device__ __forceinline__ void wgmma(bf16, float (&d)[64], u64 a, u64 b) {
    WGMMA_128("k16.f32.bf16.bf16", "+f", "1, 1, 1, 0, 0");
}
__device__ __forceinline__ void wgmma(f16, float (&d)[128], u64 a, u64 b) {
    WGMMA_256("", "k16.f32.f16.f16", "+f", "1, 1, 1, 0, 0", "");
}
__device__ __forceinline__ void wgmma(bf16, float (&d)[128], u64 a, u64 b) {
    WGMMA_256("", "k16.f32.bf16.bf16", "+f", "1, 1, 1, 0, 0", "");
}
__device__ __forceinline__ void wgmma_transposed_b(f16, float (&d)[128], u64 a, u64 b) {
    WGMMA_256("", "k16.f32.f16.f16", "+f", "1, 1, 1, 0, 1", "");
}
__device__ __forceinline__ void wgmma_transposed_b(bf16, float (&d)[128], u64 a, u64 b) {
    WGMMA_256("", "k16.f32.bf16.bf16", "+f", "1, 1, 1, 0, 1", "");
}

// Of signed bytes, 32 of them; with `add`, sums start from zero unless it is set.
__device__ __forceinline__ void wgmma(s8, int (&d)[64], u64 a, u64 b) { WGMMA_128("k32.s32.s8.s8", "+r", "1"); }
__device__ __forceinline__ void wgmma(s8, int (&d)[128], u64 a, u64 b, int add) {
    WGMMA_256("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n", "k32.s32.s8.s8", "+r", "p", "\n}", , "r"(add));
}

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
