// SPDX-License-Identifier: Apache-2.0
// Defines one table with each option's name, default and range, and whether ranks must agree on it.
#include "optim/options.h"

#include <cmath>
#include <concepts>

#include "base/refusals.h"

namespace zero {
namespace {

/// Returns an option's value as ranks compare it. Null if they need not agree on it.
using Tell = std::string (*)(const OptimizerOptions& options);

struct Option {
  const char* name;
  const char* range;  // for error texts
  double initial;     // the default
  void (*store)(OptimizerOptions& options, double initial);
  /// Stores the option unless it is zero. Returns false if the option is out of range. Sets `value`
  /// to the text of what was given, for the error.
  bool (*read)(const zero_options& given, OptimizerOptions& options, std::string& value);
  Tell tell;
};

template <auto member>
std::string tell_number(const OptimizerOptions& options) {
  if constexpr (std::floating_point<std::remove_cvref_t<decltype(options.*member)>>)
    return exact(options.*member);
  else
    return text(options.*member);
}

template <auto member>
std::string tell_dtype(const OptimizerOptions& options) {
  return options.*member == 0 ? "none" : dtype_name(static_cast<DType>(options.*member));
}

/// Compares only whether the scale is dynamic, because each step compares the scale itself.
std::string tell_dynamic(const OptimizerOptions& options) {
  return options.scales_loss() ? "dynamic" : "off";
}

/// Returns the row of an option.
template <auto member, auto allowed>
constexpr Option option(const char* name, double initial, const char* range,
                        Tell tell = tell_number<member>) {
  return {name,
          range,
          initial,
          [](OptimizerOptions& options, double value) {
            options.*member = static_cast<std::remove_cvref_t<decltype(options.*member)>>(value);
          },
          [](const zero_options& from, OptimizerOptions& to, std::string& value) {
            value = text(from.*member);
            if (from.*member != 0) to.*member = from.*member;
            return allowed(to.*member);
          },
          tell};
}

template <int32_t most>
constexpr auto up_to = [](int32_t number) { return number >= 0 && number <= most; };
constexpr auto is_half = [](int32_t dtype) {
  return dtype == 0 || size_of(static_cast<DType>(dtype)) == 2;
};
constexpr auto is_bucket = [](int64_t bytes) { return bytes >= 4096 && bytes <= int64_t{1} << 40; };
constexpr auto is_limit = [](double norm) { return norm >= 0 && !std::isinf(norm); };
constexpr auto is_positive = [](auto number) { return number > 0; };
constexpr auto is_power_of_two = [](double value) {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5 && exponent > -64 && exponent <= 64;
};
constexpr auto is_growth = [](double factor) { return factor >= 1 && !std::isinf(factor); };
constexpr auto is_backoff = [](double factor) { return factor > 0 && factor <= 1; };
constexpr auto is_scale = [](double scale) { return scale == 0 || loss_scale_allowed(scale); };

using Given = zero_options;

constexpr Option kOptions[] = {
    option<&Given::partition, up_to<ZERO_PARTITION_MANUAL>>("partition", ZERO_PARTITION_EVEN,
                                                            "no ZERO_PARTITION_* has that number"),
    option<&Given::bucket_bytes, is_bucket>("bucket_bytes", 33'554'432,
                                            "it must be from 4,096 to 2^40"),
    option<&Given::max_grad_norm, is_limit>("max_grad_norm", 0,
                                            "it must be positive, or 0 for off"),
    option<&Given::grad_norm_type, is_positive>("grad_norm_type", 2,
                                                "it must be positive or infinite"),
    option<&Given::nonfinite, up_to<ZERO_NONFINITE_ERROR>>("nonfinite", ZERO_NONFINITE_IGNORE,
                                                           "no ZERO_NONFINITE_* has that number"),
    option<&Given::overlap_gather, up_to<1>>("overlap_gather", 0, "it must be 0 or 1"),
    option<&Given::master, up_to<ZERO_MASTER_NONE>>("master", ZERO_MASTER_FLOAT32,
                                                    "no ZERO_MASTER_* has that number"),
    option<&Given::uneven_inputs, up_to<ZERO_UNEVEN_ERROR>>("uneven_inputs", ZERO_UNEVEN_OFF,
                                                            "no ZERO_UNEVEN_* has that number"),
    option<&Given::wire_dtype, is_half>("wire_dtype", 0, "it must be ZERO_BFLOAT16 or ZERO_FLOAT16",
                                        tell_dtype<&Given::wire_dtype>),
    option<&Given::predivide_factor, is_power_of_two>(
        "predivide_factor", 1, "it must be a power of two from 2^-64 to 2^63"),
    option<&Given::share_dtype, is_half>("share_dtype", 0,
                                         "it must be ZERO_BFLOAT16 or ZERO_FLOAT16",
                                         tell_dtype<&Given::share_dtype>),
    option<&Given::growth_factor, is_growth>("growth_factor", 2, "it must be at least 1"),
    option<&Given::backoff_factor, is_backoff>("backoff_factor", 0.5, "it must be in (0, 1]"),
    option<&Given::growth_interval, is_positive>("growth_interval", 2000, "it must be positive"),
    option<&Given::loss_scale, is_scale>(
        "loss_scale", 0, "it must be from 2^-100 to 2^100, or 0 for off", tell_dynamic),
    option<&Given::instances, is_positive>("instances", 1, "it must be positive"),
    option<&Given::threads, up_to<64>>("threads", 0, "it must be from 1 to 64", nullptr)};

}  // namespace

OptimizerOptions::OptimizerOptions() : zero_options{} {
  for (const Option& option : kOptions) option.store(*this, option.initial);
}

Status read_options(const zero_options& given, OptimizerOptions& options) {
  for (const Option& option : kOptions) {
    std::string value;
    if (!option.read(given, options, value))
      return bad_argument(option.name, " is ", value, "; ", option.range);
  }
  if (options.scales_loss() && options.nonfinite == ZERO_NONFINITE_ERROR)
    return bad_argument("nonfinite is ", options.nonfinite,
                        "; with loss_scale, such steps are skipped");
  options.line = text("optimizer ", options.rule->name);
  for (const Option& option : kOptions)
    if (option.tell != nullptr) options.line += text("\t", option.name, " ", option.tell(options));
  return Status();
}

}  // namespace zero
