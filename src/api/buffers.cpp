// SPDX-License-Identifier: Apache-2.0
// Tensors of the model that are not trained.
#include "api/commands.h"
#include "api/options.h"
#include "step/broadcast.h"
#include "step/enter.h"

namespace {

using namespace zero;
using namespace zero::api;

Result<Buffer> read_buffer(const zero_buffer* given) {
  const zero_buffer buffer = ZERO_TRY(read_struct(given));
  if (buffer.name == nullptr) return Status(ZERO_ERR_ARGUMENT, "a buffer's name is NULL");
  const auto bad = [&](const auto&... parts) {
    return Status(ZERO_ERR_ARGUMENT, text("buffer '", buffer.name, "': ", parts...));
  };
  const DType dtype = buffer.dtype == 0 ? DType::f32 : static_cast<DType>(buffer.dtype);
  if (size_of(dtype) == 0) return bad("dtype ", buffer.dtype, " is unknown");
  if (buffer.ndim < 0 || buffer.ndim > 16)
    return bad("ndim is ", buffer.ndim, "; 0 to 16 are allowed");
  if (buffer.ndim > 0 && buffer.shape == nullptr)
    return bad("ndim is ", buffer.ndim, " and shape is NULL");
  return Buffer{.name = buffer.name,
                .shape = {buffer.shape, buffer.shape + buffer.ndim},
                .dtype = dtype,
                .data = static_cast<std::byte*>(buffer.data)};
}

}  // namespace

zero_status zero_register_buffers(zero_optim* optim, const zero_buffer* buffers, size_t count) {
  return on_optim(optim, [&](Optimizer& found) -> Status {
    ZERO_TRY(found.check_open());
    if (buffers == nullptr || count == 0) return Status(ZERO_ERR_ARGUMENT, "no buffers are given");
    return found.register_buffers(
        ZERO_TRY(read_array<Buffer>(buffers, count, "buffer", read_buffer)));
  });
}

zero_status zero_broadcast_buffers(zero_optim* optim, int32_t root, void* stream) {
  return command(optim, Operation::broadcast_buffers, {.rank = root}, stream);
}
