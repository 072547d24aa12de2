// SPDX-License-Identifier: Apache-2.0
// What step_bench times: one libzero call on one workload in one kind of memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench_comm.h"
#include "board.h"
#include "workloads.h"
#include "zero.h"

namespace bench {

enum class Case {
  direct,
  traced,
  direct_clip,
  lamb,
  direct_master,
  direct_remainder,
  foreign,
  collective,
  reduce,
  clip,
  save
};

struct CaseInfo {
  const char* name;
  const char* what;
};
const CaseInfo& case_info(Case which);
/// Returns the bytes that the case accesses per parameter, over all ranks, according to its
/// algorithm.
double modelled_bytes(Case which, int world);

/// A model with its memory and optimizer on one rank, ready to be timed. All members are
/// collective.
class Subject {
 public:
  Subject(const Rank& rank, const BounceMemory& bounce, const Workload& work, Case which,
          std::string directory, int serial);
  ~Subject();
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  void run();                    // the timed part
  void settle();                 // after it, so that run() can be called again
  double counted_bytes() const;  // by the library on this rank, per run

 private:
  void create_comm(const BounceMemory& bounce, int serial);
  void allocate();
  void register_all();
  void fill();

  const Rank& rank_;
  const Workload& work_;
  const Case case_;
  const std::string directory_;
  bool shares_arenas_ = false;
  int64_t runs_ = 0;
  zero_comm* comm_ = nullptr;
  zero_optim* optim_ = nullptr;
  std::vector<int64_t> offsets_;
  int64_t arena_bytes_ = 0;
  char* data_ = nullptr;
  char* grads_ = nullptr;
};

/// Ends this rank with the library's error unless `status` is ZERO_OK.
void check(zero_status status, const char* call);

std::vector<zero_param> make_params(const Workload& work, int32_t dtype = ZERO_FLOAT32);

}  // namespace bench
