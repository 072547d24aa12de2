// SPDX-License-Identifier: Apache-2.0
// What rules are, for those who have no tables of them.
#include <array>
#include <cstddef>

#include "api/guard.h"
#include "api/options.h"
#include "rules/list.h"

namespace {

using namespace zero;
using namespace zero::api;

/// A rule's settings and slots as arrays of C.
template <class Of>
struct Columns {
  static constexpr size_t kSettings = std::size(Of::settings);
  std::array<const char*, kSettings> names{}, ranges{};
  std::array<double, kSettings> defaults{};
  std::array<const char*, kSlotsOf<Of>> slot_settings{};

  Columns() {
    for (size_t i = 0; i < kSettings; i++) {
      names[i] = Of::settings[i].name;
      ranges[i] = setting_range_text(Of::settings[i]);
      defaults[i] = Of::settings[i].initial;
    }
    const uint32_t always = used(defaults);
    for (size_t i = 0; i < kSettings; i++) {
      std::array<double, kSettings> with = defaults;
      with[i] = 1;
      for (size_t slot = 0; slot < slot_settings.size(); slot++)
        if (~always & used(with) & 1u << slot) slot_settings[slot] = names[i];
    }
  }
  static uint32_t used(const std::array<double, kSettings>& settings) {
    return find_rule(Of::number)->slots_used(settings);
  }
};

template <class Of>
zero_rule rule_of() {
  static const Columns<Of> columns;
  return {.struct_size = 0,
          .name = Of::name,
          .setting_names = columns.names.data(),
          .setting_defaults = columns.defaults.data(),
          .setting_ranges = columns.ranges.data(),
          .setting_count = columns.names.size(),
          .slots = Of::slots,
          .slot_settings = columns.slot_settings.data(),
          .slot_count = columns.slot_settings.size()};
}

}  // namespace

zero_status zero_rule_info(int32_t optimizer, zero_rule* rule) {
  return guard([&]() -> Status {
    zero_rule out{};
    if (!with_rule(optimizer, [&](auto found) { out = rule_of<decltype(found)>(); }))
      return Status(ZERO_ERR_ARGUMENT, text("optimizer is ", optimizer,
                                            "; rules are numbered from 0 to ", kRuleCount - 1));
    return write_struct(rule, out, "rule");
  });
}
