/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ZERO_HPP
#define ZERO_HPP

// zero.h for C++17 and later, as a header-only library. Handles free themselves, errors are thrown
// as exceptions, and a range replaces a pointer and a count.
//
//     libzero::Comm comm = libzero::Comm::from_env();
//     libzero::Optimizer optimizer(comm, {}, {{"lr", 3e-4}});
//     optimizer.add({{"weight", weight, {768, 768}, grad}});
//     optimizer.broadcast_params(0);
//     for (int step = 0; step < 1000; step++) { forward_backward(); optimizer.step(); }
//     optimizer.save("run/step-1000");
//
// Each function makes the zero.h call of the same name, and keeps the promises of that call. A
// range is any object that std::data and std::size accept, such as a vector, an array or a span.
// For calls that are not wrapped, get() returns the handle.

#if __cplusplus < 201703L
#error "zero.hpp needs C++17 or later, for example with -std=c++17; zero.h needs C++11"
#else

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "zero.h"

namespace libzero {

/// The failure of a call. what() returns the text of zero_last_error(), which gives the call, the
/// cause and the remedy.
class Error : public std::runtime_error {
 public:
  explicit Error(zero_status status) : std::runtime_error(zero_last_error()), status_(status) {}

  zero_status status() const noexcept { return status_; }

 private:
  zero_status status_;
};

/// Throws Error if a call has failed. Otherwise returns its status, ZERO_OK or ZERO_SKIPPED.
inline zero_status check(zero_status status) {
  if (status < 0) throw Error(status);
  return status;
}

/// A struct of zero.h in which all fields have their defaults.
template <class Struct>
struct Defaults : Struct {
  Defaults() noexcept { ZERO_INIT(static_cast<Struct &>(*this)); }
};
using CommOptions = Defaults<zero_comm_options>;
using Options = Defaults<zero_options>;
using GroupOptions = Defaults<zero_group_options>;

/// The dtype of a C++ type, for example ZERO_FLOAT32 for float. Specialize this template for your
/// own 16-bit types.
template <class T>
struct Dtype;
template <>
struct Dtype<float> : std::integral_constant<int32_t, ZERO_FLOAT32> {};
template <>
struct Dtype<double> : std::integral_constant<int32_t, ZERO_FLOAT64> {};
template <>
struct Dtype<int32_t> : std::integral_constant<int32_t, ZERO_INT32> {};
template <>
struct Dtype<int64_t> : std::integral_constant<int32_t, ZERO_INT64> {};

/// Settings by name, for example {{"lr", 3e-4}, {"weight_decay", 0.1}}.
class Settings {
 public:
  Settings() = default;
  Settings(std::initializer_list<std::pair<const char *, double>> settings) {
    for (const auto &[name, value] : settings) set(name, value);
  }

  void set(std::string name, double value) {
    names_.push_back(std::move(name));
    values_.push_back(value);
  }

  /// Adds these settings to `options`, and invokes `call` with the result.
  template <class Struct, class Call>
  void with(Struct options, Call call) const {
    std::vector<const char *> names;
    for (const std::string &name : names_) names.push_back(name.c_str());
    if (!names.empty()) {
      options.names = names.data();
      options.values = values_.data();
      options.setting_count = names.size();
    }
    call(options);
  }

 private:
  std::vector<std::string> names_;
  std::vector<double> values_;
};

/// A tensor to register. It owns its name and shape. `fields` holds its other properties.
template <class Fields>
struct Tensor {
  template <class T>
  Tensor(std::string called, T *data, std::vector<int64_t> dimensions)
      : Tensor(std::move(called), Dtype<T>::value, data, std::move(dimensions)) {}
  Tensor(std::string called, int32_t dtype, void *data, std::vector<int64_t> dimensions)
      : name(std::move(called)), shape(std::move(dimensions)) {
    fields.dtype = dtype;
    fields.data = data;
  }

  std::string name;
  std::vector<int64_t> shape;
  Defaults<Fields> fields;
};
using Buffer = Tensor<zero_buffer>;

struct Param : Tensor<zero_param> {
  using Tensor::Tensor;
  template <class T>
  Param(std::string called, T *data, std::vector<int64_t> dimensions, T *grad)
      : Tensor(std::move(called), data, std::move(dimensions)) {
    fields.grad = grad;
  }
};

namespace detail {

template <auto release>
struct Release {
  template <class Handle>
  void operator()(Handle *handle) const noexcept {
    release(handle);
  }
};

template <class Handle, class Call, class... Arguments>
Handle *made(Call call, Arguments... arguments) {
  Handle *out = nullptr;
  check(call(&out, arguments...));
  return out;
}

/// Returns the zero.h structs of these tensors. The structs borrow the names and shapes of the
/// tensors.
template <class Struct, class Described>
std::vector<Struct> views(const std::vector<Described> &tensors) {
  std::vector<Struct> structs;
  for (const Described &tensor : tensors) {
    Struct fields = tensor.fields;
    fields.name = tensor.name.c_str();
    fields.shape = tensor.shape.data();
    fields.ndim = static_cast<int32_t>(tensor.shape.size());
    structs.push_back(fields);
  }
  return structs;
}

/// Returns a null pointer for an empty list, as zero.h requires.
template <class T>
const T *pointer(const std::vector<T> &values) noexcept {
  return values.empty() ? nullptr : values.data();
}

template <class Range>
using Element =
    std::remove_cv_t<std::remove_pointer_t<decltype(std::data(std::declval<Range &>()))>>;

}  // namespace detail

/// One rank's handle to a group of ranks.
class Comm {
 public:
  static Comm solo(const CommOptions &options = {}) {
    return Comm(detail::made<zero_comm>(zero_comm_create_solo, &options));
  }
  static Comm local(const char *name, int32_t rank, int32_t world,
                    const CommOptions &options = {}) {
    return Comm(detail::made<zero_comm>(zero_comm_create_local, name, rank, world, &options));
  }
  static Comm from_env(const CommOptions &options = {}) {
    return Comm(detail::made<zero_comm>(zero_comm_create_env, &options));
  }
  static Comm user(const zero_comm_functions &functions, void *ctx, int32_t rank, int32_t world,
                   const CommOptions &options = {}) {
    return Comm(
        detail::made<zero_comm>(zero_comm_create_user, &functions, ctx, rank, world, &options));
  }
  static Comm nccl(const void *id, int32_t rank, int32_t world, const CommOptions &options = {}) {
    return Comm(detail::made<zero_comm>(zero_comm_create_nccl, id, rank, world, &options));
  }
  static Comm wrap_nccl(void *nccl_comm, const CommOptions &options = {}) {
    return Comm(detail::made<zero_comm>(zero_comm_wrap_nccl, nccl_comm, &options));
  }

  static Comm mpi(const void *mpi_comm, size_t mpi_comm_bytes, const CommOptions &options = {}) {
    return Comm(detail::made<zero_comm>(zero_comm_create_mpi, mpi_comm, mpi_comm_bytes, &options));
  }

  /// Takes ownership of a comm that a zero.h call created.
  explicit Comm(zero_comm *comm) noexcept : comm_(comm) {}

  /// Returns std::nullopt for a negative color.
  std::optional<Comm> split(int32_t color, int32_t key) const {
    zero_comm *out = detail::made<zero_comm>(zero_comm_split, get(), color, key);
    return out == nullptr ? std::nullopt : std::optional<Comm>(Comm(out));
  }

  int32_t rank() const noexcept { return zero_comm_rank(get()); }
  int32_t world() const noexcept { return zero_comm_world(get()); }
  void barrier() const { check(zero_comm_barrier(get())); }
  template <class Range>
  void broadcast(Range &&values, int32_t root) const {
    static_assert(std::is_trivially_copyable_v<detail::Element<Range>>, "bytes are copied");
    const size_t bytes = std::size(values) * sizeof(*std::data(values));
    check(zero_comm_broadcast(get(), std::data(values), bytes, root));
  }
  template <class Range>
  void all_reduce(Range &&values, int32_t operation = ZERO_SUM) const {
    check(zero_comm_all_reduce(get(), std::data(values), std::size(values),
                               Dtype<detail::Element<Range>>::value, operation));
  }
  void abort(const char *reason = nullptr) const { check(zero_comm_abort(get(), reason)); }
  void trace_start(const char *directory) const { check(zero_trace_start(get(), directory)); }
  void trace_stop() const { check(zero_trace_stop(get())); }
  zero_failure failure() const {
    Defaults<zero_failure> failure;
    check(zero_comm_failure(get(), &failure));
    return failure;
  }

  zero_comm *get() const noexcept { return comm_.get(); }

 private:
  std::unique_ptr<zero_comm, detail::Release<zero_comm_free>> comm_;
};

/// Memory whose contents libzero reduces and updates in place. It is a range of elements, which are
/// zero at first.
template <class T>
class Arena {
 public:
  /// `kind` is ZERO_MEMORY_SHARED or ZERO_MEMORY_PER_RANK. Collective.
  Arena(const Comm &comm, size_t elements, int32_t kind) : size_(elements) {
    if (elements > PTRDIFF_MAX / sizeof(T)) throw std::length_error("libzero::Arena: too large");
    void *memory = nullptr;
    check(zero_arena_alloc(comm.get(), elements * sizeof(T), kind, &memory));
    memory_.reset(memory);
  }

  T *data() const noexcept { return static_cast<T *>(memory_.get()); }
  size_t size() const noexcept { return memory_ == nullptr ? 0 : size_; }
  T *begin() const noexcept { return data(); }
  T *end() const noexcept { return data() + size(); }
  T &operator[](size_t index) const noexcept { return data()[index]; }

 private:
  std::unique_ptr<void, detail::Release<zero_arena_free>> memory_;
  size_t size_;
};

/// Elements `first` to first + count - 1 of parameter number `param`.
struct OwnedRange {
  int64_t param, first, count;
};

/// The sharded optimizer state of one model on one rank. Streams belong to the comm's device.
class Optimizer {
 public:
  explicit Optimizer(const Comm &comm, const Options &options = {}, const Settings &settings = {}) {
    rank_ = comm.rank();
    settings.with<zero_options>(options, [&](const zero_options &with) {
      optim_.reset(detail::made<zero_optim>(zero_create, comm.get(), &with));
    });
  }

  /// Registers parameters as one group and returns the number of the group.
  int32_t add(const std::vector<Param> &params, const Settings &settings = {},
              const GroupOptions &options = {}) {
    int32_t group = 0;
    const std::vector<zero_param> views = detail::views<zero_param>(params);
    settings.with<zero_group_options>(options, [&](const auto &with) {
      check(zero_register_params(get(), &with, views.data(), views.size(), &group));
    });
    return group;
  }
  void add_buffers(const std::vector<Buffer> &buffers) {
    const std::vector<zero_buffer> views = detail::views<zero_buffer>(buffers);
    check(zero_register_buffers(get(), views.data(), views.size()));
  }
  /// An empty list keeps the old addresses.
  void bind(const std::vector<void *> &data, const std::vector<void *> &grads) {
    if (!data.empty() && !grads.empty() && data.size() != grads.size()) {
      throw std::invalid_argument("libzero::Optimizer::bind: " + std::to_string(data.size()) +
                                  " parameters, and " + std::to_string(grads.size()) +
                                  " gradients");
    }
    check(zero_bind_params(get(), detail::pointer(data), detail::pointer(grads),
                           std::max(data.size(), grads.size())));
  }
  void seal() { check(zero_seal(get())); }

  void set(const char *name, double value, int32_t group = ZERO_ALL_GROUPS) {
    check(zero_group_set(get(), group, name, value));
  }
  double get(const char *name, int32_t group = ZERO_ALL_GROUPS) const {
    double value = 0;
    check(zero_group_get(get(), group, name, &value));
    return value;
  }
  void set_trainable(int64_t param, bool trainable) {
    check(zero_param_set_trainable(get(), param, trainable ? 1 : 0));
  }
  /// With an empty list, libzero assigns new owners, or keeps the owners of a manual partition.
  void rebalance(const std::vector<int32_t> &owners = {}, void *stream = nullptr) {
    check(zero_rebalance(get(), detail::pointer(owners), owners.size(), stream));
  }

  void broadcast_params(int32_t root, void *stream = nullptr) {
    check(zero_broadcast_params(get(), root, stream));
  }
  void broadcast_buffers(int32_t root, void *stream = nullptr) {
    check(zero_broadcast_buffers(get(), root, stream));
  }
  void grad_ready(int64_t param, void *grad, void *stream = nullptr) {
    check(zero_grad_ready(get(), param, grad, stream));
  }
  /// Here and below, an empty list of gradients selects the registered gradients.
  void reduce_grads(const std::vector<void *> &grads = {}, int32_t flags = ZERO_REDUCE_MEAN,
                    void *stream = nullptr) {
    check(zero_reduce_grads(get(), detail::pointer(grads), grads.size(), flags, stream));
  }
  void clip_grad_value(double max_value, void *stream = nullptr) {
    check(zero_clip_grad_value(get(), max_value, stream));
  }
  /// Returns the norm before clipping. An empty list of parameters selects all parameters.
  double clip_grad_norm(double max_norm, double norm_type = 2,
                        const std::vector<int64_t> &params = {}, void *stream = nullptr) {
    double norm = 0;
    check(zero_clip_grad_norm(get(), detail::pointer(params), params.size(), max_norm, norm_type,
                              &norm, stream));
    return norm;
  }
  /// Returns false if all ranks agreed to skip the update.
  bool step(const std::vector<void *> &grads = {}, int32_t reduce_flags = ZERO_REDUCE_MEAN,
            void *stream = nullptr) {
    Defaults<zero_step_options> with;
    with.grads = detail::pointer(grads);
    with.grad_count = grads.size();
    with.reduce_flags = reduce_flags;
    with.stream = stream;
    return check(zero_step(get(), &with)) == ZERO_OK;
  }
  void step_begin(int32_t reduce_flags = ZERO_REDUCE_MEAN) {
    Defaults<zero_step_options> with;
    with.reduce_flags = reduce_flags;
    check(zero_step_begin(get(), &with));
  }
  /// The returned `status` may be the error from the latest step. This error is not thrown again.
  zero_result result() const {
    Defaults<zero_result> result;
    const zero_status status = zero_step_result(get(), &result);
    if (status != result.status) check(status);
    return result;
  }
  void param_wait(int64_t param = ZERO_ALL_PARAMS, void *stream = nullptr) const {
    check(zero_param_wait(get(), param, stream));
  }
  void drop_grads() { check(zero_drop_grads(get())); }
  void share_params(int32_t flags = 0, void *stream = nullptr) {
    check(zero_share_params(get(), flags, stream));
  }
  /// Returns the highest-numbered of the ranks that joined last.
  int32_t join(const std::vector<void *> &grads = {}, void *stream = nullptr) {
    Defaults<zero_join_options> with;
    with.grads = detail::pointer(grads);
    with.grad_count = grads.size();
    with.stream = stream;
    int32_t last_rank = 0;
    check(zero_join(get(), &with, &last_rank));
    return last_rank;
  }

  void save(const std::string &directory, int32_t flags = 0) {
    Defaults<zero_save_options> with;
    with.flags = flags;
    check(zero_state_save(get(), directory.c_str(), &with));
  }
  void save_begin(const std::string &directory, int32_t flags = 0) {
    Defaults<zero_save_options> with;
    with.flags = flags;
    check(zero_state_save_begin(get(), directory.c_str(), &with));
  }
  bool save_ended() const {
    int32_t done = 0;
    check(zero_state_save_poll(get(), &done));
    return done != 0;
  }
  void save_wait() { check(zero_state_save_wait(get())); }
  void load(const std::string &directory, int32_t flags = 0) {
    Defaults<zero_load_options> with;
    with.flags = flags;
    check(zero_state_load(get(), directory.c_str(), &with));
  }

  void state_extra_set(const std::string &name, const std::string &bytes) {
    check(zero_state_extra_set(get(), name.c_str(), bytes.data(), bytes.size()));
  }
  void state_extra_remove(const std::string &name) {
    check(zero_state_extra_set(get(), name.c_str(), nullptr, 0));
  }
  std::string state_extra_get(int32_t rank, const std::string &name) const {
    size_t count = 0;
    check(zero_state_extra_get(get(), rank, name.c_str(), nullptr, 0, &count));
    std::string bytes(count, '\0');
    check(zero_state_extra_get(get(), rank, name.c_str(), &bytes[0], count, &count));
    return bytes;
  }
  /// Returns pairs of a rank and a name.
  std::vector<std::pair<int32_t, std::string>> state_extra_list() const {
    size_t count = 0;
    check(zero_state_extra_list(get(), nullptr, nullptr, 0, &count));
    std::vector<int32_t> ranks(count);
    std::vector<const char *> names(count);
    check(zero_state_extra_list(get(), ranks.data(), names.data(), count, &count));
    std::vector<std::pair<int32_t, std::string>> extras;
    for (size_t i = 0; i < count; i++) extras.emplace_back(ranks[i], names[i]);
    return extras;
  }

  /// The state and the reduced gradient of a parameter are double for ZERO_FLOAT64, and float for
  /// other floating-point types. Throws std::invalid_argument if T is a different type.
  template <class T = float>
  std::vector<T> grad_get(int64_t param, int64_t first, int64_t count) const {
    return elements<T>(
        param, count, [&](T *values) { return zero_grad_get(get(), param, first, count, values); });
  }
  std::vector<std::string> state_names(int64_t param) const {
    size_t count = 0;
    check(zero_state_info(get(), param, nullptr, nullptr, 0, &count));
    std::vector<const char *> names(count);
    check(zero_state_info(get(), param, nullptr, names.data(), count, &count));
    return {names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  /// Here and below, a `name` of nullptr selects the updated values.
  template <class T = float>
  std::vector<T> state_get(int64_t param, const char *name, int64_t first, int64_t count) const {
    return elements<T>(param, count, [&](T *values) {
      return zero_state_get(get(), param, name, first, count, values);
    });
  }
  template <class T>
  void state_set(int64_t param, const char *name, int64_t first, const std::vector<T> &values) {
    require_dtype<T>(param);
    check(zero_state_set(get(), param, name, first, static_cast<int64_t>(values.size()),
                         values.data()));
  }
  /// Returns all `count` elements on the ranks that `to` selects, and an empty vector on all other
  /// ranks.
  template <class T = float>
  std::vector<T> state_gather(int64_t param, const char *name, size_t count,
                              int32_t to = ZERO_ALL_RANKS) {
    require_dtype<T>(param);
    std::vector<T> values(to == ZERO_ALL_RANKS || to == rank_ ? count : 0);
    check(zero_state_gather(get(), param, name, to, values.data(), values.size()));
    return values;
  }
  /// `name` is "step" or "mu_product".
  double state_scalar(int64_t param, const char *name) const {
    double value = 0;
    check(zero_state_get(get(), param, name, 0, 1, &value));
    return value;
  }
  void set_state_scalar(int64_t param, const char *name, double value) {
    check(zero_state_set(get(), param, name, 0, 1, &value));
  }

  int64_t param_index(const char *name) const {
    int64_t index = 0;
    check(zero_param_index(get(), name, &index));
    return index;
  }
  std::vector<OwnedRange> owned_ranges(int32_t rank) const {
    size_t count = 0;
    check(zero_owned_ranges(get(), rank, nullptr, 0, &count));
    std::vector<int64_t> triples(3 * count);
    check(zero_owned_ranges(get(), rank, triples.data(), count, &count));
    std::vector<OwnedRange> ranges;
    for (size_t i = 0; i < triples.size(); i += 3) {
      ranges.push_back({triples[i], triples[i + 1], triples[i + 2]});
    }
    return ranges;
  }
  zero_statistics stats() const {
    Defaults<zero_statistics> statistics;
    check(zero_stats(get(), &statistics));
    return statistics;
  }

  zero_optim *get() const noexcept { return optim_.get(); }

 private:
  template <class T>
  void require_dtype(int64_t param) const {
    int32_t dtype = 0;
    size_t count = 0;
    check(zero_state_info(get(), param, &dtype, nullptr, 0, &count));
    if (dtype == Dtype<T>::value) return;
    throw std::invalid_argument("libzero::Optimizer: parameter " + std::to_string(param) +
                                " has elements of dtype " + std::to_string(dtype) + ", not " +
                                std::to_string(Dtype<T>::value));
  }
  template <class T, class Fill>
  std::vector<T> elements(int64_t param, int64_t count, Fill fill) const {
    require_dtype<T>(param);
    std::vector<T> values(static_cast<size_t>(std::max<int64_t>(count, 0)));
    check(fill(values.data()));
    return values;
  }

  std::unique_ptr<zero_optim, detail::Release<zero_free>> optim_;
  int32_t rank_ = 0;
};

/// Returns the complete checkpoints in a folder, newest first.
inline std::vector<zero_checkpoint> list_checkpoints(const std::string &folder) {
  std::vector<zero_checkpoint> found;
  for (size_t count = 0;; found.assign(count, Defaults<zero_checkpoint>())) {
    check(zero_state_list(folder.c_str(), found.data(), found.size(), &count));
    if (count <= found.size()) {
      found.resize(count);
      return found;
    }
  }
}

/// Returns the number of deleted checkpoints.
inline size_t prune_checkpoints(const std::string &folder, int64_t keep_last,
                                int64_t keep_every = 0) {
  size_t deleted = 0;
  check(zero_state_prune(folder.c_str(), keep_last, keep_every, &deleted));
  return deleted;
}

/// A division of parameters over `world` ranks, and a memory layout that can be sent without
/// packing.
struct Plan {
  Plan(const std::vector<Param> &params, int32_t world, const Options &options = {},
       const Comm *comm = nullptr)
      : offsets(params.size()),
        grad_offsets(params.size()),
        owners(params.size()),
        elements(static_cast<size_t>(world < 0 ? 0 : world)) {
    const std::vector<zero_param> views = detail::views<zero_param>(params);
    Defaults<zero_plan> plan;
    plan.offsets = offsets.data();
    plan.grad_offsets = grad_offsets.data();
    plan.owners = owners.data();
    plan.elements = elements.data();
    plan.comm = comm == nullptr ? nullptr : comm->get();
    check(zero_partition_plan(views.data(), views.size(), world, &options, &plan));
    arena_bytes = plan.arena_bytes;
    grad_arena_bytes = plan.grad_arena_bytes;
    state_bytes = plan.state_bytes;
  }

  std::vector<int64_t> offsets, grad_offsets;  // bytes, one for each parameter
  std::vector<int32_t> owners;                 // one for each parameter, or ZERO_OWNER_SPLIT
  std::vector<int64_t> elements;               // numbers of owned elements, one for each rank
  int64_t arena_bytes = 0, grad_arena_bytes = 0;
  int64_t state_bytes = 0;  // of the busiest rank
};

}  // namespace libzero

#endif  // C++17
#endif  // ZERO_HPP
