/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ZERO_TORCH_HPP
#define ZERO_TORCH_HPP

// zero.hpp for libtorch modules. It replaces a torch::optim class:
//
//     libzero::TorchOptimizer optimizer(comm, *model, {}, {{"lr", 3e-4}});
//     ...
//     loss.backward();
//     optimizer.step();
//     optimizer.zero_grad();

#include <torch/nn/module.h>

#include <set>

#include "zero.hpp"

namespace libzero {

/// An optimizer that updates all parameters of a module in place. Checkpoints include the module's
/// buffers, except buffers of types that libzero does not support. Calls work as in Optimizer, and
/// use the gradients that the module's parameters have at the time of the call. get() returns the
/// handle for all other calls. On CUDA, `stream` is c10::cuda::getCurrentCUDAStream().stream().
class TorchOptimizer : private Optimizer {
 public:
  using Optimizer::get;
  using Optimizer::grad_get;
  using Optimizer::owned_ranges;
  using Optimizer::param_index;
  using Optimizer::param_wait;
  using Optimizer::rebalance;
  using Optimizer::result;
  using Optimizer::set;
  using Optimizer::set_state_scalar;
  using Optimizer::set_trainable;
  using Optimizer::share_params;
  using Optimizer::state_extra_get;
  using Optimizer::state_extra_list;
  using Optimizer::state_extra_remove;
  using Optimizer::state_extra_set;
  using Optimizer::state_gather;
  using Optimizer::state_get;
  using Optimizer::state_names;
  using Optimizer::state_scalar;
  using Optimizer::state_set;
  using Optimizer::stats;

  /// Copies rank 0's parameters and buffers to all ranks. If `memory` is ZERO_MEMORY_PER_RANK or
  /// ZERO_MEMORY_SHARED, the constructor first moves parameters to an arena of that kind, and
  /// gradients to a private arena of this rank, so that steps copy nothing. Throws
  /// std::invalid_argument if libzero cannot train a parameter in its current memory. Collective.
  TorchOptimizer(const Comm &comm, const torch::nn::Module &module, const Options &options = {},
                 const Settings &settings = {}, int32_t memory = 0, void *stream = nullptr)
      : Optimizer(comm, options) {
    std::vector<Param> params;
    std::set<const void *> seen;  // a tensor may have two names
    const auto is_new = [&](const auto &entry) {
      return seen.insert(entry.value().unsafeGetTensorImpl()).second;
    };
    for (const auto &entry : module.named_parameters()) {
      if (!is_new(entry)) continue;
      params.push_back(described<Param>(entry.key(), entry.value()));
      params.back().fields.flags = entry.value().requires_grad() ? 0 : ZERO_PARAM_FROZEN;
      tensors_.push_back(entry.value());
    }
    if (memory != 0) move(comm, options, memory, params);
    for (const Param &param : params) {
      names_.push_back(param.name);
      dtypes_.push_back(param.fields.dtype);
      registered_.push_back(param.fields.data);
    }
    add(params, settings);
    Optimizer::broadcast_params(0, stream);
    std::vector<Buffer> buffers;
    for (const auto &entry : module.named_buffers()) {
      if (!is_new(entry) || dtype_of(entry.value()) == 0) continue;
      buffers.push_back(described<Buffer>(entry.key(), entry.value()));
    }
    if (buffers.empty()) return;
    add_buffers(buffers);
    Optimizer::broadcast_buffers(0, stream);
  }

  /// Takes a step. A parameter that has no gradient on any rank is not updated. Autograd does not
  /// see the step, so call this between backward and the next forward. Returns false if all ranks
  /// skipped the update.
  bool step(int32_t reduce_flags = ZERO_REDUCE_MEAN, void *stream = nullptr) {
    follow();
    const bool given = reduced_ && (reduce_flags & ZERO_REDUCE_ACCUMULATE) == 0;
    const Gradients grads(given ? std::vector<torch::Tensor>() : tensors_);
    const bool made = Optimizer::step(grads.addresses, reduce_flags, stream);
    reduced_ = false;
    return made;
  }
  void reduce_grads(int32_t flags = ZERO_REDUCE_MEAN, void *stream = nullptr) {
    follow();
    Optimizer::reduce_grads(Gradients(tensors_).addresses, flags, stream);
    reduced_ = true;
  }
  /// Both clip functions reduce gradients first if they have not been reduced.
  double clip_grad_norm(double max_norm, double norm_type = 2,
                        const std::vector<int64_t> &params = {}, void *stream = nullptr) {
    if (!reduced_) reduce_grads(ZERO_REDUCE_MEAN, stream);
    return Optimizer::clip_grad_norm(max_norm, norm_type, params, stream);
  }
  void clip_grad_value(double max_value, void *stream = nullptr) {
    if (!reduced_) reduce_grads(ZERO_REDUCE_MEAN, stream);
    Optimizer::clip_grad_value(max_value, stream);
  }

  void drop_grads() {
    Optimizer::drop_grads();
    reduced_ = false;
  }

  /// Call this on every rank after other code, such as torch::load, has written parameters.
  void broadcast_params(int32_t root, void *stream = nullptr) {
    follow();
    Optimizer::broadcast_params(root, stream);
  }
  void broadcast_buffers(int32_t root, void *stream = nullptr) {
    Optimizer::broadcast_buffers(root, stream);
  }
  void save(const std::string &directory, int32_t flags = 0) {
    follow();
    Optimizer::save(directory, flags);
  }
  void load(const std::string &directory, int32_t flags = 0) {
    follow();
    Optimizer::load(directory, flags);
  }

  /// Sets gradients in an arena to zero and frees all other gradients.
  void zero_grad() {
    for (torch::Tensor &tensor : tensors_) {
      torch::Tensor &grad = tensor.mutable_grad();
      if (!places_.empty() && grad.defined()) {
        grad.detach_().zero_();
      } else {
        grad.reset();
      }
    }
  }

 private:
  /// The addresses of gradients, and the tensors that they belong to.
  struct Gradients {
    explicit Gradients(const std::vector<torch::Tensor> &tensors) {
      for (const torch::Tensor &tensor : tensors) {
        const torch::Tensor &grad = tensor.grad();
        if (grad.defined()) kept.push_back(grad.contiguous());
        addresses.push_back(grad.defined() ? kept.back().data_ptr() : nullptr);
      }
    }
    std::vector<torch::Tensor> kept;
    std::vector<void *> addresses;
  };

  /// Returns 0 for a type that libzero does not support.
  static int32_t dtype_of(const torch::Tensor &tensor) {
    switch (tensor.scalar_type()) {
      case torch::kFloat32:
        return ZERO_FLOAT32;
      case torch::kFloat64:
        return ZERO_FLOAT64;
      case torch::kInt32:
        return ZERO_INT32;
      case torch::kInt64:
        return ZERO_INT64;
      case torch::kBFloat16:
        return ZERO_BFLOAT16;
      case torch::kFloat16:
        return ZERO_FLOAT16;
      default:
        return 0;
    }
  }

  template <class Described>
  static Described described(const std::string &name, const torch::Tensor &tensor) {
    if (!tensor.is_contiguous()) {
      throw std::invalid_argument("libzero: " + name + " is not contiguous; make it so first");
    }
    if (dtype_of(tensor) == 0) {
      throw std::invalid_argument("libzero: " + name + " has a dtype that libzero lacks");
    }
    return Described(name, dtype_of(tensor), tensor.data_ptr(), tensor.sizes().vec());
  }

  /// Follows parameters whose storage has been replaced (set_data, torch::load). Parameters of an
  /// arena are copied back into the arena, because libzero may use the padding after each
  /// parameter.
  void follow() {
    bool moved = false;
    for (size_t i = 0; i < tensors_.size(); i++) {
      torch::Tensor &tensor = tensors_[i];
      if (tensor.data_ptr() == registered_[i]) continue;
      const Param now = described<Param>(names_[i], tensor);
      if (now.fields.dtype != dtypes_[i]) {
        throw std::invalid_argument("libzero: " + names_[i] +
                                    " got another dtype since it was registered");
      }
      if (places_.empty()) {
        registered_[i] = now.fields.data;
        moved = true;
      } else {
        places_[i].copy_(tensor.detach());
        tensor.set_data(places_[i]);
      }
    }
    if (moved) bind(registered_, {});
  }

  /// Moves the tensors and their gradients to arenas. An arena exists as long as any tensor in it.
  void move(const Comm &comm, const Options &options, int32_t memory, std::vector<Param> &params) {
    const Plan plan(params, comm.world(), options, &comm);
    const auto bytes = [&](int64_t size, int32_t kind) {
      return std::make_shared<Arena<std::byte>>(comm, static_cast<size_t>(size), kind);
    };
    const auto values = bytes(plan.arena_bytes, memory);
    const auto grads = bytes(plan.grad_arena_bytes, ZERO_MEMORY_PER_RANK);
    const auto view = [](const auto &arena, int64_t offset, const torch::Tensor &tensor) {
      return torch::from_blob(
          arena->data() + offset, tensor.sizes(), [arena](void *) {}, tensor.options());
    };
    for (size_t i = 0; i < params.size(); i++) {
      const torch::Tensor place = view(values, plan.offsets[i], tensors_[i]);
      if (memory != ZERO_MEMORY_SHARED || comm.rank() == 0) place.copy_(tensors_[i].detach());
      tensors_[i].set_data(place);
      places_.push_back(place);
      params[i].fields.data = place.data_ptr();
      params[i].fields.flags |= ZERO_PARAM_PADDED;
      if (!tensors_[i].requires_grad()) continue;
      tensors_[i].mutable_grad() = view(grads, plan.grad_offsets[i], tensors_[i]);
      params[i].fields.grad = tensors_[i].grad().data_ptr();
    }
  }

  std::vector<torch::Tensor> tensors_, places_;  // one per parameter; places_ only with arenas
  std::vector<std::string> names_;
  std::vector<int32_t> dtypes_;
  std::vector<void *> registered_;
  bool reduced_ = false;
};

}  // namespace libzero

#endif  // ZERO_TORCH_HPP
