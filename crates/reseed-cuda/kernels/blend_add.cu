// blend_add: canvas += weight * tile at (y, x), where the weight of a pixel is rows[i] * columns[j]; in place
//
//   canvas       (frames, canvas_h, canvas_w, channels) E        tile  (frames, tile_h, tile_w, channels) E
//   rows         (tile_h) f32                                    columns  (tile_w) f32
//   grid         (tile_w * channels / 256, tile_h, frames), 256 threads per block: a value per thread
//   differs      from the reference by one rounding; weight 1 copies the tile
#include "element.cuh"

template <class E>
__device__ void blend_add(E* canvas, const E* tile, const float* rows, const float* columns, int tile_h, int tile_w,
                          int canvas_h, int canvas_w, int channels, int y, int x) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y, frame = blockIdx.z;
    if (i >= tile_w * channels) return;
    const float weight = rows[row] * columns[i / channels];
    const i64 from = ((i64)frame * tile_h + row) * tile_w * channels + i;
    const i64 to = (((i64)frame * canvas_h + y + row) * canvas_w + x) * channels + i;
    canvas[to] = weight == 1.f ? tile[from] : narrow<E>(wide(canvas[to]) + weight * wide(tile[from]));
}

#define BLEND_ADD(E, suffix) \
    extern "C" __global__ void blend_add_##suffix(E* canvas, const E* tile, const float* rows, const float* columns, \
                                                  int frames, int tile_h, int tile_w, int canvas_h, int canvas_w, \
                                                  int channels, int y, int x) { \
        blend_add<E>(canvas, tile, rows, columns, tile_h, tile_w, canvas_h, canvas_w, channels, y, x); \
    }
BLEND_ADD(f16, f16)
SINCE_AMPERE(BLEND_ADD(bf16, bf16))
BLEND_ADD(float, f32)
