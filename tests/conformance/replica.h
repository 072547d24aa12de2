// SPDX-License-Identifier: Apache-2.0
// One rank's copy of a model with many dtypes and made-up contents, on the host or on a device
// whose memory the host need not reach. Training, queries and changes are bitwise exact.
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
  int32_t grad_dtype = 0;     // 0: the same
  bool trains = true;         // otherwise it never has a gradient
  bool own_settings = false;  // has its own lr and weight decay
};

/// Returns tensors that are cut and whole, of every dtype, one without elements, and some that
/// never have a gradient.
std::vector<Tensor> small_tensors();

/// Returns values that every dtype represents exactly, so that values are never rounded before a
/// step changes them.
std::vector<double> made_up(size_t tensor, size_t count, int turn);

/// The options of an optimizer whose state is tested.
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
  /// Uses the comm's device. With `own_stream`, all work is queued on a stream of its own.
  template <class Seat>
  Replica(Seat comm, const zero_options& options, const Settings& settings = {},
          bool own_stream = false)
      : Optim(comm, options, settings), device_(device_of(Optim::comm())) {
    if (own_stream && device_ != nullptr) stream_ = make_stream(device_).value();
  }
  ~Replica() { free(); }

  /// Adds a group.
  void add_tensors(const std::vector<Tensor>& group);

  const std::shared_ptr<Device>& device() const { return device_; }
  StreamHandle stream() const { return stream_.handle(); }
  void finish() const { test::finish(device_, stream()); }

  /// Writes new gradients, different on every rank. Returns their addresses, null for tensors that
  /// are not trained.
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
  size_t floating() const;  // this many, at the front
  const Memory& data(size_t t) const { return data_[t]; }
  const Memory& grad(size_t t) const { return grads_[t]; }
  std::vector<std::byte> values(size_t t) const { return data_[t].read(stream()); }
  void put(const Memory& to, const std::vector<std::byte>& bytes) const;
  void set_data(size_t t, int turn) { put(data_[t], encoded(t, tensors_[t].dtype, turn)); }

  int32_t state_dtype(size_t t) const;
  /// Gets a tensor of the state with zero_state_get. A null name means the values that are updated.
  std::vector<std::byte> get(size_t t, const char* name) const;
  /// Returns nothing if this rank receives nothing.
  std::vector<std::byte> gather(size_t t, const char* name, int32_t to = ZERO_ALL_RANKS) const;
  void set_state(size_t t, const char* name, const std::vector<std::byte>& values);
  std::vector<std::byte> gradient(size_t t) const;

  /// Returns everything that training continues from, by name. It is the same on every rank.
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

/// Copies the whole state of `from` to `to`, which continues from there.
void move_state(const Replica& from, Replica& to);

std::vector<std::byte> bytes_of(double value);
void expect_same(const Contents& a, const Contents& b, const std::string& when);

}  // namespace zero::test
