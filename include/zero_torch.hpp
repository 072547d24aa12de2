/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ZERO_TORCH_HPP
#define ZERO_TORCH_HPP

// zero.hpp for modules of libtorch, in place of a torch::optim class:
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

/// An optimizer of all parameters of a module, which are updated where they are. Its buffers are in
/// checkpoints.
class TorchOptimizer : public Optimizer {
 public:
  /// Gives rank 0's parameters and buffers to all ranks. A `memory` of ZERO_MEMORY_PER_RANK or
  /// ZERO_MEMORY_SHARED first moves parameters to an arena of that kind, and gradients to one of
  /// this rank, where steps copy nothing. std::invalid_argument for a tensor that libzero cannot
  /// train where it lies. Collective.
  TorchOptimizer(const Comm &comm, const torch::nn::Module &module, const Options &options = {},
                 const Settings &settings = {}, int32_t memory = 0)
      : Optimizer(comm, options) {
    std::vector<Param> params;
    std::set<const void *> seen;  // a tensor may have two names
    for (const auto &entry : module.named_parameters()) {
      if (!seen.insert(entry.value().unsafeGetTensorImpl()).second) continue;
      params.push_back(described<Param>(entry.key(), entry.value()));
      params.back().fields.flags = entry.value().requires_grad() ? 0 : ZERO_PARAM_FROZEN;
      tensors_.push_back(entry.value());
    }
    if (memory != 0) move(comm, options, memory, params);
    add(params, settings);
    std::vector<Buffer> buffers;
    for (const auto &entry : module.named_buffers()) {
      buffers.push_back(described<Buffer>(entry.key(), entry.value()));
    }
    broadcast_params(0);
    if (buffers.empty()) return;
    add_buffers(buffers);
    broadcast_buffers(0);
  }

  /// A step by the gradients that the module's parameters have now; one that has none on any rank
  /// is not updated. On CUDA `stream` is c10::cuda::getCurrentCUDAStream().stream(). Autograd does
  /// not see it, so make it between backward and the next forward. False if all ranks skipped it.
  bool step(int32_t reduce_flags = ZERO_REDUCE_MEAN, void *stream = nullptr) {
    std::vector<torch::Tensor> kept;
    std::vector<void *> grads;
    for (const torch::Tensor &tensor : tensors_) {
      const torch::Tensor &grad = tensor.grad();
      if (grad.defined()) kept.push_back(grad.contiguous());
      grads.push_back(grad.defined() ? kept.back().data_ptr() : nullptr);
    }
    return Optimizer::step(grads, reduce_flags, stream);
  }

  /// Gradients that have a place in an arena become zeros there, others are freed.
  void zero_grad() {
    for (torch::Tensor &tensor : tensors_) {
      torch::Tensor &grad = tensor.mutable_grad();
      if (in_arenas_ && grad.defined()) {
        grad.detach_().zero_();
      } else {
        grad.reset();
      }
    }
  }

 private:
  static int32_t dtype_of(const std::string &name, const torch::Tensor &tensor) {
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
        throw std::invalid_argument("libzero: " + name + " has a dtype that libzero lacks");
    }
  }

  template <class Described>
  static Described described(const std::string &name, const torch::Tensor &tensor) {
    if (!tensor.is_contiguous()) {
      throw std::invalid_argument("libzero: " + name + " is not contiguous; make it so first");
    }
    return Described(name, dtype_of(name, tensor), tensor.data_ptr(), tensor.sizes().vec());
  }

  /// Moves the tensors and their gradients to arenas, which live as long as a tensor in them.
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
      params[i].fields.data = place.data_ptr();
      params[i].fields.flags |= ZERO_PARAM_PADDED;
      if (!tensors_[i].requires_grad()) continue;
      tensors_[i].mutable_grad() = view(grads, plan.grad_offsets[i], tensors_[i]);
      params[i].fields.grad = tensors_[i].grad().data_ptr();
    }
    in_arenas_ = true;
  }

  std::vector<torch::Tensor> tensors_;
  bool in_arenas_ = false;
};

}  // namespace libzero

#endif  // ZERO_TORCH_HPP
