// SPDX-License-Identifier: Apache-2.0
// zero.json as a whole, with its own checksum, the index, and the spellings of both.
#include "state/manifest.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/text.h"
#include "state/manifest_fields.h"
#include "state/safetensors.h"

namespace zero {
namespace {

constexpr JsonLimits kLimits = {.max_depth = 16, .ignore_unknown_keys = true, .most_keys = 1000};

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// At least five digits, as "%05d" writes a number above zero.
bool take_number(std::string_view& text) {
  size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') digits++;
  if (digits < 5 || digits > 10 || (digits > 5 && text[0] == '0')) return false;
  text.remove_prefix(digits);
  return true;
}

/// The trailer is found where write_manifest puts it, and is byte for byte what its body asks for.
Status check_trailer(std::string_view bytes) {
  constexpr size_t kLongestTrailer = 80;
  const size_t from = bytes.size() - std::min(bytes.size(), kLongestTrailer);
  const size_t at = bytes.substr(from).rfind("\"end\":{");
  if (at == bytes.npos) return invalid("it does not end as a complete manifest does");
  const std::string_view body = bytes.substr(0, from + at);
  if (bytes.substr(body.size()) == manifest_trailer(body)) return {};
  return invalid("its first ", body.size(),
                 " bytes do not have the length and checksum that its end says");
}

}  // namespace

std::string write_manifest(const Manifest& manifest) {
  JsonWriter json;
  JsonForm<Manifest>::write(json, manifest);
  std::string out = json.take();
  // The comma and line break before the end belong to the bytes it speaks of.
  out.resize(out.size() - std::string_view("\"end\":}").size());
  return out += manifest_trailer(out);
}

Result<Manifest> parse_manifest(std::string_view bytes) {
  if (bytes.size() > kLongestManifest) {
    return invalid("it has ", bytes.size(), " bytes, at most ", kLongestManifest);
  }
  ZERO_TRY(check_trailer(bytes));
  Manifest manifest;
  ZERO_TRY(parse_json(bytes, kLimits, kJsonType<Manifest>, &manifest));
  ZERO_TRY(check_manifest(manifest));
  return manifest;
}

std::string manifest_trailer(std::string_view body) {
  return text("\"end\":{\"bytes\":", body.size(), ",\"xxh3\":\"", hex(hash64(bytes_of(body))),
              "\"}}\n");
}

std::string write_index(const Manifest& manifest) {
  const auto bytes_of_all = [](const auto& tensors) {
    int64_t bytes = 0;
    for (const auto& tensor : tensors)
      bytes += tensor.count * static_cast<int64_t>(dtype_bytes(tensor.dtype));
    return bytes;
  };
  JsonWriter json;
  const auto map = [&](const auto& tensors) {
    for (const auto& tensor : tensors)
      json.line().key(tensor.name).value(manifest.files[static_cast<size_t>(tensor.file)].name);
  };
  json.open('{').key("metadata").open('{').key("total_size");
  json.value(bytes_of_all(manifest.params) + bytes_of_all(manifest.buffers)).close('}');
  json.line().key("weight_map").open('{');
  map(manifest.params);
  map(manifest.buffers);
  return json.close('}').close('}').take() += '\n';
}

std::string shard_name(std::string_view kind, int32_t rank, int32_t world) {
  char numbers[48];
  std::snprintf(numbers, sizeof numbers, "-%05d-of-%05d.safetensors", rank + 1, world);
  return text(kind, numbers);
}

std::vector<std::string> file_names(int32_t world) {
  std::vector<std::string> names;
  for (const char* kind : {"model", "optim"}) {
    for (int32_t rank = 0; rank < world; rank++) names.push_back(shard_name(kind, rank, world));
  }
  names.insert(names.end(), {kIndexName, kManifestName});
  return names;
}

bool is_checkpoint_file(std::string_view name) {
  if (name == kManifestName || name == kIndexName) return true;
  if (!take_prefix(name, "model-") && !take_prefix(name, "optim-")) return false;
  return take_number(name) && take_prefix(name, "-of-") && take_number(name) &&
         name == ".safetensors";
}

bool is_tensor_file(std::string_view name) {
  constexpr std::string_view kEnding = ".safetensors";
  return name.size() > kEnding.size() && name.substr(name.size() - kEnding.size()) == kEnding;
}

bool parse_hex_double(std::string_view text, double& value) {
  const bool negative = take_prefix(text, "-");
  double parsed = 0;
  if (text == "inf") {
    parsed = HUGE_VAL;
  } else {
    // Exactly what hex_double writes: from_chars alone would take "nan" and a second sign.
    if (!take_prefix(text, "0x") || text.empty() || (text[0] != '0' && text[0] != '1'))
      return false;
    const auto end =
        std::from_chars(text.data(), text.data() + text.size(), parsed, std::chars_format::hex);
    if (end.ec != std::errc() || end.ptr != text.data() + text.size()) return false;
  }
  value = negative ? -parsed : parsed;
  return true;
}

bool parse_hex(std::string_view text, uint64_t& value) {
  if (text.size() != 16) return false;
  value = 0;
  for (const char c : text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return false;
    value = value << 4 | static_cast<uint64_t>(digit);
  }
  return true;
}

bool parse_hex(std::string_view text, Digest& digest) {
  return text.size() == 32 && parse_hex(text.substr(0, 16), digest[0]) &&
         parse_hex(text.substr(16), digest[1]);
}

}  // namespace zero
