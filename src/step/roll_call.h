// SPDX-License-Identifier: Apache-2.0
// Uneven inputs: each collective call begins with a roll call. A rank answers that it has come to
// make the call, or that it has joined and makes whatever the others make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "optim/optimizer.h"

namespace zero {

/// Of any collective call, as far as they are the same on every rank.
struct Arguments {
  int32_t flags = 0;
  int32_t rank = 0;  // root, to
  int64_t param = 0;
  double limit = 0;
  double norm_type = 0;
  bool some = false;                     // of parameters, those in the list
  const char* words = nullptr;           // a directory, or the name of a state
  std::span<const std::byte> list = {};  // owners, or parameters
};

/// Open `call` on a rank that has inputs. Without the option nothing happens. ZERO_ERR_STATE on all
/// ranks if some have joined and the option stops all, or if the call needs those that have.
Status call_roll(Call& call, Optimizer& optim, const Arguments& arguments);

/// A rank that has joined.
struct Joined {
  bool fresh = true;         // since the last roll call
  bool contributes = false;  // has gradients for the next reduction
};

/// What a joined rank heard: the call that it is in now, or that all ranks have joined.
struct Told {
  Operation operation = Operation::join;  // that, where all ranks have
  Arguments arguments;                    // but for words and list
  bool has_words = false;
  std::string words;
  std::vector<std::byte> list;
  int32_t last_rank = -1;  // the highest of those that came last
};

/// Open `call` on a rank that has joined, and take over the settings of the lowest rank with
/// inputs. `local`: this rank's own reason to refuse.
Result<Told> hear(Call& call, Optimizer& optim, const Joined& own, const Status& local);

/// Who gives the buffers where `root` should: what it has is old if it joined.
int32_t buffer_root(const Optimizer& optim, int32_t root);

/// Why a call that needs all ranks is refused while some have joined.
Status check_served(const Optimizer& optim, Operation operation, const Arguments& arguments);

}  // namespace zero
