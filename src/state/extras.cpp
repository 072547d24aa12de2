// SPDX-License-Identifier: Apache-2.0
#include "state/extras.h"

#include <algorithm>

#include "base/refusals.h"
#include "state/json.h"
#include "state/layout.h"
#include "state/load.h"
#include "state/safetensors.h"

namespace zero {
namespace {

// The limits are low because every rank holds the extras of all ranks after a load.
constexpr size_t kMostExtras = 256;
constexpr size_t kLongestExtraName = 255;
constexpr size_t kMostExtraBytes = 16u << 20;  // of all extras of a rank
static_assert(kMostExtraBytes + kMostExtras * 8 * (kLongestExtraName + 1) < kLongestExtrasFile);

Status check_extra_name(std::string_view name) {
  if (name.empty() || name.size() > kLongestExtraName)
    return bad_argument("the name of an extra has ", name.size(), " bytes; it must have 1 to ",
                        kLongestExtraName);
  if (!is_utf8(name)) return bad_argument("the name of an extra is not valid UTF-8");
  if (name != kMetadataKey) return {};
  return bad_argument("'", kMetadataKey,
                      "' cannot be the name of an extra: safetensors reserves that name");
}

Result<ExtraViews> parse_file(std::string_view file, const Manifest& manifest) {
  const uint64_t length = ZERO_TRY(safetensors_header_bytes(file.substr(0, 8), file.size()));
  const SafetensorsHeader header =
      ZERO_TRY(parse_safetensors_header(file.substr(8, length), file.size()));
  ZERO_TRY(check_extras_header(header, manifest));
  ExtraViews extras;
  for (const TensorEntry& tensor : header.tensors)
    extras[tensor.name] = file.substr(header.data_start + tensor.begin, tensor.end - tensor.begin);
  return extras;
}

const FileRecord& file_of(const ManifestExtras& extras, const Manifest& manifest) {
  return manifest.files[static_cast<size_t>(extras.file)];
}

}  // namespace

Status check_extras_header(const SafetensorsHeader& header, const Manifest& manifest) {
  ZERO_TRY(check_metadata(header, manifest));
  for (const TensorEntry& tensor : header.tensors)
    if (tensor.dtype != "U8")
      return invalid("extra ", shown(tensor.name), " has dtype ", shown(tensor.dtype), ", not U8");
  return {};
}

Status set_extra(Optimizer& optim, std::string_view name, const void* bytes, size_t count) {
  ZERO_TRY(check_extra_name(name));
  Extras& extras = optim.extras;
  const auto old = extras.find(name);
  if (bytes == nullptr) {
    if (count > 0) return bad_argument("count is ", count, ", but bytes is NULL");
    if (old != extras.end()) extras.erase(old);
    return {};
  }
  if (count == 0) return bad_argument("extra '", name, "' has 0 bytes: pass NULL to remove it");
  size_t others = 0;
  for (const auto& [other, value] : extras) others += other == name ? 0 : value.size();
  if (count > kMostExtraBytes - std::min(others, kMostExtraBytes))
    return bad_argument("extra '", name, "' has ", count, " bytes and this rank's others ", others,
                        "; together they may have at most ", kMostExtraBytes);
  if (old == extras.end() && extras.size() >= kMostExtras)
    return bad_argument("extra '", name, "' is one too many: a rank may have at most ",
                        kMostExtras);
  std::string value(static_cast<const char*>(bytes), count);
  extras.insert_or_assign(std::string(name), std::move(value));
  return {};
}

Result<std::string_view> find_extra(const Optimizer& optim, int32_t rank, std::string_view name) {
  const auto& loaded = optim.loaded_extras.by_rank;
  if (const auto of = loaded.find(rank); of != loaded.end())
    if (const auto found = of->second.find(name); found != of->second.end()) return found->second;
  return bad_argument("no extra '", name, "' of rank ", rank,
                      " was loaded: zero_state_extra_list lists those that were");
}

Result<std::string> extras_file(const Extras& extras, const Digest& save_id, int32_t rank,
                                int32_t world) {
  SafetensorsHeader header = file_header({}, save_id, rank, world);
  for (const auto& [name, bytes] : extras)
    header.tensors.push_back({name, "U8", {static_cast<int64_t>(bytes.size())}});
  std::string file = ZERO_TRY(build_safetensors_header(header));
  for (const auto& [name, bytes] : extras) file += bytes;  // in the order of the header
  return file;
}

uint64_t extras_bytes(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const ManifestExtras& extras : manifest.extras) bytes += file_of(extras, manifest).bytes;
  return bytes;
}

Status read_extras(const BlockFiles& files, const Manifest& manifest, std::span<std::byte> to) {
  for (const ManifestExtras& extras : manifest.extras) {
    const FileRecord& record = file_of(extras, manifest);
    BlockReader reader = ZERO_TRY(BlockReader::open(files, record));
    ZERO_TRY(reader.read(0, to.first(record.bytes)));
    to = to.subspan(record.bytes);
  }
  return {};
}

Result<Extras> read_extras_of(const BlockFiles& files, const Manifest& manifest,
                              const ManifestExtras& extras) {
  const FileRecord& record = file_of(extras, manifest);
  BlockReader reader = ZERO_TRY(BlockReader::open(files, record));
  std::string whole(record.bytes, '\0');
  ZERO_TRY(reader.read(0, std::as_writable_bytes(std::span(whole))));
  Result<ExtraViews> views = parse_file(whole, manifest).within(text("'", record.name, "'"));
  return copy_of(ZERO_TRY(std::move(views)));
}

Extras copy_of(const ExtraViews& views) { return {views.begin(), views.end()}; }

Result<std::map<int32_t, ExtraViews>> parse_extras(std::string_view files,
                                                   const Manifest& manifest) {
  std::map<int32_t, ExtraViews> extras;
  for (const auto [rank, file] : manifest.extras) {
    const FileRecord& record = file_of({rank, file}, manifest);
    extras[rank] = ZERO_TRY(
        parse_file(files.substr(0, record.bytes), manifest).within(text("'", record.name, "'")));
    files.remove_prefix(record.bytes);
  }
  return extras;
}

}  // namespace zero
