// SPDX-License-Identifier: Apache-2.0
// Finds the kernel tables that this machine can run.
#include "kernels/tables.h"

namespace zero {
namespace {

// __builtin_cpu_supports also asks whether the operating system saves the registers.
bool machine_has(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx2) return __builtin_cpu_supports("avx2");
  if (isa == Isa::avx512) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
#endif
  return isa == Isa::scalar;
}

}  // namespace

const KernelTable& kernel_table(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx2) return kAvx2Kernels;
  if (isa == Isa::avx512) return kAvx512Kernels;
#endif
  static_cast<void>(isa);
  return kScalarKernels;
}

std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512}) {
    if (machine_has(isa)) isas.push_back(isa);
  }
  return isas;
}

Isa best_isa() {
  if (machine_has(Isa::avx512)) return Isa::avx512;
  return machine_has(Isa::avx2) ? Isa::avx2 : Isa::scalar;
}

}  // namespace zero
