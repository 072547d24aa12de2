// SPDX-License-Identifier: Apache-2.0
// Defines one table with each option's name and range, and whether ranks must agree on it. The
// defaults are in optim/options.h.
#include <cmath>
#include <concepts>
#include <functional>
#include <type_traits>

#include "api/options.h"

namespace zero::api {
namespace {

/// Returns an option's value as ranks compare it. Null if they need not agree on it.
using Tell = std::string (*)(const OptimizerOptions& options);

struct Option {
  const char* name;
  const char* range;  // for error texts
  /// Stores the option. Returns false if it is out of range. Sets `value` to the text of what was
  /// given, for the error.
  bool (*read)(const zero_options& given, OptimizerOptions& options, std::string& value);
  Tell tell;
};

std::string told(DType value) { return value == DType::none ? "none" : dtype_name(value); }
std::string told(double value) { return exact(value); }
std::string told(std::integral auto value) { return text(value); }

template <auto kept>
std::string tell_kept(const OptimizerOptions& options) {
  return told(std::invoke(kept, options));
}

/// Returns the row of an option. `given` is its member of zero_options. `kept` is its member of
/// OptimizerOptions, or a function that returns a reference to it.
template <auto given, auto kept, auto allowed>
constexpr Option option(const char* name, const char* range, Tell tell = tell_kept<kept>) {
  return {name, range,
          [](const zero_options& from, OptimizerOptions& to, std::string& value) {
            auto& own = std::invoke(kept, to);
            const auto number = from.*given;
            value = text(number);
            if (number != 0) own = static_cast<std::remove_reference_t<decltype(own)>>(number);
            return allowed(number == 0 ? static_cast<decltype(+number)>(own) : number);
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

constexpr auto initial = [](auto& all) -> auto& { return all.loss_scale.initial; };
constexpr auto growth_factor = [](auto& all) -> auto& { return all.loss_scale.growth_factor; };
constexpr auto backoff_factor = [](auto& all) -> auto& { return all.loss_scale.backoff_factor; };
constexpr auto growth_interval = [](auto& all) -> auto& { return all.loss_scale.growth_interval; };

/// Compares only whether the scale is dynamic, because each step compares the scale itself.
std::string tell_dynamic(const OptimizerOptions& options) {
  return options.loss_scale.dynamic() ? "dynamic" : "off";
}

using Given = zero_options;
using Kept = OptimizerOptions;

constexpr Option kOptions[] = {
    option<&Given::partition, &Kept::partition, up_to<ZERO_PARTITION_MANUAL>>(
        "partition", "no ZERO_PARTITION_* has that number"),
    option<&Given::bucket_bytes, &Kept::bucket_bytes, is_bucket>("bucket_bytes",
                                                                 "it must be from 4,096 to 2^40"),
    option<&Given::max_grad_norm, &Kept::max_grad_norm, is_limit>(
        "max_grad_norm", "it must be positive, or 0 for off"),
    option<&Given::grad_norm_type, &Kept::grad_norm_type, is_positive>(
        "grad_norm_type", "it must be positive or infinite"),
    option<&Given::nonfinite, &Kept::nonfinite, up_to<ZERO_NONFINITE_ERROR>>(
        "nonfinite", "no ZERO_NONFINITE_* has that number"),
    option<&Given::overlap_gather, &Kept::overlap_gather, up_to<1>>("overlap_gather",
                                                                    "it must be 0 or 1"),
    option<&Given::master, &Kept::master, up_to<ZERO_MASTER_NONE>>(
        "master", "no ZERO_MASTER_* has that number"),
    option<&Given::uneven_inputs, &Kept::uneven_inputs, up_to<ZERO_UNEVEN_ERROR>>(
        "uneven_inputs", "no ZERO_UNEVEN_* has that number"),
    option<&Given::wire_dtype, &Kept::wire, is_half>("wire_dtype",
                                                     "it must be ZERO_BFLOAT16 or ZERO_FLOAT16"),
    option<&Given::predivide_factor, &Kept::predivide_factor, is_power_of_two>(
        "predivide_factor", "it must be a power of two from 2^-64 to 2^63"),
    option<&Given::share_dtype, &Kept::share, is_half>("share_dtype",
                                                       "it must be ZERO_BFLOAT16 or ZERO_FLOAT16"),
    option<&Given::growth_factor, growth_factor, is_growth>("growth_factor",
                                                            "it must be at least 1"),
    option<&Given::backoff_factor, backoff_factor, is_backoff>("backoff_factor",
                                                               "it must be in (0, 1]"),
    option<&Given::growth_interval, growth_interval, is_positive>("growth_interval",
                                                                  "it must be positive"),
    option<&Given::loss_scale, initial, is_scale>(
        "loss_scale", "it must be from 2^-100 to 2^100, or 0 for off", tell_dynamic),
    option<&Given::instances, &Kept::instances, is_positive>("instances", "it must be positive"),
    option<&Given::threads, &Kept::threads, up_to<64>>("threads", "it must be from 1 to 64",
                                                       nullptr)};

}  // namespace

Status read_options(const zero_options& given, OptimizerOptions& options) {
  for (const Option& option : kOptions) {
    std::string value;
    if (!option.read(given, options, value))
      return bad_argument(option.name, " is ", value, "; ", option.range);
  }
  if (options.loss_scale.dynamic() && options.nonfinite == ZERO_NONFINITE_ERROR)
    return bad_argument("nonfinite is ", options.nonfinite,
                        "; with loss_scale, such steps are skipped");
  options.line = text("optimizer ", options.rule->name);
  for (const Option& option : kOptions)
    if (option.tell != nullptr) options.line += text("\t", option.name, " ", option.tell(options));
  return Status();
}

}  // namespace zero::api
