// SPDX-License-Identifier: Apache-2.0
// Implements zero inspect: prints the contents of the manifest and the names of extras.
#include <algorithm>
#include <map>
#include <vector>

#include "base/refusals.h"
#include "checkpoint.h"
#include "commands.h"
#include "description.h"
#include "output.h"
#include "sizes.h"
#include "state/extras.h"

namespace zero::tool {
namespace {

Result<Json> extras_of(const Checkpoint& checkpoint) {
  Json out = Json::array();
  const HostMemory block = ZERO_TRY(allocate_block());
  const BlockFiles files{checkpoint.directory(), block.data(), unhindered};
  for (const ManifestExtras& of : checkpoint.manifest().extras) {
    for (const auto& [name, bytes] : ZERO_TRY(read_extras_of(files, checkpoint.manifest(), of)))
      out.push_back({{"rank", of.rank}, {"name", name}, {"bytes", bytes.size()}});
  }
  return out;
}

Result<Json> describe_all(const Checkpoint& checkpoint) {
  const Manifest& manifest = checkpoint.manifest();
  Json extras = ZERO_TRY(extras_of(checkpoint));
  Json files = Json::array();
  for (const FileRecord& file : manifest.files)
    files.push_back({{"name", file.name}, {"bytes", file.bytes}});
  Json out{{"checkpoint", checkpoint.path()},   {"format", manifest.format},
           {"created_by", manifest.created_by}, {"save_id", hex(manifest.save_id)},
           {"world", manifest.world},           {"bytes", checkpoint.bytes()}};
  out.update(describe(manifest));
  out["extras"] = std::move(extras);
  out["files"] = std::move(files);
  return out;
}

// ---- As text.

std::string settings_text(const Settings& settings) {
  std::string out;
  for (const auto& [name, value] : settings)
    out += text(out.empty() ? "" : ", ", printable(name), ' ', value);
  return out;
}

std::string group_text(const ManifestGroup& group) {
  std::string settings = settings_text(group.settings);
  if (group.slot_format == SlotFormat::bf16) settings += ", state in bfloat16";
  return group.rule.empty() ? settings : text(printable(group.rule), ": ", settings);
}

std::vector<std::string> split(std::string_view name) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = std::min(name.find('.'), name.size());
    parts.push_back(printable(name.substr(0, end)));
    if (end == name.size()) return parts;
    name.remove_prefix(end + 1);
  }
}

/// Adds rows, and leaves out the part of a name that it shares with the row above.
class Tree {
 public:
  explicit Tree(Rows& rows) : rows_(rows) {}

  void add(const ManifestBuffer& tensor, const std::string& rest) {
    std::vector<std::string> path = split(tensor.name);
    const auto common = std::ranges::mismatch(path, above_).in1 - path.begin();
    // The last part belongs to the tensor alone.
    for (auto depth = std::min<size_t>(static_cast<size_t>(common), path.size() - 1);
         depth + 1 < path.size(); depth++)
      rows_.push_back({indented(depth, path[depth])});
    rows_.push_back(
        {indented(path.size() - 1, path.back()), tensor.dtype, shape_text(tensor.shape), rest});
    above_ = std::move(path);
  }

 private:
  static std::string indented(size_t depth, const std::string& words) {
    return std::string(2 * depth + 2, ' ') + words;
  }

  Rows& rows_;
  std::vector<std::string> above_;
};

std::string rest_of(const ManifestParam& param) {
  std::string state;
  for (const ManifestSlot& slot : param.slots)
    state += text(state.empty() ? "" : ", ", printable(slot.name));
  return text("group ", param.group, ", step ", param.step, state.empty() ? "" : ": ", state);
}

void print_tensors(const Manifest& manifest) {
  Rows rows;
  rows.push_back({counted(manifest.params.size(), "parameter")});
  Tree params(rows);
  for (const ManifestParam& param : manifest.params) params.add(param, rest_of(param));
  if (!manifest.buffers.empty()) rows.push_back({counted(manifest.buffers.size(), "buffer")});
  Tree buffers(rows);
  for (const ManifestBuffer& buffer : manifest.buffers) buffers.add(buffer, "");
  print_table(rows);
}

/// Prints each name once, with the ranks that have it.
void print_extras(const Json& extras) {
  struct Sum {
    uint64_t ranks = 0, bytes = 0;
  };
  std::map<std::string, Sum> sums;
  for (const Json& extra : extras) {
    Sum& sum = sums[extra["name"]];
    sum.ranks++;
    sum.bytes += extra["bytes"].get<uint64_t>();
  }
  Rows rows;
  for (const auto& [name, sum] : sums)
    rows.push_back({"  " + printable(name), counted(sum.ranks, "rank"),
                    bytes_text(static_cast<double>(sum.bytes))});
  if (!rows.empty()) print_line("extras");
  print_table(rows);
}

void print_words(const Checkpoint& checkpoint, const Json& extras) {
  const Manifest& manifest = checkpoint.manifest();
  int64_t elements = 0;
  for (const ManifestParam& param : manifest.params) elements += param.count;
  Rows rows = {{"checkpoint", printable(checkpoint.path())},
               {"saved by", text(printable(manifest.created_by), ", format ", manifest.format)},
               {"step", text(manifest.step, ", ", manifest.skipped, " skipped")},
               {"world", counted(static_cast<uint64_t>(manifest.world), "rank")},
               {"size", text(bytes_text(static_cast<double>(checkpoint.bytes())), " in ",
                             counted(manifest.files.size(), "file"))},
               {"elements", text(elements, " of parameters")},
               {"optimizer", printable(manifest.rule)},
               {"options", settings_text(manifest.options)}};
  for (size_t i = 0; i < manifest.groups.size(); i++)
    rows.push_back({text("group ", i), group_text(manifest.groups[i])});
  print_table(rows);
  print_tensors(manifest);
  print_extras(extras);
}

}  // namespace

Result<bool> inspect(const Request& request) {
  const Checkpoint checkpoint = ZERO_TRY(Checkpoint::open(request.checkpoint));
  Result<Json> description = describe_all(checkpoint);
  if (!description.ok()) ZERO_TRY(checkpoint.check_in_place());
  const Json said = ZERO_TRY(std::move(description));
  if (request.json)
    print_json(said);
  else
    print_words(checkpoint, said["extras"]);
  return true;
}

}  // namespace zero::tool
