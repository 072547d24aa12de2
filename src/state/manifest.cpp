// SPDX-License-Identifier: Apache-2.0
// Writing zero.json and the index, and the spellings both directions share. Reading is in
// manifest_reader.cpp.
#include "state/manifest.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/text.h"
#include "state/json.h"
#include "state/safetensors.h"

namespace zero {
namespace {

void write_settings(JsonWriter& json, const Settings& settings) {
  json.open('{');
  for (const auto& [name, value] : settings) json.key(name).value(hex_double(value));
  json.close('}');
}

void write_files(JsonWriter& json, const Manifest& manifest) {
  json.key("files").open('[');
  for (const FileRecord& file : manifest.files) {
    json.line().open('{').key("name").value(file.name);
    json.key("bytes").value(static_cast<int64_t>(file.bytes)).key("blocks").open('[');
    for (const uint64_t block : file.blocks) json.value(hex(block));
    json.close(']').close('}');
  }
  json.close(']');
}

void write_slots(JsonWriter& json, const ManifestParam& param) {
  json.key("slots").open('[');
  for (const ManifestSlot& slot : param.slots) {
    json.open('{').key("name").value(slot.name).key("slices").open('[');
    for (const ManifestSlice& slice : slot.slices) {
      json.open('{').key("file").value(slice.file).key("key").value(slice.key);
      json.key("start").value(slice.start).key("count").value(slice.count).close('}');
    }
    json.close(']').close('}');
  }
  json.close(']');
}

void write_shape(JsonWriter& json, const std::vector<int64_t>& shape) {
  json.key("shape").open('[');
  for (const int64_t dimension : shape) json.value(dimension);
  json.close(']');
}

void write_params(JsonWriter& json, const Manifest& manifest) {
  json.key("params").open('[');
  for (const ManifestParam& param : manifest.params) {
    json.line().open('{').key("name").value(param.name).key("dtype").value(param.dtype);
    write_shape(json, param.shape);
    json.key("group").value(param.group).key("step").value(param.step);
    if (param.mu_product != 1) json.key("mu_product").value(hex_double(param.mu_product));
    json.key("file").value(param.file);
    write_slots(json, param);
    json.close('}');
  }
  json.close(']');
}

void write_buffers(JsonWriter& json, const Manifest& manifest) {
  json.key("buffers").open('[');
  for (const ManifestBuffer& buffer : manifest.buffers) {
    json.line().open('{').key("name").value(buffer.name).key("dtype").value(buffer.dtype);
    write_shape(json, buffer.shape);
    json.key("file").value(buffer.file).close('}');
  }
  json.close(']');
}

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

}  // namespace

std::string write_manifest(const Manifest& manifest) {
  JsonWriter json;
  json.open('{').line().key("zero_format").value(kFormat);
  json.line().key("save_id").value(hex(manifest.save_id));
  json.line().key("step").value(manifest.step);
  json.line().key("skipped").value(manifest.skipped);
  json.line().key("world").value(manifest.world);
  json.line().key("created_by").value(manifest.created_by);
  json.line().key("block_bytes").value(static_cast<int64_t>(kBlockBytes));
  json.line().key("optimizer").open('{').key("name").value(manifest.rule).key("options");
  write_settings(json, manifest.options);
  json.key("groups").open('[');
  for (const Settings& group : manifest.groups) {
    json.line().open('{').key("settings");
    write_settings(json, group);
    json.close('}');
  }
  json.close(']');
  if (!manifest.slots.empty()) {
    json.key("slots").open('[');
    for (const std::string& slot : manifest.slots) json.value(slot);
    json.close(']');
  }
  json.close('}').line();
  write_files(json, manifest);
  write_params(json.line(), manifest);
  if (!manifest.buffers.empty()) write_buffers(json.line(), manifest);
  json.line().key("end");  // the comma and line break before it belong to the bytes it speaks of
  std::string out = json.take();
  out.resize(out.size() - std::string_view("\"end\":").size());
  return out += manifest_trailer(out);
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
