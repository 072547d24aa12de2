// SPDX-License-Identifier: Apache-2.0
// Registration of buffers: checked like parameters, all or nothing.
#include "base/text.h"
#include "optim/optimizer.h"
#include "optim/tensor_checks.h"

namespace zero {

Status Optimizer::add_buffer(const Buffer& added) {
  Buffer buffer = added;
  const auto bad = [&](const char* why) { return bad_tensor("buffer", buffer.name, why); };
  buffer.count = ZERO_TRY(count_elements("buffer", buffer.name, buffer.shape));
  if (buffer.count > 0 && buffer.data == nullptr) return bad("has no memory");
  const auto name = [&] { return text("buffer '", buffer.name, "'"); };
  ZERO_TRY(check_aligned(buffer.data, buffer.dtype, name));
  if (index_.count(buffer.name) != 0)
    return Status(ZERO_ERR_ARGUMENT, text("buffer '", buffer.name, "' is a parameter already"));
  const auto begin = reinterpret_cast<uintptr_t>(buffer.data);
  const uintptr_t end = begin + buffer.bytes();
  if (end < begin) return bad("has memory that wraps around");
  ZERO_TRY(check_tensor_memory(*comm, name, buffer.data, buffer.bytes()));
  if (!buffer_names_.insert(buffer.name).second)
    return Status(ZERO_ERR_ARGUMENT, text("buffer '", buffer.name, "' is registered twice"));
  buffers.push_back(std::move(buffer));
  if (begin == end) return Status();
  return occupy(begin, {end, static_cast<int64_t>(buffers.size()) - 1, Occupied::buffer});
}

/// Take back what was added from `first` on.
void Optimizer::forget_buffers(size_t first) {
  std::erase_if(occupied_, [first](const auto& one) {
    return one.second.kind == Occupied::buffer && static_cast<size_t>(one.second.index) >= first;
  });
  for (size_t i = first; i < buffers.size(); i++) buffer_names_.erase(buffers[i].name);
  buffers.resize(first);
}

Status Optimizer::register_buffers(std::span<const Buffer> added) {
  // However this ends early, out of memory included, what was added is taken back.
  struct Undo {
    Optimizer* optim;
    const size_t first;
    ~Undo() {
      if (optim != nullptr) optim->forget_buffers(first);
    }
  } undo{this, buffers.size()};
  buffers.reserve(buffers.size() + added.size());  // so that no name is noted without its buffer
  for (const Buffer& buffer : added) ZERO_TRY(add_buffer(buffer));
  hold_arenas(params.size(), undo.first);
  undo.optim = nullptr;
  addresses++;
  return Status();
}

}  // namespace zero
