// SPDX-License-Identifier: Apache-2.0
// Each struct names its members once, and both directions go along them.
#include "state/manifest_pack.h"

#include <cstring>
#include <type_traits>

namespace zero {
namespace {

template <class Pass, class Pair, class First = decltype(Pair::first)>
void members(Pass& pass, Pair& of) {
  pass(of.first, of.second);
}
template <class Pass>
void members(Pass& pass, FileRecord& of) {
  pass(of.name, of.bytes, of.blocks);
}
template <class Pass>
void members(Pass& pass, ManifestSlice& of) {
  pass(of.file, of.key, of.start, of.count);
}
template <class Pass>
void members(Pass& pass, ManifestSlot& of) {
  pass(of.name, of.slices);
}
template <class Pass>
void members(Pass& pass, ManifestParam& of) {
  pass(of.name, of.dtype, of.shape, of.count, of.group, of.step, of.mu_product, of.file, of.slots);
}
template <class Pass>
void members(Pass& pass, ManifestBuffer& of) {
  pass(of.name, of.dtype, of.shape, of.count, of.file);
}
template <class Pass>
void members(Pass& pass, Manifest& of) {
  pass(of.save_id[0], of.save_id[1], of.step, of.skipped, of.world, of.created_by, of.rule,
       of.slots, of.options, of.groups, of.files, of.params, of.buffers);
}

class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}
  template <class... Values>
  void operator()(Values&... values) {
    (put(values), ...);
  }

 private:
  template <class Value>
  void put(Value& value) {
    if constexpr (std::is_arithmetic_v<Value>) {
      out_.append(reinterpret_cast<const char*>(&value), sizeof value);
    } else {
      members(*this, value);
    }
  }
  void put(std::string& value) {
    put_size(value.size());
    out_ += value;
  }
  template <class Value>
  void put(std::vector<Value>& values) {
    put_size(values.size());
    for (Value& value : values) put(value);
  }
  void put_size(uint64_t size) { put(size); }

  std::string& out_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}
  template <class... Values>
  void operator()(Values&... values) {
    (take(values), ...);
  }
  bool sound() const { return sound_ && left_.empty(); }

 private:
  template <class Value>
  void take(Value& value) {
    if constexpr (std::is_arithmetic_v<Value>) {
      sound_ = sound_ && left_.size() >= sizeof value;
      if (!sound_) return;
      std::memcpy(&value, left_.data(), sizeof value);
      left_.remove_prefix(sizeof value);
    } else {
      members(*this, value);
    }
  }
  void take(std::string& value) {
    value.assign(left_.substr(0, take_size()));
    left_.remove_prefix(value.size());
  }
  /// One by one: a size that is no proper one ends with the bytes, not with the memory.
  template <class Value>
  void take(std::vector<Value>& values) {
    for (uint64_t size = take_size(); size > 0 && sound_; size--) take(values.emplace_back());
  }
  uint64_t take_size() {
    uint64_t size = 0;
    take(size);
    sound_ = sound_ && size <= left_.size();  // nothing takes less than a byte
    return sound_ ? size : 0;
  }

  std::string_view left_;
  bool sound_ = true;
};

}  // namespace

std::string pack_manifest(const Manifest& manifest) {
  std::string out;
  Writer writer(out);
  members(writer, const_cast<Manifest&>(manifest));  // which only reads
  return out;
}

Result<Manifest> unpack_manifest(std::string_view bytes) {
  Manifest manifest;
  Reader reader(bytes);
  members(reader, manifest);
  if (reader.sound()) return manifest;
  return Status(ZERO_ERR_INTERNAL, "rank 0 sent no proper manifest");
}

}  // namespace zero
