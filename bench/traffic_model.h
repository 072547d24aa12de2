// SPDX-License-Identifier: Apache-2.0
// What ranks on different hosts send each other in a steady step, as zero_statistics counts it.
// Uses the library's own plan, and the sizes of its parts and records.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "comm/hosts/hosts.h"
#include "plan/plan.h"

namespace bench {

/// Hosts with the same number of ranks each.
struct Cluster {
  zero::hosts::Layout layout;
  int32_t instances = 1;                 // each keeps the whole state
  zero::DType wire = zero::DType::none;  // of gradients; none: as they are

  int32_t world() const { return static_cast<int32_t>(layout.seats.size()); }
  int32_t places() const { return world() / instances; }  // ranks that divide the state
  /// These return the ranks that keep the same share as `rank`, and those that share parameters
  /// with it.
  zero::Ranks copies(int32_t rank) const { return {rank % places(), places(), instances}; }
  zero::Ranks instance(int32_t rank) const { return {rank / places() * places(), 1, places()}; }
};

struct Flow {
  int64_t bytes = 0, messages = 0;

  void add(int64_t of_one, int64_t of_them) { bytes += of_one * of_them, messages += of_them; }
  Flow operator+(const Flow& other) const {
    return {bytes + other.bytes, messages + other.messages};
  }
};

/// The data that travels between one rank and ranks on other hosts.
struct Traded {
  Flow gradients, copies, parameters;  // copies: sums, to ranks that keep the same share
  Flow control;                        // only of a host's first rank

  Flow data() const { return gradients + copies + parameters; }
  Traded operator+(const Traded& other) const {
    return {gradients + other.gradients, copies + other.copies, parameters + other.parameters,
            control + other.control};
  }
};

/// These return what a rank sends and receives. `plan` must be that of the cluster's places. If
/// copies or instances split hosts unevenly, more data travels.
Traded sent_by(int32_t rank, const Cluster& cluster, const zero::Plan& plan);
Traded received_by(int32_t rank, const Cluster& cluster, const zero::Plan& plan);

/// The bytes that grow with the ranks or the tensors, on a host's first rank.
struct Tables {
  int64_t segments;  // what the rank owns, as a list and as views
  int64_t placements;
  int64_t records;  // space for the records of all ranks
  int64_t parts;    // of transfers in progress
  int64_t packing;  // the segments of all places, if parameters or gradients must be packed
};
Tables tables_of(const Cluster& cluster, const zero::Plan& plan);

}  // namespace bench
