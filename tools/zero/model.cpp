// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iostream>

#include "base/checked.h"
#include "base/refusals.h"
#include "checkpoint.h"
#include "model_config.h"
#include "model_size.h"
#include "safetensors_input.h"
#include "state/json.h"

namespace zero::tool {
namespace {

constexpr uint64_t kLongestShapes = 64u << 20;
constexpr const char* kPartitions[] = {"even", "greedy", "greedy-in-order"};  // in zero.h's order

Result<std::vector<ModelTensor>> read_safetensors(const std::string& path) {
  const SafetensorsInput input = ZERO_TRY(SafetensorsInput::open(path));
  std::vector<ModelTensor> model;
  for (const auto& tensor : input.tensors())
    model.push_back({tensor.name, tensor.dtype, tensor.shape});
  return model;
}

/// Returns the parts between any of the characters `at`.
std::vector<std::string_view> split(std::string_view all, std::string_view at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = std::min(all.find_first_of(at), all.size());
    parts.push_back(all.substr(0, end));
    if (end == all.size()) return parts;
    all.remove_prefix(end + 1);
  }
}

/// Reads "768x3072".
Result<std::vector<int64_t>> parse_shape(std::string_view words) {
  std::vector<int64_t> shape;
  for (const std::string_view digits : split(words, "x")) {
    int64_t& dimension = shape.emplace_back();
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), dimension);
    if (error != std::errc() || end != digits.end() || dimension < 0)
      return invalid(shown(words), " is not a shape such as 768x3072");
  }
  return shape;
}

Result<std::string> read_all(const std::string& path) {
  const auto too_long = [&] {
    return invalid("'", path, "': has more than ", kLongestShapes,
                   " bytes, too many for a list of shapes");
  };
  std::string all;
  if (path == kStandard) {
    all.resize(kLongestShapes + 1);
    std::cin.read(all.data(), static_cast<std::streamsize>(all.size()));
    all.resize(static_cast<size_t>(std::cin.gcount()));
    if (all.size() > kLongestShapes) return too_long();
    return all;
  }
  const InputFile file = ZERO_TRY(open_input(start_of_paths(), path, Links::followed));
  if (file.bytes > kLongestShapes) return too_long();
  all.resize(file.bytes);
  ZERO_TRY(read_fully(file, std::as_writable_bytes(std::span(all)), 0));
  return all;
}

Result<std::vector<ModelTensor>> parse_shapes(const std::string& all) {
  std::vector<ModelTensor> model;
  int64_t number = 0;
  for (const std::string_view line : split(all, "\n")) {
    number++;
    auto words = split(line, " \t\r");
    std::erase(words, "");
    if (words.empty() || words[0].starts_with('#')) continue;
    if (words.size() < 2 || words.size() > 3)
      return invalid("line ", number, " is not NAME SHAPE [DTYPE]",
                     all.starts_with('{') ? "; pass a config.json with --config" : "");
    const std::string dtype(words.size() == 3 ? words[2] : "F32");
    if (dtype_bytes(dtype) == 0)
      return invalid("line ", number, ": ", shown(dtype), " is not a dtype such as F32 or BF16");
    model.push_back({std::string(words[0]), dtype,
                     ZERO_TRY(parse_shape(words[1]).within(text("line ", number)))});
  }
  return model;
}

Status check_sizes(const std::vector<ModelTensor>& model) {
  if (model.empty()) return invalid("it has no tensors");
  uint64_t all = 0;
  for (const ModelTensor& tensor : model) {
    const auto count = shape_elements(tensor.shape);
    const auto bytes = count ? checked_multiply(static_cast<uint64_t>(*count), uint64_t{64})
                             : std::optional<uint64_t>();
    const auto sum = bytes ? checked_add(all, *bytes) : bytes;
    if (!sum) return invalid("tensor ", shown(tensor.name), " is too large");
    all = *sum;
  }
  return {};
}

}  // namespace

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  zero_rule rule;
  ZERO_INIT(rule);
  for (int32_t number = 0; zero_rule_info(number, &rule) == ZERO_OK; number++) {
    names.emplace_back(rule.name);
    ZERO_INIT(rule);
  }
  return names;
}

Result<int32_t> number_of_rule(const std::string& name) {
  const std::vector<std::string> names = rule_names();
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<int32_t>(found - names.begin());
  std::string known;
  for (const std::string& one : names) known += text(known.empty() ? "" : ", ", one);
  return bad_argument("there is no rule ", shown(name), ", but ", known);
}

const std::string& name_of_model(const Request& request) {
  return request.config.empty() ? request.checkpoint : request.config;
}

namespace {

Result<std::vector<ModelTensor>> read_path(const std::string& path) {
  std::vector<ModelTensor> model;
  const Directory directory = enter(start_of_paths(), path, Links::followed);
  if (directory.fd.valid()) {
    const Checkpoint checkpoint = ZERO_TRY(Checkpoint::open(path));
    const auto add = [&](const ManifestBuffer& of) {
      model.push_back({of.name, of.dtype, of.shape});
    };
    std::ranges::for_each(checkpoint.manifest().params, add);
    std::ranges::for_each(checkpoint.manifest().buffers, add);
  } else if (path.ends_with(".safetensors")) {
    model = ZERO_TRY(read_safetensors(path));
  } else {
    model = ZERO_TRY(parse_shapes(ZERO_TRY(read_all(path))).within(text("'", path, "'")));
  }
  return model;
}

/// Returns one tensor of all parameters. An even partition divides it as it divides a model.
Result<std::vector<ModelTensor>> one_tensor(int64_t count, const Request& request) {
  if (request.partition != kPartitions[ZERO_PARTITION_EVEN])
    return bad_argument(shown(request.checkpoint), " is a number of parameters, and --partition ",
                        request.partition, " needs their shapes: give a file, or --config FILE");
  return std::vector<ModelTensor>{{"parameters", "F32", {count}}};
}

Result<std::vector<ModelTensor>> read_named(const Request& request) {
  if (!request.config.empty())
    return parse_config(ZERO_TRY(read_all(request.config))).within(shown(request.config));
  const std::string& word = request.checkpoint;
  if (const auto count = parameters_of(word)) return one_tensor(*count, request);
  struct stat info;
  if (word != kStandard && stat(word.c_str(), &info) != 0 && errno == ENOENT)
    return bad_argument(
        shown(word),
        " is neither a number of parameters, such as 7B or 124M, nor a file: give a "
        "checkpoint, a .safetensors file, a list of shapes, or --config FILE");
  return read_path(word);
}

}  // namespace

Result<std::vector<ModelTensor>> read_model(const Request& request) {
  const auto model = ZERO_TRY(read_named(request));
  ZERO_TRY(check_sizes(model).within(shown(name_of_model(request))));
  return model;
}

std::vector<ModelTensor> trained(const std::vector<ModelTensor>& model, const std::string& dtype) {
  std::vector<ModelTensor> out;
  for (const ModelTensor& tensor : model) {
    if (!is_floating(dtype_of_code(tensor.dtype))) continue;
    out.push_back(tensor);
    if (!dtype.empty()) out.back().dtype = dtype;
  }
  return out;
}

Result<Divided> divide(const std::vector<ModelTensor>& trained, const Division& division) {
  zero_options options;
  ZERO_INIT(options);
  options.optimizer = ZERO_TRY(number_of_rule(division.rule));
  options.partition = static_cast<int32_t>(std::ranges::find(kPartitions, division.partition) -
                                           std::begin(kPartitions));
  options.instances = division.instances;
  std::vector<zero_param> params;
  for (const ModelTensor& tensor : trained) {
    zero_param& param = params.emplace_back();
    ZERO_INIT(param);
    param.name = tensor.name.c_str();
    param.shape = tensor.shape.data();
    param.ndim = static_cast<int32_t>(tensor.shape.size());
    param.dtype = static_cast<int32_t>(dtype_of_code(tensor.dtype));
  }
  Divided out;
  out.elements.resize(static_cast<size_t>(std::max(division.world, 0)));
  out.owners.resize(params.size());
  zero_plan plan;
  ZERO_INIT(plan);
  plan.elements = out.elements.data();
  plan.owners = out.owners.data();
  const zero_status status =
      zero_partition_plan(params.data(), params.size(), division.world, &options, &plan);
  if (status != ZERO_OK) {
    const std::string_view said = zero_last_error();  // after the name of the call
    return Status(status, std::string(said.substr(said.find(' ') + 1)));
  }
  out.state_bytes = plan.state_bytes;
  return out;
}

uint64_t bytes_of_tensors(const std::vector<ModelTensor>& tensors, const std::string& dtype) {
  uint64_t bytes = 0;
  for (const ModelTensor& tensor : tensors)
    bytes += static_cast<uint64_t>(*shape_elements(tensor.shape)) *
             dtype_bytes(dtype.empty() ? tensor.dtype : dtype);
  return bytes;
}

}  // namespace zero::tool
