// SPDX-License-Identifier: Apache-2.0
// Prints the data that travels between hosts in a step, and the memory of ranks, for worlds of any
// size. Uses the library's own plan, without any rank.
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "optim/options.h"
#include "traffic_model.h"
#include "workloads.h"

namespace {

using namespace bench;

struct Settings {
  std::vector<int32_t> hosts = {2}, ranks = {1}, instances = {1};
  std::vector<std::string> wires = {"none"};
  std::string model = "gpt2";  // or "gpt3", or a file with the sizes of one tensor per line
  std::string dtype = "float32";
  int64_t bucket_bytes = zero::OptimizerOptions().bucket_bytes;
  double gigabits = 1;  // per second, of a host's link
};

[[noreturn]] void fail(const std::string& why) {
  fprintf(stderr,
          "%s\nusage: traffic [--hosts=N,N...] [--ranks=N,...] [--instances=N,...] "
          "[--wire=none|bfloat16|float16,...] [--model=gpt2|gpt3|FILE] [--dtype=float32|bfloat16] "
          "[--bucket-bytes=N] [--gigabits=X]\n",
          why.c_str());
  exit(2);
}

template <class Value, class Read>
std::vector<Value> list_of(const std::string& text, const Read& read) {
  std::vector<Value> all;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) all.push_back(read(part));
  return all;
}

zero::DType dtype_of(const std::string& name) {
  if (name == "none") return zero::DType::none;
  if (name == "float32") return zero::DType::f32;
  if (name == "bfloat16") return zero::DType::bf16;
  if (name == "float16") return zero::DType::f16;
  fail("there is no type '" + name + "'");
}

Settings read_settings(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; i++) {
    const std::string argument = argv[i];
    const size_t end = argument.find('=');
    const std::string name = argument.substr(0, end);
    if (end == std::string::npos) fail("'" + name + "' has no value");
    const std::string value = argument.substr(end + 1);
    const auto numbers = [&] {
      return list_of<int32_t>(value, [](const std::string& one) { return atoi(one.c_str()); });
    };
    if (name == "--hosts")
      settings.hosts = numbers();
    else if (name == "--ranks")
      settings.ranks = numbers();
    else if (name == "--instances")
      settings.instances = numbers();
    else if (name == "--wire")
      settings.wires = list_of<std::string>(value, std::identity());
    else if (name == "--model")
      settings.model = value;
    else if (name == "--dtype")
      settings.dtype = value;
    else if (name == "--bucket-bytes")
      settings.bucket_bytes = atoll(value.c_str());
    else if (name == "--gigabits")
      settings.gigabits = atof(value.c_str());
    else
      fail("there is no setting '" + name + "'");
  }
  return settings;
}

/// Numbers the ranks host by host.
zero::hosts::Layout layout_of(int32_t hosts, int32_t ranks) {
  std::vector<uint64_t> of_ranks;
  for (int32_t rank = 0; rank < hosts * ranks; rank++)
    of_ranks.push_back(static_cast<uint64_t>(rank / ranks));
  return zero::hosts::Layout::of(of_ranks);
}

Workload read_model(const std::string& name) {
  if (name == "gpt2") return gpt2();
  if (name == "gpt3") return gpt3();
  Workload work{.name = name};
  std::ifstream file(name);
  if (!file) fail("cannot read '" + name + "'");
  for (std::string line; std::getline(file, line);) {
    std::istringstream sizes(line);
    std::vector<int64_t> shape;
    for (int64_t size; sizes >> size;) shape.push_back(size);
    if (!shape.empty()) work.add(std::to_string(work.tensors.size()), shape);
  }
  return work;
}

/// Returns the plan, and adds its memory to `bytes`.
zero::Plan plan_of(const Workload& model, const Settings& settings, const Cluster& cluster,
                   int64_t& bytes) {
  const auto used = [] {
    const struct mallinfo2 now = mallinfo2();
    return static_cast<int64_t>(now.uordblks + now.hblkhd);
  };
  std::vector<zero::PlanParam> params;
  for (size_t i = 0; i < model.tensors.size(); i++)
    params.push_back({.count = model.tensors[i].count,
                      .order = static_cast<int64_t>(i),
                      .dtype = dtype_of(settings.dtype),
                      .grad_dtype = dtype_of(settings.dtype)});
  const int64_t before = used();
  zero::Plan plan({.world = cluster.places(), .bucket_bytes = settings.bucket_bytes});
  const auto end = static_cast<int64_t>(params.size());
  const zero::Status added = plan.add(params, std::span(&end, 1));
  if (!added.ok()) fail(std::string(added.text()));
  bytes += used() - before;
  return plan;
}

/// Formats bytes with three digits.
std::string size(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < std::size(kUnits); unit++) value /= 1000;
  char text[32];
  snprintf(text, sizeof text, "%.*f %s",
           unit == 0 || value >= 99.95 ? 0
           : value >= 9.995            ? 1
                                       : 2,
           value, kUnits[unit]);
  return text;
}

void print_row(const Workload& model, const Settings& settings, const std::string& wire,
               const Cluster& cluster) {
  int64_t plan_bytes = 0;
  const zero::Plan plan = plan_of(model, settings, cluster, plan_bytes);
  const zero::hosts::Layout& layout = cluster.layout;
  const Traded rank = sent_by(0, cluster, plan);
  Traded host;
  for (int32_t place = 0; place < layout.places; place++)
    host = host + sent_by(layout.rank(0, place), cluster, plan);
  const Tables tables = tables_of(cluster, plan);
  const double seconds = static_cast<double>(host.data().bytes) * 8e-9 / settings.gigabits;
  printf("| %d | %d | %d | %s | %s | %s | %s | %s | %ld | %s | %ld | %s | %s | %.3g s |\n",
         layout.hosts(), layout.places, cluster.instances, wire.c_str(),
         size(host.gradients.bytes).c_str(), size(host.copies.bytes).c_str(),
         size(host.parameters.bytes).c_str(), size(rank.data().bytes).c_str(),
         static_cast<long>(rank.data().messages), size(rank.control.bytes).c_str(),
         static_cast<long>(rank.control.messages),
         size(plan_bytes + tables.segments + tables.placements + tables.records + tables.parts)
             .c_str(),
         size(tables.packing).c_str(), seconds);
}

}  // namespace

int main(int argc, char** argv) {
  const Settings settings = read_settings(argc, argv);
  const Workload model = read_model(settings.model);
  printf("%s: %zu tensors, %ld elements of %s; a link of %g Gbit/s a host\n\n", model.name.c_str(),
         model.tensors.size(), static_cast<long>(model.elements), settings.dtype.c_str(),
         settings.gigabits);
  puts(
      "| hosts | ranks each | instances | wire | gradients, out of a host | sums for copies | "
      "parameters | out of a rank | in messages | records out of rank 0 | in messages | tables of "
      "rank 0 | more to pack | data on the link |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
  for (const int32_t hosts : settings.hosts) {
    for (const int32_t ranks : settings.ranks) {
      for (const int32_t instances : settings.instances) {
        for (const std::string& wire : settings.wires) {
          if (hosts < 1 || ranks < 1 || instances < 1 || hosts * ranks % instances != 0)
            fail("instances have to divide hosts x ranks");
          const Cluster cluster{layout_of(hosts, ranks), instances, dtype_of(wire)};
          if (!cluster.layout.parts_evenly(cluster.copies(0)) ||
              !cluster.layout.parts_evenly(cluster.instance(0)))
            fail("an instance has to take whole hosts, or a host whole instances");
          print_row(model, settings, wire, cluster);
        }
      }
    }
  }
  return 0;
}
