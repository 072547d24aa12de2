// SPDX-License-Identifier: Apache-2.0
// Implements uneven inputs. Each collective call begins with a roll call, in which a rank reports
// either that it makes the call itself, or that it has joined and follows the calls of the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "optim/optimizer.h"

namespace zero {

/// The arguments of a collective call that are the same on every rank.
struct Arguments {
  int32_t flags = 0;
  int32_t rank = 0;  // the argument `root` or `to`
  int64_t param = 0;
  double limit = 0;
  double norm_type = 0;
  bool some = false;                     // only the parameters in `list`
  const char* words = nullptr;           // a directory, or the name of a state
  std::span<const std::byte> list = {};  // owners, or parameters
};

/// Begins `call` on a rank that has inputs. Does nothing if uneven_inputs is off. Fails with
/// ZERO_ERR_STATE on all ranks if some ranks have joined and either the option then stops all ranks
/// or the call needs the joined ranks.
Status call_roll(Call& call, Optimizer& optim, const Arguments& arguments);

/// A rank that has joined.
struct Joined {
  bool fresh = true;         // has joined since the last roll call
  bool contributes = false;  // has gradients for the next reduction
};

/// What a joined rank learns in a roll call: the call that it must make, or that all ranks have
/// joined.
struct Told {
  Operation operation = Operation::join;  // join: all ranks have joined
  Arguments arguments;                    // words and list are below
  bool has_words = false;
  std::string words;
  std::vector<std::byte> list;
  int32_t last_rank = -1;  // the highest rank that has joined since the last roll call
};

/// Begins `call` on a rank that has joined, and adopts the settings of the lowest rank with inputs.
/// `local` is this rank's own failure.
Result<Told> hear(Call& call, Optimizer& optim, const Joined& own, const Status& local);

/// Returns the rank from which buffers are broadcast. This is `root` or, if `root` has joined and
/// so has outdated buffers, the highest rank with inputs.
int32_t buffer_root(const Optimizer& optim, int32_t root);

/// Fails with ZERO_ERR_STATE if the call needs ranks that have joined.
Status check_served(const Optimizer& optim, Operation operation, const Arguments& arguments);

}  // namespace zero
