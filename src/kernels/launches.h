// SPDX-License-Identifier: Apache-2.0
// Defines the launches on a device with streams. One launch serves any number of tensors. Tables
// and records are in device memory and trivially copyable; a launch is a few words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "base/dtype.h"
#include "kernels/kernels.h"
#include "kernels/step_state.h"
#include "rules/rule.h"

namespace zero::launch {

/// A block works on one tile at a time. Fewer elements would not be worth the cost of a block.
inline constexpr int64_t kTileElements = 4096;

/// Elements [number * kTileElements, ...) of a run or a move.
struct Tile {
  uint32_t of;
  uint32_t number;
};

/// How the elements of a launch are stored in memory.
struct Format {
  DType param = DType::f32;
  DType grad = DType::f32;      // of every source
  DType sum = DType::f32;       // f32, or f64 for parameters of f64
  DType rounded = DType::none;  // each source is rounded to this type before it is added
  float divisor = 1;  // sources that are rounded are divided by it first, others come divided; the
                      // sum is multiplied by it
  DType share = DType::none;  // values of f32 parameters are rounded to this type
  Master master = Master::param;
  SlotFormat slots = SlotFormat::full;
};

/// Elements that are consecutive in every array and share their scalars. Sources and targets are in
/// tables of pointers, in which each run has as many entries as the launch's width. A null source
/// counts as zeros, and a null target ends the targets.
struct RunRow {
  std::byte* param;             // master weights or remainders; null if there are none
  std::byte* kept;              // master or remainder; null if there is none
  std::byte* slots[kMaxSlots];  // null if the settings use none
  int64_t count;
  int64_t random_at;  // position of the first element in the random bits that round slots
  uint32_t pointers;  // index of its first source, divided by the width; the same for targets
  int32_t cls;        // index into the scalars
};

/// The elements of one segment's sums that lie in one block of the norms' grid: at most kBlock.
struct PieceRow {
  uint32_t of;  // index into the sums
  uint32_t count;
  int64_t first;
};

/// Where the sums of one segment are.
struct Sums {
  std::byte* out;     // of Format::sum; may be any of the sources of that type
  uint32_t pointers;  // index of its first source, divided by the width
  uint32_t unused;
};

// ---- Launches

/// Sums all pieces over ranks, in rank order. Adds the terms of their norm, and the number of sums
/// that are not finite, to `record`. If `adds`, sources are added to the sums that are there. A
/// single source with the type and address of the sums is only read.
struct Reduce {
  Format format;
  Norm norm = Norm::none;
  bool adds = false;
  uint32_t width = 1;
  uint32_t count = 0;  // of pieces
  const PieceRow* pieces = nullptr;
  const Sums* sums = nullptr;
  const std::byte* const* sources = nullptr;
  NormSums* record = nullptr;
};

/// Decides the norm, the factor, and whether the step is taken, from the ranks' records.
struct Decide {
  uint32_t world = 1;
  const NormSums* records = nullptr;  // one per rank; null: there are none, and nothing is skipped
  double p = 0;                       // records are of the p-norm; 0: no norm
  double factor = 1;                  // 1/contributors, or 1
  double max_grad_norm = 0;           // 0: no clipping
  bool skips = false, refuses = false;  // what to do if gradients are not finite
  bool again = false;      // these sums had a Decide before; factor, clipping and counts continue
  bool gradients = false;  // with `again`: the sums have become gradients, so their factor is 1
  const uint32_t* broken = nullptr;  // nonzero if other ranks' work is not done; may be null
  uint64_t layout = 0;               // the step is outdated if StepState::layout differs; 0: never
  const void* loss_scale = nullptr;  // its address in device memory; null: in the state
  DType loss_scale_dtype = DType::f32;
  StepState* state = nullptr;
};

/// A value that is elsewhere in device memory, and is read when it is used.
struct Given {
  const void* from;
  double* to;
  double factor;  // the value is multiplied by it
  DType dtype;    // f32 or f64
  SettingRange range;
};

/// Copies every such value into the settings of the next step.
struct Fetch {
  uint32_t count = 0;
  const Given* given = nullptr;
  StepState* state = nullptr;
};

/// Computes the scalars of every class for the next step, by the rule of the class.
struct Prepare {
  const int32_t* optimizers = nullptr;  // of each class
  uint32_t count = 0;
  const double* settings = nullptr;         // kMaxSettings per class
  const int64_t* params = nullptr;          // one parameter of each class
  const ParamProgress* progress = nullptr;  // by parameter
  const StepState* state = nullptr;
  Scalars* out = nullptr;
};

/// Sums, updates and stores every element of the runs' tiles, if the step is taken.
struct Update {
  Format format;  // with `reduced`, the one source has the type Format::sum and is not rounded
  int32_t optimizer = 0;
  bool reduced = false;
  uint32_t width = 1;          // of sources
  uint32_t targets_width = 0;  // further copies of the parameter
  uint32_t count = 0;          // of tiles
  const Tile* tiles = nullptr;
  const RunRow* runs = nullptr;
  const std::byte* const* sources = nullptr;
  std::byte* const* targets = nullptr;
  const Scalars* scalars = nullptr;
  const StepState* state = nullptr;
  uint64_t* nonfinite = nullptr;  // counts sums that are not finite; null: not counted
};

/// Advances the state after a step, and if the step was taken, the progress of every parameter that
/// has a gradient. With `records`, one per rank, StepState::nonfinite is first set to their total.
struct Advance {
  const int32_t* optimizers = nullptr;  // of each group
  uint32_t world = 1;
  const NormSums* records = nullptr;
  uint32_t count = 0;                // of parameters
  const uint8_t* present = nullptr;  // null: all are
  const int32_t* groups = nullptr;   // of each parameter
  const uint32_t* used = nullptr;    // of each group: slots, as bits
  const double* settings = nullptr;  // kMaxSettings per group
  ParamProgress* progress = nullptr;
  // Loss scaling. The scale stays the same if growth_interval is 0.
  double growth_factor = 1, backoff_factor = 1;
  int64_t growth_interval = 0;
  StepState* state = nullptr;
};

/// Elements to copy between two arrays of any floating types, exactly or rounded to nearest even.
struct Move {
  const std::byte* from;  // null: zeros
  std::byte* to;
  int64_t count;
};
struct Moves {
  DType from = DType::f32, to = DType::f32;
  DType rounded = DType::none;  // values are rounded to it after the division
  float divisor = 1;
  uint32_t count = 0;  // of tiles
  const Tile* tiles = nullptr;
  const Move* moves = nullptr;
  const StepState* unless_skipped = nullptr;  // if set, nothing moves unless the step is taken
};

/// Sets sums to min(max(sum * StepState::factor, -limit), limit). The next Decide must have
/// `gradients` set.
struct Clamp {
  DType sum = DType::f32;
  double limit = 0;
  uint32_t count = 0;  // of pieces
  const PieceRow* pieces = nullptr;
  const Sums* sums = nullptr;
  const StepState* state = nullptr;
};

}  // namespace zero::launch

namespace zero {

using Launch = std::variant<launch::Reduce, launch::Decide, launch::Fetch, launch::Prepare,
                            launch::Update, launch::Advance, launch::Moves, launch::Clamp>;

}  // namespace zero
