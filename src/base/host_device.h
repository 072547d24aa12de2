// SPDX-License-Identifier: Apache-2.0
// Functions that nvcc compiles for devices too. Only headers have them.
#pragma once

#ifdef __CUDACC__
#define ZERO_HOST_DEVICE __host__ __device__
#else
#define ZERO_HOST_DEVICE
#endif

/// A function of one element becomes part of its loop, and so uses that loop's instruction set.
#define ZERO_ELEMENT ZERO_HOST_DEVICE inline __attribute__((always_inline))
