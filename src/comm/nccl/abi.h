// SPDX-License-Identifier: Apache-2.0
// The part of NCCL's binary interface that libzero uses, as of version 2.27.3. Later versions are
// compatible: they read `bytes` and `version` of a Config, and treat all fields beyond them as
// unset. It is declared here so that a libzero built without nccl.h works with any installed NCCL.
// If nccl.h is found, a test compares the two.
#pragma once

#include <climits>
#include <cstddef>

namespace zero::nccl {

constexpr int kOldestVersion = 22703;
// The first version whose windows are used. Older ones could corrupt groups of small transfers.
constexpr int kOldestWindows = 22807;

struct OpaqueComm;
using Handle = OpaqueComm*;

struct UniqueId {
  char bytes[128];
};

enum Outcome : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum DataType : int { kUint8 = 1, kFloat16 = 6, kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9 };
enum Reduction : int { kSum = 0 };

struct OpaqueWindow;
using Window = OpaqueWindow*;
constexpr int kSymmetric = 1;  // window flag: every rank uses the same offset in its own window

constexpr int kZeroCtas = 2;  // policy: use copy engines where possible

constexpr int kNoColor = -1;
constexpr int kUnset = INT_MIN;

struct Config {
  size_t bytes = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = kOldestVersion;
  int blocking = kUnset;
  int cga_cluster_size = kUnset;
  int min_ctas = kUnset;
  int max_ctas = kUnset;
  const char* net_name = nullptr;
  int split_share = kUnset;
  int traffic_class = kUnset;
  const char* comm_name = nullptr;
  int collnet_enable = kUnset;
  int cta_policy = kUnset;
  int shrink_share = kUnset;
  int nvls_ctas = kUnset;
};

}  // namespace zero::nccl
