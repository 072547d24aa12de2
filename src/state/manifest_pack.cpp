// SPDX-License-Identifier: Apache-2.0
#include "state/manifest_pack.h"

#include <cstring>
#include <type_traits>

#include "state/manifest_fields.h"

namespace zero {
namespace {

class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  template <class Value>
  void operator()(const Value& value) {
    if constexpr (std::is_trivially_copyable_v<Value>) {
      out_.append(reinterpret_cast<const char*>(&value), sizeof value);
    } else {
      JsonForm<Value>::visit(value, *this);
    }
  }
  void operator()(const std::string& value) {
    (*this)(value.size());
    out_ += value;
  }
  template <class Value>
  void operator()(const std::vector<Value>& values) {
    (*this)(values.size());
    for (const Value& value : values) (*this)(value);
  }
  void operator()(const Settings::value_type& setting) {
    (*this)(setting.first);
    (*this)(setting.second);
  }

 private:
  std::string& out_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}
  bool sound() const { return sound_ && left_.empty(); }

  template <class Value>
  void operator()(Value& value) {
    if constexpr (std::is_trivially_copyable_v<Value>) {
      sound_ = sound_ && left_.size() >= sizeof value;
      if (!sound_) return;
      std::memcpy(&value, left_.data(), sizeof value);
      left_.remove_prefix(sizeof value);
    } else {
      JsonForm<Value>::visit(value, *this);
    }
  }
  void operator()(std::string& value) {
    value.assign(left_.substr(0, take_size()));
    left_.remove_prefix(value.size());
  }
  /// One by one: a size that is no proper one ends with the bytes, not with the memory.
  template <class Value>
  void operator()(std::vector<Value>& values) {
    for (size_t size = take_size(); size > 0 && sound_; size--) (*this)(values.emplace_back());
  }
  void operator()(Settings::value_type& setting) {
    (*this)(setting.first);
    (*this)(setting.second);
  }

 private:
  size_t take_size() {
    size_t size = 0;
    (*this)(size);
    sound_ = sound_ && size <= left_.size();  // nothing takes less than a byte
    return sound_ ? size : 0;
  }

  std::string_view left_;
  bool sound_ = true;
};

}  // namespace

std::string pack_manifest(const Manifest& manifest) {
  std::string out;
  Writer write(out);
  write(manifest);
  return out;
}

Result<Manifest> unpack_manifest(std::string_view bytes) {
  Manifest manifest;
  Reader read(bytes);
  read(manifest);
  if (read.sound()) return manifest;
  return Status(ZERO_ERR_INTERNAL, "rank 0 sent no proper manifest");
}

}  // namespace zero
