// SPDX-License-Identifier: Apache-2.0
// Implements zero estimate and zero plan: bytes per rank and owners, before anything is allocated.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/hash.h"
#include "base/refusals.h"
#include "base/text.h"
#include "commands.h"
#include "model.h"
#include "output.h"
#include "output_file.h"
#include "plot.h"
#include "sizes.h"

namespace zero::tool {
namespace {

constexpr const char* kAsIs = "as is";

/// How the ranks of a world are distributed over hosts.
struct HostShare {
  int32_t count;
  int32_t fewest_ranks;  // of a host, where each rank has the largest share of its parameters
};

HostShare hosts_of(int32_t world, const Request& request) {
  if (const int32_t most = request.ranks_per_host; most > 0) {
    const int32_t rest = world % most;
    return {world / most + (rest > 0 ? 1 : 0), rest > 0 ? rest : most};
  }
  const int32_t count = std::min(request.hosts, world);
  return {count, world / count};
}

std::string hosts_text(const Request& request) {
  return request.ranks_per_host > 0
             ? counted(static_cast<uint64_t>(request.ranks_per_host), "rank") + " per host"
             : counted(static_cast<uint64_t>(request.hosts), "host");
}

/// The memory of a rank, in bytes.
struct Estimate {
  std::string rule, dtype;
  int32_t world, instances;
  HostShare hosts;
  uint64_t params, grads, state;

  uint64_t total() const { return params + grads + state; }
  /// Returns the total if a host's ranks share one copy of the parameters, which instances cannot.
  uint64_t shared() const {
    if (instances > 1) return total();
    return total() - params + params / static_cast<uint64_t>(hosts.fewest_ranks);
  }
};

/// Estimates one combination. Tensors that cannot be trained are counted unchanged on each rank.
Result<Estimate> estimate_one(const std::vector<ModelTensor>& model, const Request& request,
                              const std::string& dtype, const Division& division) {
  const std::vector<ModelTensor> tensors = trained(model, dtype);
  const uint64_t fixed = bytes_of_tensors(model, "") - bytes_of_tensors(trained(model, ""), "");
  const Divided divided = ZERO_TRY(divide(tensors, division));
  return Estimate{division.rule,
                  dtype.empty() ? kAsIs : dtype,
                  division.world,
                  division.instances,
                  hosts_of(division.world, request),
                  fixed + bytes_of_tensors(tensors, ""),
                  bytes_of_tensors(tensors, request.grad_dtype),
                  static_cast<uint64_t>(divided.state_bytes)};
}

Json json_of(const std::vector<Estimate>& estimates) {
  Json out = Json::array();
  for (const Estimate& one : estimates)
    out.push_back({{"rule", one.rule},
                   {"dtype", one.dtype},
                   {"world", one.world},
                   {"hosts", one.hosts.count},
                   {"parameters", one.params},
                   {"gradients", one.grads},
                   {"state", one.state},
                   {"total", one.total()},
                   {"total_with_shared_parameters", one.shared()}});
  return out;
}

/// Prints a table in which all sizes have one unit.
void print_estimates(const std::vector<Estimate>& estimates, const Request& request) {
  std::vector<uint64_t> columns[5];
  double most = 0;
  for (const Estimate& one : estimates) {
    const uint64_t sizes[] = {one.params, one.grads, one.state, one.total(), one.shared()};
    for (size_t i = 0; i < std::size(sizes); i++) columns[i].push_back(sizes[i]);
    most = std::max(most, static_cast<double>(one.total()));
  }
  Rows rows{{"rule", "dtype", "ranks", "parameters", "gradients", "state", "per rank",
             "with shared parameters, " + hosts_text(request)}};
  for (const Estimate& one : estimates) rows.push_back({one.rule, one.dtype, text(one.world)});
  for (const auto& column : columns) {
    const std::vector<std::string> cells = size_column(column, unit_of(most));
    for (size_t i = 0; i < cells.size(); i++) rows[i + 1].push_back(cells[i]);
  }
  print_table(rows);
}

/// Writes an image with two lines for each rule and dtype, without and with shared parameters.
Status write_plot(const std::vector<Estimate>& estimates, const Request& request) {
  std::vector<PlotLine> lines, dashed;
  for (size_t first = 0; first < estimates.size(); first += request.worlds.size()) {
    const Estimate& one = estimates[first];
    const std::string name = one.rule + (one.dtype == kAsIs ? "" : ' ' + one.dtype);
    const size_t color = first / request.worlds.size();
    PlotLine own{name, {}, color, false};
    PlotLine shared{name + ", with shared parameters, " + hosts_text(request), {}, color, true};
    for (size_t i = 0; i < request.worlds.size(); i++) {
      own.bytes.push_back(static_cast<double>(estimates[first + i].total()));
      shared.bytes.push_back(static_cast<double>(estimates[first + i].shared()));
    }
    lines.push_back(std::move(own));
    dashed.push_back(std::move(shared));
  }
  std::ranges::move(dashed, std::back_inserter(lines));
  const std::string image = plot(text("Parameters, gradients and state that a rank of ",
                                      printable(name_of_model(request)), " holds"),
                                 request.worlds, lines);
  const auto file = ZERO_TRY(OutputFile::create(request.other, request.replace, image.size()));
  ZERO_TRY(file->append(bytes_of(image)));
  return file->publish();
}

}  // namespace

Result<bool> estimate(const Request& request) {
  const size_t kinds = request.rules.size() * request.dtypes.size();
  if (!request.other.empty() && kinds > kMostColors)
    return bad_argument("a plot distinguishes at most ", kMostColors,
                        " rules and dtypes, these are ", kinds, ": give fewer");
  const std::vector<ModelTensor> model = ZERO_TRY(read_model(request));
  std::vector<Estimate> estimates;
  for (const std::string& rule : request.rules) {
    for (const std::string& dtype : request.dtypes) {
      for (const int32_t world : request.worlds) {
        const Division division{world, rule, request.partition, request.instances};
        estimates.push_back(ZERO_TRY(estimate_one(model, request, dtype, division)));
      }
    }
  }
  if (!request.other.empty()) ZERO_TRY(write_plot(estimates, request));
  if (request.json)
    print_json(json_of(estimates));
  else
    print_estimates(estimates, request);
  return true;
}

Result<bool> plan(const Request& request) {
  const std::vector<ModelTensor> model = ZERO_TRY(read_model(request));
  const std::vector<ModelTensor> tensors = trained(model, "");
  const Division division{request.worlds[0], request.rules[0], request.partition,
                          request.instances};
  const Divided divided = ZERO_TRY(divide(tensors, division));
  const std::vector<int64_t>& elements = divided.elements;
  const auto all =
      static_cast<double>(std::accumulate(elements.begin(), elements.end(), int64_t{0}));
  const auto most = static_cast<double>(*std::ranges::max_element(elements));
  const double imbalance = all > 0 ? most * division.world / all : 1;
  Json owners = Json::array();
  for (size_t i = 0; i < tensors.size(); i++)
    owners.push_back({{"tensor", tensors[i].name}, {"owner", divided.owners[i]}});
  if (request.json) {
    print_json(Json{{"world", division.world},
                    {"partition", division.partition},
                    {"elements", elements},
                    {"imbalance", imbalance},
                    {"state_bytes", divided.state_bytes},
                    {"owners", owners}});
    return true;
  }
  Rows rows{{"rank", "elements", "tensors of its own"}};
  for (size_t rank = 0; rank < elements.size(); rank++)
    rows.push_back({text(rank), text(elements[rank]),
                    text(std::ranges::count(divided.owners, static_cast<int32_t>(rank)))});
  print_table(rows);
  print_line(text(
      counted(static_cast<uint64_t>(std::ranges::count(divided.owners, ZERO_OWNER_SPLIT)),
              "tensor"),
      " split between ranks; the busiest rank has ", std::round(imbalance * 100) / 100,
      " times the mean, and ", bytes_text(static_cast<double>(divided.state_bytes)), " of state"));
  return true;
}

}  // namespace zero::tool
