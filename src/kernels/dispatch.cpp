// SPDX-License-Identifier: Apache-2.0
// Which of the kernel tables this machine can run.
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

ReduceKernel KernelTable::reduction(DType sum, DType from, Norm norm) const {
  const Sums& sums = sum == DType::f64 ? double_sums : float_sums;
  const auto of = [&]() -> const Reductions& {
    switch (from) {
      case DType::f64:
        return sums.of_f64;
      case DType::bf16:
        return sums.of_bf16;
      case DType::f16:
        return sums.of_f16;
      default:
        return sums.of_f32;
    }
  };
  return of().kernels[static_cast<int>(norm)];
}

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

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
    case Isa::scalar:
      break;
  }
  return "scalar";
}

}  // namespace zero
