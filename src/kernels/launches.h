// SPDX-License-Identifier: Apache-2.0
// The launches on a device with streams: one launch for any number of tensors. Tables and records
// stand in the device's memory and are trivially copyable; a launch is a few words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "base/dtype.h"
#include "kernels/kernels.h"
#include "kernels/step_state.h"
#include "rules/rule.h"

namespace zero::launch {

/// A block works on one tile at a time. Fewer elements would not be worth a block's while.
inline constexpr int64_t kTileElements = 4096;

/// Elements [number * kTileElements, ...) of a run or a move.
struct Tile {
  uint32_t of;
  uint32_t number;
};

/// How a launch's elements lie in memory.
struct Format {
  DType param = DType::f32;
  DType grad = DType::f32;      // of every source
  DType sum = DType::f32;       // f32, or f64 for parameters of f64
  DType rounded = DType::none;  // each source is rounded to it before it is added
  float divisor = 1;          // sources to be rounded are divided by it first, others come divided;
                              // their sum is multiplied by it
  DType share = DType::none;  // values of f32 parameters are rounded to it
  Master master = Master::param;
};

/// Elements that are neighbours in every array and share their scalars. Sources and targets stand
/// in tables of pointers: each run has as many as the launch's width. A null source counts as
/// zeros, a null target ends the targets.
struct RunRow {
  std::byte* param;             // this rank's own
  std::byte* kept;              // master or remainder; null if there is none
  std::byte* slots[kMaxSlots];  // null if the settings use none
  int64_t count;
  uint32_t pointers;  // number of its first source, divided by the width; of its targets likewise
  int32_t cls;        // into the scalars
};

/// Elements of one segment's sums that lie in one block of the norms' grid: at most kBlock.
struct PieceRow {
  uint32_t of;  // into the sums
  uint32_t count;
  int64_t first;
};

/// The place of one segment's sums.
struct Sums {
  std::byte* out;     // of Format::sum; may be any of the sources of that type
  uint32_t pointers;  // number of its first source, divided by the width
  uint32_t unused;
};

// ---- Launches

/// Sums all pieces over ranks, in rank order. Adds what their norm needs, and how many sums are not
/// finite, to `record`. `adds`: sources are added to the sums that stand there. A single source in
/// the sums' own type and place is only read.
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

/// Decides by the ranks' records: the norm, the factor, and whether the step is made.
struct Decide {
  uint32_t world = 1;
  const NormSums* records = nullptr;    // one a rank; null: none were taken, nothing is skipped
  double p = 0;                         // records are of the p-norm; 0: no norm
  double factor = 1;                    // 1/contributors, or 1
  double max_grad_norm = 0;             // 0: no clipping
  bool skips = false, refuses = false;  // what to do if gradients are not finite
  bool again = false;      // the sums were decided on before: factor, clipping and counts go on
  bool gradients = false;  // with `again`: the sums have become gradients, so their factor is 1
  const uint32_t* broken = nullptr;  // word that is not 0 if other ranks' work is not done; or null
  uint64_t layout = 0;  // if StepState::layout differs, the step is outdated; 0: any will do
  const void* loss_scale = nullptr;  // its place in the device's memory; null: in the state
  DType loss_scale_dtype = DType::f32;
  StepState* state = nullptr;
};

/// A value that stands elsewhere in the device's memory and is read when it is used.
struct Given {
  const void* from;
  double* to;
  double factor;  // the value is multiplied by it
  DType dtype;    // f32 or f64
  SettingRange range;
};

/// Brings every such value to its place among the settings of the step about to be made.
struct Fetch {
  uint32_t count = 0;
  const Given* given = nullptr;
  StepState* state = nullptr;
};

/// Makes the scalars of every class for the step about to be made, by the rule.
struct Prepare {
  int32_t optimizer = 0;
  uint32_t count = 0;
  const double* settings = nullptr;         // kMaxSettings a class
  const int64_t* params = nullptr;          // any parameter of a class
  const ParamProgress* progress = nullptr;  // by parameter
  const StepState* state = nullptr;
  Scalars* out = nullptr;
};

/// Sums, updates and stores every element of the runs' tiles, if the step is made.
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

/// Brings the state forward after a step, and if it was made, the progress of every parameter that
/// has a gradient. With `records`, one a rank, StepState::nonfinite first becomes the sum of
/// theirs.
struct Advance {
  int32_t optimizer = 0;
  uint32_t world = 1;
  const NormSums* records = nullptr;
  uint32_t count = 0;                // of parameters
  const uint8_t* present = nullptr;  // null: all are
  const int32_t* groups = nullptr;   // of each parameter
  const uint32_t* used = nullptr;    // of each group: slots, as bits
  const double* settings = nullptr;  // kMaxSettings a group
  ParamProgress* progress = nullptr;
  // Loss scaling; growth_interval 0: the scale stays.
  double growth_factor = 1, backoff_factor = 1;
  int64_t growth_interval = 0;
  StepState* state = nullptr;
};

/// Elements to copy between two places of any floating types: rounded to nearest even, or exact.
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
  const StepState* unless_skipped = nullptr;  // with it, nothing moves if the step is not made
};

/// sums = min(max(sum * StepState::factor, -limit), limit). The next Decide must have `gradients`
/// set.
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
