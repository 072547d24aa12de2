// SPDX-License-Identifier: Apache-2.0
#include "support/emulated_launches.h"

#include <variant>

#include "kernels/launch_moves.h"
#include "kernels/launch_update.h"

namespace zero::test {
namespace {

using namespace launch;

constexpr uint32_t kThreads = 32;  // of a block

/// Combines in the order in which a device's threads exchange their values.
Found of_all_lanes(Found (&lanes)[kLanes]) {
  for (uint32_t further = kLanes / 2; further > 0; further /= 2) {
    for (uint32_t i = 0; i < further; i++) lanes[i] = combined(lanes[i], lanes[i + further]);
  }
  return lanes[0];
}

template <class Real, uint32_t together>
void reduce(const Reduce& launch) {
  NormSums block{};
  for (uint32_t piece = 0; piece < launch.count; piece++) {
    Found lanes[kLanes];
    for (uint32_t i = 0; i < kLanes; i++) lanes[i] = reduce_lane<Real, together>(launch, piece, i);
    add_piece<Real>(block, of_all_lanes(lanes), launch.norm);
  }
  for (uint32_t i = 0; i < kRecordParts; i++) add_record(*launch.record, block, i);
}

template <class Real>
void reduce_all(const Reduce& launch) {
  launch.width == 1 ? reduce<Real, 1>(launch) : reduce<Real, kTogether<Real>>(launch);
}

template <class Of, class Real, SlotFormat format>
void update(const Update& launch) {
  uint32_t found = 0;
  for (uint32_t tile = 0; tile < launch.count; tile++) {
    for (uint32_t thread = 0; thread < kThreads; thread++)
      update_tile<Of, Real, format>(launch, tile, thread, kThreads, found);
  }
  if (found != 0 && launch.nonfinite != nullptr) AddShared()(*launch.nonfinite, found);
}

template <class Real>
void clamp(const Clamp& launch) {
  for (uint32_t piece = 0; piece < launch.count; piece++) {
    for (uint32_t lane = 0; lane < kLanes; lane++) clamp_lane<Real>(launch, piece, lane);
  }
}

struct Emulation {
  void operator()(const Reduce& launch) const {
    if (launch.count == 0) return;
    launch.format.sum == DType::f64 ? reduce_all<double>(launch) : reduce_all<float>(launch);
  }
  void operator()(const Decide& launch) const { decide(launch); }
  void operator()(const Fetch& launch) const {
    for (uint32_t i = 0; i < launch.count; i++) fetch_given(launch, i);
  }
  void operator()(const Prepare& launch) const {
    for (uint32_t cls = 0; cls < launch.count; cls++) prepare_class(launch, cls);
  }
  void operator()(const Update& launch) const {
    if (launch.count == 0 || !is_made(*launch.state)) return;
    with_rule(launch.optimizer, [&](auto rule) {
      using Of = decltype(rule);
      if constexpr (kUpdatesElements<Of>) {
        with_arithmetic(launch.format, [&](auto real, auto slots) {
          update<Of, decltype(real), slots()>(launch);
        });
      }
    });
  }
  void operator()(const Advance& launch) const {
    advance_state(launch);
    for (uint32_t param = 0; param < launch.count; param++) advance_param(launch, param);
  }
  void operator()(const Moves& launch) const {
    if (launch.unless_skipped != nullptr && !is_made(*launch.unless_skipped)) return;
    for (uint32_t tile = 0; tile < launch.count; tile++) {
      for (uint32_t thread = 0; thread < kThreads; thread++)
        move_tile(launch, tile, thread, kThreads);
    }
  }
  void operator()(const Clamp& launch) const {
    if (launch.count == 0) return;
    launch.sum == DType::f64 ? clamp<double>(launch) : clamp<float>(launch);
  }
};

}  // namespace

void emulate(const Launch& launch) { std::visit(Emulation(), launch); }

}  // namespace zero::test
