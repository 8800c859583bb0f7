// adain: x = x · gain + shift, with the gain and shift that give each channel the mean and deviation of the style
//
//   frames   content and style (pixels, 3) float
//   sums     (2, runs, 3) double, of content and of style; a run is 8192 pixels
//   moments  (2, 2, 3) double: means, and deviations sqrt(variance + 1e-5); then (2, 3) gain and shift
//   grid     adain_sums: a warp per run and frame; adain_moments: one block; adain_apply: threads stride over pixels
//   differs  from the host in nothing: a run is added pixel by pixel, then the runs in order
#include "strict.cuh"

#define ADAIN_RUN 8192
#define ADAIN_PART 256

// Sums of the values, or with `squares` of their squared distances from the means.
extern "C" __global__ void __launch_bounds__(32)
adain_sums(double* sums, const float* content, const float* style, const double* moments, i64 pixels, int squares) {
    __shared__ float part[3 * ADAIN_PART];
    const i64 first = (i64)blockIdx.x * ADAIN_RUN, count = min((i64)ADAIN_RUN, pixels - first);
    const float* run = (blockIdx.y ? style : content) + 3 * first;
    const int c = threadIdx.x;
    const double mean = squares && c < 3 ? moments[6 * blockIdx.y + c] : 0.0;
    double sum = 0.0;
    for (i64 at = 0; at < count; at += ADAIN_PART) {
        const int pixels_here = min((i64)ADAIN_PART, count - at);
        for (int i = threadIdx.x; i < 3 * pixels_here; i += 32) part[i] = run[3 * at + i];
        __syncwarp();
        if (c < 3)
            for (int i = 0; i < pixels_here; i++) {
                const double value = part[3 * i + c], distance = __dsub_rn(value, mean);
                sum = __dadd_rn(sum, squares ? __dmul_rn(distance, distance) : value);
            }
        __syncwarp();
    }
    if (c < 3) sums[((i64)blockIdx.y * gridDim.x + blockIdx.x) * 3 + c] = sum;
}

// Adds the sums of all runs: the means, or with `squares` the deviations, gains and shifts.
extern "C" __global__ void __launch_bounds__(32)
adain_moments(double* moments, const double* sums, int runs, i64 pixels, int squares) {
    const int c = threadIdx.x % 3, frame = threadIdx.x / 3;
    if (threadIdx.x < 6) {
        double sum = 0.0;
        for (int run = 0; run < runs; run++) sum = __dadd_rn(sum, sums[((i64)frame * runs + run) * 3 + c]);
        const double most = (double)(max(pixels, (i64)2) - 1);
        moments[6 * frame + 3 * squares + c] =
            squares ? __dsqrt_rn(__dadd_rn(__ddiv_rn(sum, most), 1e-5)) : __ddiv_rn(sum, (double)pixels);
    }
    __syncwarp();
    if (squares && threadIdx.x < 3) {
        const double gain = __ddiv_rn(moments[9 + c], moments[3 + c]);
        moments[12 + c] = gain;
        moments[15 + c] = __dsub_rn(moments[6 + c], __dmul_rn(moments[c], gain));
    }
}

extern "C" __global__ void adain_apply(float* x, const double* moments, i64 pixels) {
    FOR_EACH(i, 3 * pixels) {
        const int c = i % 3;
        x[i] = __double2float_rn(__dadd_rn(__dmul_rn((double)x[i], moments[12 + c]), moments[15 + c]));
    }
}
