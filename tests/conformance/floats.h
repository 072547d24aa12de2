// SPDX-License-Identifier: Apache-2.0
// One rank that trains a few fp32 tensors of one size, on the host or on a device with its own
// stream.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "memory.h"
#include "support/chaos_device.h"
#include "support/optim.h"

namespace zero::test {

class Floats : public Optim {
 public:
  /// Registers tensors "w" and "b". The first is at `data` with its gradient at `grad`, if given.
  template <class Seat>
  Floats(Seat comm, const zero_options& options, size_t tensors, const int64_t& size,
         float* data = nullptr, float* grad = nullptr)
      : Optim(comm, options), device_(device_of(Optim::comm())), size_(static_cast<size_t>(size)) {
    if (device_ != nullptr) stream_ = make_stream(device_).value();
    const char* const names[] = {"w", "b"};
    std::vector<zero_param> params;
    for (size_t t = 0; t < tensors; t++) {
      data_.push_back(data != nullptr && t == 0 ? data : allocate());
      grads_.push_back(grad != nullptr && t == 0 ? grad : allocate());
      params.push_back(parameter(names[t], size, data_[t], grads_[t]));
    }
    add(params);
  }
  ~Floats() { free(); }

  const std::shared_ptr<Device>& device() const { return device_; }
  ChaosDevice& chaos() const { return *as_chaos(device_); }
  void* stream() const { return stream_.handle(); }
  float* data(size_t t) const { return data_[t]; }
  float* grad(size_t t) const { return grads_[t]; }

  void put(void* to, const std::vector<float>& values) const {
    move_bytes(device_, stream(), to, values.data(), values.size() * sizeof(float));
  }
  void put_all(const std::vector<float>& values) const {
    for (float* const data : data_) put(data, values);
  }
  void give_all(const std::vector<float>& values) const {
    for (float* const grad : grads_) put(grad, values);
  }
  std::vector<float> read(const void* from, void* behind) const {
    std::vector<float> values(size_);
    move_bytes(device_, behind, values.data(), from, size_ * sizeof(float));
    return values;
  }
  /// Returns the values of all tensors one after the other, in the order of a stream.
  std::vector<float> values(void* behind) const {
    std::vector<float> all;
    for (const float* const data : data_) {
      const std::vector<float> one = read(data, behind);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  std::vector<float> values() const { return values(stream()); }
  zero_status step() { return Optim::step(ZERO_REDUCE_MEAN, stream()); }

 private:
  float* allocate() {
    return reinterpret_cast<float*>(own_.emplace_back(device_, size_ * sizeof(float)).at());
  }

  const std::shared_ptr<Device> device_;
  const size_t size_;
  Stream stream_;
  std::deque<Memory> own_;
  std::vector<float*> data_, grads_;
};

}  // namespace zero::test
