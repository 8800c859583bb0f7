// Arguments that kernels share with crates/reseed-cuda/src/params.rs: same fields, same order.
#pragma once

// One launch of a convolution: some output frames, their whole plane.
//
// Output pixel (t, i, j) of phase (py, px) reads input rows i * stride_h + dy - pad_h(py), columns likewise, of frames
// t * stride_t + dt + first, dt < taps_t; frames below zero are the last ones of the cache. It is written to frame
// t * frame_step + frame_start, row i * 2 + py, column j * 2 + px where phases == 4, else to row i, column j.
//
// Every field has 32 bits.
struct ConvArgs {
    int in_h, in_w, c_in;             // plane and channels of x and cache
    int cache_frames;                  // frames in cache
    int out_frames, out_h, out_w;     // grid of this launch: frames, rows, columns per phase
    int c_out;                        // channels of an output pixel
    int taps_t, taps_h, taps_w;
    int stride_t, stride_h, stride_w;
    int pad_h, pad_w;                 // zero rows above, zero columns to the left; one less for phases 1
    int first;                        // input frame of tap 0 of output frame 0
    int phases;                       // 1, or 4: an upsampler's (row, column) phases
    int frame_start, frame_step;      // destination of output frames
    int x_pitch, w_pitch, y_pitch;    // values between pixels of x (and cache), rows of w, pixels of y
};

// w is [phase][tap (t, h, w)][c_out][c_in], rows w_pitch apart, dense otherwise.
// bias is [c_out], or with phases == 4 [row class][column class][c_out] (first, interior 0, interior 1, last).
// residual has the layout of y, or is null.

// Class of output row or column i of n in the table of the bias.
__device__ __forceinline__ int border_class(int i, int n) { return i == 0 ? 0 : i == n - 1 ? 3 : 1 + (i & 1); }
