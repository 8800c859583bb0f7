// hsv_keys: the hue band and the quantised saturation of every pixel, and the saturation itself
// hsv_apply: a pixel with another saturation
// wavelet_adaptive: content + low, clamped, blended with hsv_apply where it is clearly more saturated than the style
//
//   x        (pixels, 3) float in -1 .. 1          saturations  (pixels) float, matched
//   keys     (pixels) band << 24 | saturation; with `merged`, bands 11 and 12 count as band 0
//   grid     threads stride over pixels
//   differs  from the host in the exponential of wavelet_adaptive, which is rounded correctly here
#include "strict.cuh"

struct Hsv { strict h, s, v; };

__device__ __forceinline__ Hsv to_hsv(const float* pixel) {
    const strict r = unit(pixel[0]), g = unit(pixel[1]), b = unit(pixel[2]);
    const strict top = fmaxf(fmaxf(r.v, g.v), b.v), span = top - fminf(fminf(r.v, g.v), b.v);
    strict hue = 0.f;
    if (span.v > 1e-10f) {
        if (top.v == b.v) hue = (r - g) / span + 4.f;
        else if (top.v == g.v) hue = (b - r) / span + 2.f;
        else if (g.v < b.v) hue = (g - b) / span + 6.f;
        else hue = (g - b) / span;
    }
    return {hue / 6.f, top.v > 1e-10f ? span / top : strict(0.f), top};
}

__device__ __forceinline__ u32 band_of(strict hue) {
    u32 band = 0;
    #pragma unroll
    for (int k = 1; k <= 12; k++) band += hue.v >= (float)(k / 12.0);
    return band;
}

extern "C" __global__ void hsv_keys(u32* keys, float* saturations, const float* x, i64 pixels, int merged) {
    FOR_EACH(i, pixels) {
        const Hsv hsv = to_hsv(x + 3 * i);
        const u32 band = band_of(hsv.h), key = (u32)fminf(fmaxf((hsv.s * 16777215.f).v, 0.f), 16777215.f);
        keys[i] = (merged && band >= 11 ? 0 : band) << 24 | key;
        if (saturations) saturations[i] = hsv.s.v;
    }
}

__device__ __forceinline__ strict from_hsv(float offset, strict h, strict s, strict v) {
    strict k = strict(offset) + strict(6.f) * h;
    if (!(k.v < 6.f)) k = k - 6.f;
    const strict ramp = clamped(fminf(k.v, (strict(4.f) - k).v), 0.f, 1.f);
    return clamped(v - v * s * ramp, 0.f, 1.f) * 2.f - 1.f;
}

extern "C" __global__ void hsv_apply(float* x, const float* saturations, i64 pixels) {
    FOR_EACH(i, pixels) {
        float* p = x + 3 * i;
        const Hsv hsv = to_hsv(p);
        const strict s = saturations[i];
        p[0] = from_hsv(5.f, hsv.h, s, hsv.v).v;
        p[1] = from_hsv(3.f, hsv.h, s, hsv.v).v;
        p[2] = from_hsv(1.f, hsv.h, s, hsv.v).v;
    }
}

extern "C" __global__ void wavelet_adaptive(float* content, const float* style, const float* low,
                                            const float* saturations, i64 pixels) {
    FOR_EACH(i, pixels) {
        float* p = content + 3 * i;
        float wavelet[3];
        #pragma unroll
        for (int c = 0; c < 3; c++) wavelet[c] = clamped(strict(p[c]) + low[3 * i + c], -1.f, 1.f).v;
        const strict target = to_hsv(style + 3 * i).s;
        if ((to_hsv(wavelet).s - target).v > 0.075f) {
            const Hsv hsv = to_hsv(p);
            const strict s = saturations[i], excess = strict(-5.f) * (hsv.s - target - 0.15f);
            const strict weight = strict(1.f) / (strict(1.f) + strict((float)exp((double)excess.v)));
            #pragma unroll
            for (int c = 0; c < 3; c++) {
                const strict other = from_hsv(5.f - 2.f * c, hsv.h, s, hsv.v);
                wavelet[c] = (strict(wavelet[c]) * (strict(1.f) - weight) + other * weight).v;
            }
        }
        #pragma unroll
        for (int c = 0; c < 3; c++) p[c] = wavelet[c];
    }
}
