// Activations between the linear layers of an MLP.
#pragma once
#include "element.cuh"

__device__ __forceinline__ float swiglu_of(float a, float b) { return a / (1.f + expf(-a)) * b; }

// With the tanh approximation; (1 + tanh(z)) / 2 is computed as the logistic function of 2z.
__device__ __forceinline__ float gelu_of(float z) {
    return z / (1.f + expf(-1.5957691216057308f * (z + 0.044715f * z * z * z)));
}
