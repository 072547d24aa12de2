// SPDX-License-Identifier: Apache-2.0
// Implements zero diff: compares settings, tensors bit for bit, and extras of two checkpoints. How
// they are split into files does not matter.
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "base/refusals.h"
#include "checkpoint.h"
#include "commands.h"
#include "optim/master.h"
#include "output.h"
#include "progress.h"
#include "state/extras.h"
#include "tensors.h"

namespace zero::tool {
namespace {

using Bytes = std::span<const std::byte>;

// ---- What manifests say.

using Facts = std::map<std::string, std::string>;

void add_settings(Facts& facts, const std::string& of, const Settings& settings) {
  for (const auto& [name, value] : settings) facts[text(of, name)] = exact(value);
}

void add_group(Facts& facts, const std::string& of, const ManifestGroup& group) {
  if (!group.rule.empty()) facts[of + "optimizer"] = group.rule;
  add_settings(facts, of, group.settings);
}

/// Returns everything that two checkpoints must have in common, by name.
Facts facts_of(const Manifest& manifest) {
  Facts facts{{"optimizer", manifest.rule},
              {"step", text(manifest.step)},
              {"skipped", text(manifest.skipped)},
              {"groups", text(manifest.groups.size())}};
  add_settings(facts, "", manifest.options);
  for (size_t i = 0; i < manifest.groups.size(); i++)
    add_group(facts, text("group ", i, ": "), manifest.groups[i]);
  for (const ManifestParam& param : manifest.params) {
    const std::string of = text("parameter ", printable(param.name), ": ");
    facts[of + "group"] = text(param.group);
    facts[of + "step"] = text(param.step);
    facts[of + "mu_product"] = exact(param.mu_product);
  }
  for (const WholeTensor& tensor : tensors_of(manifest, true))
    facts[text("tensor ", printable(tensor.name()))] =
        text(tensor.dtype, ' ', shape_text(*tensor.shape));
  return facts;
}

/// Adds each rank's extras, with a checksum of their bytes.
Status add_extras(Facts& facts, const Checkpoint& of) {
  const HostMemory block = ZERO_TRY(allocate_block());
  const BlockFiles files{of.directory(), block.data(), unhindered};
  for (const ManifestExtras& extras : of.manifest().extras) {
    for (const auto& [name, bytes] : ZERO_TRY(read_extras_of(files, of.manifest(), extras)))
      facts[text("extra ", printable(name), " of rank ", extras.rank)] =
          text(bytes.size(), " bytes, ", hex(hash64(bytes_of(bytes))));
  }
  return {};
}

/// A fact that differs. It is empty on a side that lacks it.
struct OtherFact {
  std::string what, first, second;
};

std::vector<OtherFact> compare(const Facts& first, const Facts& second) {
  Facts names = first;
  names.insert(second.begin(), second.end());
  std::vector<OtherFact> differ;
  const auto value = [](const Facts& facts, const std::string& name) {
    const auto found = facts.find(name);
    return found == facts.end() ? std::string() : found->second;
  };
  for (const auto& [name, unused] : names) {
    OtherFact fact{name, value(first, name), value(second, name)};
    if (fact.first != fact.second) differ.push_back(std::move(fact));
  }
  return differ;
}

// ---- Tensors.

/// An element as bits and as a number.
struct Element {
  uint64_t bits = 0;
  double value = 0;
};

Element element_at(DType dtype, Bytes part, size_t index) {
  const std::byte* const at = part.data() + index * size_of(dtype);
  Element element;
  std::memcpy(&element.bits, at, size_of(dtype));
  if (dtype == DType::f64) {
    element.value = std::bit_cast<double>(element.bits);
  } else if (dtype == DType::i64) {
    element.value = static_cast<double>(static_cast<int64_t>(element.bits));
  } else if (dtype == DType::i32) {
    element.value = static_cast<double>(static_cast<int32_t>(element.bits));
  } else {
    float value = 0;
    read_values(dtype, &value, at, 1);
    element.value = static_cast<double>(value);
  }
  return element;
}

/// How a tensor differs.
struct Difference {
  std::string name;
  DType dtype;
  int64_t count;         // of all elements
  int64_t differ = 0;    // of elements
  int64_t position = 0;  // of the first one that differs
  Element first = {}, second = {};
  double absolute = 0, relative = 0;  // the largest differences

  int bit() const { return 63 - std::countl_zero(first.bits ^ second.bits); }  // the highest

  void add(int64_t at, const Element& one, const Element& other) {
    if (differ++ == 0) position = at, first = one, second = other;
    const double distance = std::abs(one.value - other.value);
    const double size = std::max(std::abs(one.value), std::abs(other.value));
    const auto take = [](double& largest, double value) {
      if (std::isnan(value) || value > largest) largest = value;  // NaN stays NaN
    };
    take(absolute, distance);
    take(relative, size > 0 ? distance / size : distance);
  }
};

/// Compares parts of a tensor, and adds the elements that differ.
void compare_parts(Difference& difference, int64_t first, Bytes one, Bytes other) {
  if (std::memcmp(one.data(), other.data(), one.size()) == 0) return;
  const size_t element = size_of(difference.dtype);
  for (size_t i = 0; i < one.size() / element; i++) {
    if (std::memcmp(one.data() + i * element, other.data() + i * element, element) != 0)
      difference.add(first + static_cast<int64_t>(i), element_at(difference.dtype, one, i),
                     element_at(difference.dtype, other, i));
  }
}

bool alike(const WholeTensor& one, const WholeTensor& other) {
  return one.dtype == other.dtype && *one.shape == *other.shape;
}

/// Compares the tensors that both checkpoints have with the same shape.
Result<std::vector<Difference>> compare_tensors(const Checkpoint& one, const Checkpoint& other) {
  std::map<std::string, WholeTensor> others;
  for (WholeTensor& tensor : tensors_of(other.manifest(), true))
    others.emplace(text(tensor.owner, '\0', tensor.slot), std::move(tensor));
  std::vector<std::byte> values(kPartBytes), other_values(kPartBytes);
  TensorReader reader(one), other_reader(other);
  ProgressBar bar(one.bytes());
  uint64_t done = 0;
  std::vector<Difference> differ;
  for (const WholeTensor& tensor : tensors_of(one.manifest(), true)) {
    const auto found = others.find(text(tensor.owner, '\0', tensor.slot));
    if (found == others.end() || !alike(tensor, found->second)) continue;
    Difference difference{tensor.name(), dtype_of_code(tensor.dtype), tensor.count};
    ZERO_TRY(in_parts(tensor.dtype, tensor.count, [&](int64_t first, int64_t count) -> Status {
      const size_t bytes = size_of(difference.dtype, count);
      const std::span part(values.data(), bytes), other_part(other_values.data(), bytes);
      ZERO_TRY(reader.read(tensor, first, part));
      ZERO_TRY(other_reader.read(found->second, first, other_part));
      compare_parts(difference, first, part, other_part);
      bar.show(done += bytes);
      return {};
    }));
    if (difference.differ > 0) differ.push_back(std::move(difference));
  }
  return differ;
}

// ---- Output.

std::string shown_bits(DType dtype, uint64_t bits) {
  return "0x" + hex(bits).substr(16 - 2 * size_of(dtype));
}

Json json_of(const Difference& tensor) {
  return {{"tensor", tensor.name},
          {"dtype", dtype_code(tensor.dtype)},
          {"elements", tensor.count},
          {"differ", tensor.differ},
          {"first",
           {{"element", tensor.position},
            {"bit", tensor.bit()},
            {"values", {tool::json_of(tensor.first.value), tool::json_of(tensor.second.value)}},
            {"bits",
             {shown_bits(tensor.dtype, tensor.first.bits),
              shown_bits(tensor.dtype, tensor.second.bits)}}}},
          {"largest_absolute", tool::json_of(tensor.absolute)},
          {"largest_relative", tool::json_of(tensor.relative)}};
}

void print_differences(const std::vector<OtherFact>& facts,
                       const std::vector<Difference>& tensors) {
  for (const auto& [what, first, second] : facts)
    print_line(text(what, ": ", first.empty() ? "not there" : first, " and ",
                    second.empty() ? "not there" : second));
  if (tensors.empty()) return;
  const Difference& first = tensors.front();
  print_line(text("first difference: ", printable(first.name), ", element ", first.position,
                  ", bit ", first.bit(), ": ", first.first.value, " (",
                  shown_bits(first.dtype, first.first.bits), ") and ", first.second.value, " (",
                  shown_bits(first.dtype, first.second.bits), ")"));
  Rows rows{{"tensor", "elements", "differ", "from", "largest absolute", "relative"}};
  for (const Difference& tensor : tensors)
    rows.push_back({printable(tensor.name), text(tensor.count), text(tensor.differ),
                    text(tensor.position), text(tensor.absolute), text(tensor.relative)});
  print_table(rows);
}

Json json_of(const std::vector<OtherFact>& facts, const std::vector<Difference>& tensors) {
  Json out{{"same", facts.empty() && tensors.empty()},
           {"facts", Json::array()},
           {"tensors", Json::array()}};
  for (const auto& [what, first, second] : facts)
    out["facts"].push_back({{"what", what}, {"first", first}, {"second", second}});
  for (const Difference& tensor : tensors) out["tensors"].push_back(json_of(tensor));
  return out;
}

Result<Facts> all_facts(const Checkpoint& of) {
  Facts facts = facts_of(of.manifest());
  ZERO_TRY(add_extras(facts, of));
  return facts;
}

/// Returns true if the checkpoints are the same.
Result<bool> compare_and_print(const Checkpoint& one, const Checkpoint& other, bool json) {
  const Facts first = ZERO_TRY(all_facts(one)), second = ZERO_TRY(all_facts(other));
  const std::vector<OtherFact> facts = compare(first, second);
  const std::vector<Difference> tensors = ZERO_TRY(compare_tensors(one, other));
  const bool same = facts.empty() && tensors.empty();
  if (json)
    print_json(json_of(facts, tensors));
  else if (same)
    print_line("no difference");
  else
    print_differences(facts, tensors);
  return same;
}

}  // namespace

Result<bool> diff(const Request& request) {
  const Checkpoint one = ZERO_TRY(Checkpoint::open(request.checkpoint));
  const Checkpoint other = ZERO_TRY(Checkpoint::open(request.other));
  Result<bool> same = compare_and_print(one, other, request.json);
  if (!same.ok()) ZERO_TRY(one.check_in_place());
  if (!same.ok()) ZERO_TRY(other.check_in_place());
  return same;
}

}  // namespace zero::tool
