// lab_from_rgb: sRGB in -1 .. 1 to CIE L*a*b*     lab_to_rgb: back, clamped; both in place
//
//   x        (pixels, 3) float
//   grid     threads stride over pixels
//   differs  from the host in nothing: roots are the same iterations
#include "strict.cuh"

__device__ __forceinline__ strict cube_root(strict x) {
    strict y = __uint_as_float(__float_as_uint(x.v) / 3 + 0x2A5137A0u);
    #pragma unroll
    for (int i = 0; i < 2; i++) {
        const strict cube = y * y * y;
        y = y - y * (cube - x) / (strict(2.f) * cube + x);
    }
    return y;
}

__device__ __forceinline__ strict to_the_2_4(strict x) {
    strict y = __uint_as_float(__float_as_uint(x.v) / 5 + 0x32C82FEBu);
    #pragma unroll
    for (int i = 0; i < 3; i++) {
        const strict square = y * y;
        y = y - strict(0.2f) * (y - x / (square * square));
    }
    return x * x * (y * y);
}

__device__ __forceinline__ strict to_the_inverse_2_4(strict x) {
    const strict root = cube_root(x);
    return root * square_root(square_root(root));
}

__device__ __forceinline__ strict combined(float a, strict x, float b, strict y, float c, strict z) {
    return strict(a) * x + strict(b) * y + strict(c) * z;
}

#define LAB_DELTA (strict(6.f) / 29.f)
#define LAB_KAPPA 903.2963f
#define LAB_WHITE_X 0.95047f
#define LAB_WHITE_Z 1.08883f

__device__ __forceinline__ strict linear_light(strict v) {
    return v.v > 0.04045f ? to_the_2_4((v + 0.055f) / 1.055f) : v / 12.92f;
}

__device__ __forceinline__ strict lightness_root(strict x) {
    return x.v > (LAB_DELTA * LAB_DELTA * LAB_DELTA).v ? cube_root(x) : (strict(LAB_KAPPA) * x + 16.f) / 116.f;
}

extern "C" __global__ void lab_from_rgb(float* x, i64 pixels) {
    FOR_EACH(i, pixels) {
        float* p = x + 3 * i;
        const strict r = linear_light(unit(p[0])), g = linear_light(unit(p[1])), b = linear_light(unit(p[2]));
        const strict fx = lightness_root(combined(0.4124564f, r, 0.3575761f, g, 0.1804375f, b) / LAB_WHITE_X);
        const strict fy = lightness_root(combined(0.2126729f, r, 0.7151522f, g, 0.072175f, b) / 1.f);
        const strict fz = lightness_root(combined(0.0193339f, r, 0.119192f, g, 0.9503041f, b) / LAB_WHITE_Z);
        p[0] = (strict(116.f) * fy - 16.f).v;
        p[1] = (strict(500.f) * (fx - fy)).v;
        p[2] = (strict(200.f) * (fy - fz)).v;
    }
}

__device__ __forceinline__ strict lightness_cube(strict f) {
    return f.v > LAB_DELTA.v ? f * f * f : (strict(116.f) * f - 16.f) / LAB_KAPPA;
}

__device__ __forceinline__ strict display_light(strict v) {
    const strict gamma = v.v > 0.0031308f ? strict(1.055f) * to_the_inverse_2_4(v) - 0.055f : strict(12.92f) * v;
    return with_sign(gamma);
}

extern "C" __global__ void lab_to_rgb(float* lab, i64 pixels) {
    FOR_EACH(i, pixels) {
        float* p = lab + 3 * i;
        const strict fy = (strict(p[0]) + 16.f) / 116.f;
        const strict x = strict(LAB_WHITE_X) * lightness_cube(fy + strict(p[1]) / 500.f);
        const strict y = strict(1.f) * lightness_cube(fy);
        const strict z = strict(LAB_WHITE_Z) * lightness_cube(fy - strict(p[2]) / 200.f);
        p[0] = display_light(combined(3.2404542f, x, -1.5371385f, y, -0.4985314f, z)).v;
        p[1] = display_light(combined(-0.969266f, x, 1.8760108f, y, 0.041556f, z)).v;
        p[2] = display_light(combined(0.0556434f, x, -0.2040259f, y, 1.0572252f, z)).v;
    }
}
