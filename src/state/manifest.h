// SPDX-License-Identifier: Apache-2.0
// Describes zero.json, which says what a checkpoint holds and where, and is the only authority over
// the files. A parsed manifest is consistent: every index is in range, and the slices of each slot
// cover it exactly once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/hash.h"
#include "base/status.h"
#include "kernels/kernels.h"
#include "plan/plan.h"
#include "state/blocks.h"
#include "state/file_names.h"

namespace zero {

inline constexpr uint64_t kLongestManifest = 1u << 28;  // in bytes; several times that when parsed
inline constexpr uint64_t kLongestExtrasFile = 1u << 25;
inline constexpr uint64_t kMostExtrasBytes = 1u << 30;  // of all extras files together
/// The format of the files with tensors, and of a manifest whose groups follow one rule.
inline constexpr int64_t kFormat = 1;
/// The format of a manifest whose groups follow different rules, or whose state is not stored as
/// updates use it. Older libraries refuse it.
inline constexpr int64_t kFormatOfRules = 2;

/// The elements [start, start + count) of a tensor, stored as the tensor `key` of a file.
struct ManifestSlice {
  int32_t file = 0;  // index into Manifest::files
  std::string key;
  int64_t start = 0;
  int64_t count = 0;
  bool operator==(const ManifestSlice&) const = default;
};

struct ManifestSlot {
  std::string name;
  std::vector<ManifestSlice> slices;  // sorted by start
  bool operator==(const ManifestSlot&) const = default;
};

/// A tensor that one file holds as a whole, under its name: a buffer, or the values of a parameter.
struct ManifestBuffer {
  std::string name;
  std::string dtype = "F32";
  std::vector<int64_t> shape;
  int64_t count = 0;  // the product of the shape; not in the file
  int32_t file = 0;
  bool operator==(const ManifestBuffer&) const = default;
};

struct ManifestParam : ManifestBuffer {
  int32_t group = 0;
  int64_t step = 0;
  double mu_product = 1;  // of NAdam; in the file only if it is not 1
  std::vector<ManifestSlot> slots;
  bool operator==(const ManifestParam&) const = default;
};

/// A file with a rank's extras, as U8 tensors.
struct ManifestExtras {
  int32_t rank = 0;  // the rank that saved them
  int32_t file = 0;
  bool operator==(const ManifestExtras&) const = default;
};

using Settings = std::vector<std::pair<std::string, double>>;

inline constexpr const char* kLossScale = "loss_scale";
inline constexpr const char* kGoodSteps = "good_steps";

struct ManifestGroup {
  std::string rule;  // empty: that of the optimizer; in the file only if it is another
  Settings settings;
  std::vector<std::string> slots = {};  // those that a custom rule of the group declares, or none
  SlotFormat slot_format = SlotFormat::full;  // in the file only if it is another
  bool operator==(const ManifestGroup&) const = default;
};

struct Manifest {
  /// Returns the oldest format that can hold this manifest, in which it is written.
  int64_t needed_format() const;
  /// Returns the name of the rule that a group follows.
  const std::string& rule_of(const ManifestGroup& group) const {
    return group.rule.empty() ? rule : group.rule;
  }
  /// Returns the type in which a slot of a parameter is stored.
  DType dtype_of(const ManifestParam& param, const ManifestSlot& slot) const;

  int64_t format = kFormat;  // in which it was written
  Digest save_id{};
  int64_t step = 0;
  int64_t skipped = 0;
  int32_t world = 1;
  std::string created_by;
  std::string rule;                // of groups that have none
  std::vector<std::string> slots;  // those that a custom rule declares, or none
  Settings options;  // of the whole optimizer; only kLossScale and kGoodSteps are loaded
  std::vector<ManifestGroup> groups;
  std::vector<FileRecord> files;
  std::vector<ManifestParam> params;
  std::vector<ManifestBuffer> buffers;  // in the file only if there are any
  std::vector<ManifestExtras> extras;   // of ranks that have any; in the file only if there are any
  bool operator==(const Manifest&) const = default;
};

/// A tensor that a file holds according to the manifest.
struct ManifestTensor {
  int32_t file;
  std::string_view key;
  std::string_view dtype;
  int64_t count;
  int64_t all;                        // elements of the whole tensor, of which this may be a slice
  const std::vector<int64_t>* shape;  // of the whole tensor
};

/// Calls visit(tensor) for every tensor that the manifest lists.
template <class Visit>
void for_each_tensor(const Manifest& manifest, const Visit& visit) {
  const auto whole = [&](const ManifestBuffer& of) {
    visit(ManifestTensor{of.file, of.name, of.dtype, of.count, of.count, &of.shape});
  };
  for (const ManifestParam& param : manifest.params) {
    whole(param);
    for (const ManifestSlot& slot : param.slots) {
      const std::string_view dtype = dtype_code(manifest.dtype_of(param, slot));
      for (const ManifestSlice& slice : slot.slices)
        visit(ManifestTensor{slice.file, slice.key, dtype, slice.count, param.count, &param.shape});
    }
  }
  for (const ManifestBuffer& buffer : manifest.buffers) whole(buffer);
}

std::string write_manifest(const Manifest& manifest);

/// Writes the manifest file, which completes a checkpoint.
Status write_manifest_file(const BlockFiles& files, const Manifest& manifest);

/// Returns the manifest's last bytes, from its "end" key on: the length and checksum of `body`.
std::string manifest_trailer(std::string_view body);

/// Fails with ZERO_ERR_CKPT_INVALID for anything that write_manifest() would not have written,
/// except unknown keys. Fails with ZERO_ERR_UNSUPPORTED for another format number.
Result<Manifest> parse_manifest(std::string_view bytes);

/// Parses what hex_double() wrote. Returns false for anything else, and for NaN.
bool parse_hex_double(std::string_view text, double& value);

/// Parse 32 or 16 lower-case hexadecimal digits. Return false for anything else.
bool parse_hex(std::string_view text, Digest& digest);
bool parse_hex(std::string_view text, uint64_t& value);

/// Returns the text of the Hugging Face index of parameters and buffers.
std::string write_index(const Manifest& manifest);

}  // namespace zero
