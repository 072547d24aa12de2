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

/// Arguments of any collective call that are the same on every rank.
struct Arguments {
  int32_t flags = 0;
  int32_t rank = 0;  // root, to
  int64_t param = 0;
  double limit = 0;
  double norm_type = 0;
  bool some = false;                     // only the parameters in the list
  const char* words = nullptr;           // a directory, or the name of a state
  std::span<const std::byte> list = {};  // owners, or parameters
};

/// Opens `call` on a rank that has inputs. Does nothing without the option. Fails with
/// ZERO_ERR_STATE on all ranks if some ranks have joined, and then the option stops all ranks or
/// the call needs those that have.
Status call_roll(Call& call, Optimizer& optim, const Arguments& arguments);

/// A rank that has joined.
struct Joined {
  bool fresh = true;         // has joined since the last roll call
  bool contributes = false;  // has gradients for the next reduction
};

/// The news for a joined rank: the call that it is in now, or that all ranks have joined.
struct Told {
  Operation operation = Operation::join;  // join: all ranks have joined
  Arguments arguments;                    // without words and list
  bool has_words = false;
  std::string words;
  std::vector<std::byte> list;
  int32_t last_rank = -1;  // the highest of those that joined last
};

/// Opens `call` on a rank that has joined, and takes over the settings of the lowest rank with
/// inputs. `local`: this rank's own reason to refuse.
Result<Told> hear(Call& call, Optimizer& optim, const Joined& own, const Status& local);

/// Returns the rank that gives the buffers: `root` or, if that has joined and so has old ones, the
/// highest rank with inputs.
int32_t buffer_root(const Optimizer& optim, int32_t root);

/// Fails with ZERO_ERR_STATE if the call needs ranks that have joined.
Status check_served(const Optimizer& optim, Operation operation, const Arguments& arguments);

}  // namespace zero
