// SPDX-License-Identifier: Apache-2.0
// One rank's copy of a model of many dtypes with made-up contents, on the host or on a device whose
// memory the host need not reach: what it trains, tells and takes in, bit for bit.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "memory.h"
#include "stored.h"
#include "support/optim.h"

namespace zero::test {

struct Tensor {
  std::string name;
  int64_t size;
  int32_t dtype = ZERO_FLOAT32;
  int32_t grad_dtype = 0;     // the same
  bool trains = true;         // else it never gets a gradient
  bool own_settings = false;  // of lr and weight decay
};

/// Cut and whole, of every dtype, one without elements, and some that never get a gradient.
std::vector<Tensor> small_tensors();

/// Contents that every dtype holds at first, so that values which no step changes are never
/// rounded.
std::vector<double> made_up(size_t tensor, size_t count, int turn);

/// Of an optimizer whose state is looked at.
struct StateCase {
  int32_t optimizer = ZERO_OPTIMIZER_ADAMW;
  int32_t partition = ZERO_PARTITION_EVEN;
  int32_t master = ZERO_MASTER_FLOAT32;
  int32_t share_dtype = 0;
  double momentum = -1;  // of SGD

  zero_options options() const;
  Settings settings() const;
};

using Contents = std::map<std::string, std::vector<std::byte>>;

class Replica : public Optim {
 public:
  /// With the comm's device; `own_stream`: all that this queues is on one of its own.
  template <class Seat>
  Replica(Seat comm, const zero_options& options, const Settings& settings = {},
          bool own_stream = false)
      : Optim(comm, options, settings), device_(device_of(Optim::comm())) {
    if (own_stream && device_ != nullptr) stream_ = make_stream(device_).value();
  }
  ~Replica() { free(); }

  /// One more group.
  void add_tensors(const std::vector<Tensor>& group);

  const std::shared_ptr<Device>& device() const { return device_; }
  StreamHandle stream() const { return stream_.handle(); }
  void finish() const { test::finish(device_, stream()); }

  /// New gradients, another one on every rank: where they are, null for what does not train.
  std::vector<void*> gradients(int turn);
  zero_status step(int turn) { return step_with(gradients(turn)); }
  void steps(int first, int count) {
    for (int turn = first; turn < first + count; turn++) EXPECT_OK(step(turn));
  }
  void reduce(int turn, int32_t flags = ZERO_REDUCE_MEAN) {
    EXPECT_OK(reduce_with(gradients(turn), flags));
  }

  size_t size() const { return tensors_.size(); }
  const Tensor& tensor(size_t t) const { return tensors_[t]; }
  size_t floating() const;  // so many, at the front
  const Memory& data(size_t t) const { return data_[t]; }
  const Memory& grad(size_t t) const { return grads_[t]; }
  std::vector<std::byte> values(size_t t) const { return data_[t].read(stream()); }
  void put(const Memory& to, const std::vector<std::byte>& bytes) const;
  void set_data(size_t t, int turn) { put(data_[t], encoded(t, tensors_[t].dtype, turn)); }

  int32_t state_dtype(size_t t) const;
  /// A tensor of the state by zero_state_get; null: the values that are updated.
  std::vector<std::byte> get(size_t t, const char* name) const;
  /// Empty where this rank gets nothing.
  std::vector<std::byte> gather(size_t t, const char* name, int32_t to = ZERO_ALL_RANKS) const;
  void set_state(size_t t, const char* name, const std::vector<std::byte>& values);
  std::vector<std::byte> gradient(size_t t) const;

  /// All that training goes on from, by name; the same on every rank.
  Contents everything() const;

  static int64_t number(size_t t) { return static_cast<int64_t>(t); }

 private:
  std::vector<std::byte> encoded(size_t t, int32_t dtype, int turn) const;
  std::vector<std::byte> room_for_state(size_t t) const;

  const std::shared_ptr<Device> device_;
  Stream stream_;
  std::vector<Tensor> tensors_;
  std::vector<Memory> data_, grads_;
};

/// Take all state out of `from`, whole, and put it into `to`, which goes on from there.
void move_state(const Replica& from, Replica& to);

std::vector<std::byte> bytes_of(double value);
void expect_same(const Contents& a, const Contents& b, const std::string& when);

}  // namespace zero::test
