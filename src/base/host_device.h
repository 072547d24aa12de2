// SPDX-License-Identifier: Apache-2.0
// Macros for functions that nvcc also compiles for devices. Only headers use them.
#pragma once

#ifdef __CUDACC__
#define ZERO_HOST_DEVICE __host__ __device__
#else
#define ZERO_HOST_DEVICE
#endif

/// A function of one element. It is inlined into a loop, and so uses the loop's instruction set.
#define ZERO_ELEMENT ZERO_HOST_DEVICE inline __attribute__((always_inline))
