// SPDX-License-Identifier: Apache-2.0
#include "optim/tensor_checks.h"

#include "base/checked.h"
#include "base/refusals.h"
#include "comm/arena.h"
#include "device/memory.h"

namespace zero {
namespace {

constexpr size_t kMaxNameBytes = 4096;
constexpr size_t kMaxDimensions = 16;

}  // namespace

Status bad_tensor(std::string_view kind, std::string_view name, const char* why) {
  std::string shown(name.substr(0, 60));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7F) c = '?';
  }
  return bad_argument(kind, " name '", shown, "' ", why);
}

Result<int64_t> count_elements(std::string_view kind, std::string_view name,
                               std::span<const int64_t> shape) {
  const auto bad = [&](const char* why) { return bad_tensor(kind, name, why); };
  if (name.empty()) return bad("is empty");
  if (name.size() > kMaxNameBytes) return bad("is longer than 4096 bytes");
  if (!is_utf8(name)) return bad("is not UTF-8");
  if (shape.size() > kMaxDimensions) return bad("has more than 16 dimensions");
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0) return bad("has a negative dimension");
    const auto product = checked_multiply(count, size);
    if (!product || *product > INT64_MAX / 64) return bad("has too many elements");
    count = *product;
  }
  return count;
}

void append_text(std::string& out, const TensorName& of) {
  out += text(of.kind, " '", of.name, "'");
}

Status check_aligned(const void* memory, DType dtype, const TensorName& what) {
  if (reinterpret_cast<uintptr_t>(memory) % size_of(dtype) == 0) return Status();
  return bad_argument(what, " is not aligned to its elements, ", dtype_name(dtype), " of ",
                      size_of(dtype), " bytes");
}

Status check_tensor_memory(const Comm& comm, const TensorName& what, const void* memory,
                           size_t bytes) {
  if (memory == nullptr || bytes == 0) return Status();
  ZERO_TRY(check_memory(comm.device().get(), memory, bytes, [&] { return text(what); }));
  bool whole = false;
  const std::shared_ptr<Arena> arena = find_arena(memory, bytes, &comm, &whole);
  if (arena == nullptr || whole) return Status();
  const auto* const begin = static_cast<const std::byte*>(memory);
  if (begin < arena->data())
    return bad_argument(what, " needs ", bytes,
                        " bytes: it begins before an arena and ends inside it");
  const auto offset = static_cast<size_t>(begin - arena->data());
  return bad_argument(what, " needs ", bytes,
                      " bytes and ends beyond its arena: it begins at byte ", offset, ", where ",
                      arena->bytes() - offset, " bytes are left");
}

Status check_not_swapped(const Comm& comm, std::string_view param, const void* data,
                         const void* grad) {
  if (data == nullptr || grad == nullptr || comm.world() == 1) return Status();
  const std::shared_ptr<Arena> of_grad = find_arena(grad, 1, &comm, nullptr);
  if (of_grad == nullptr || !of_grad->one_copy()) return Status();
  const std::shared_ptr<Arena> of_data = find_arena(data, 1, &comm, nullptr);
  if (of_data == nullptr || of_data->kind() != ZERO_MEMORY_PER_RANK) return Status();
  return bad_argument(
      "parameter '", param,
      "' is in ZERO_MEMORY_PER_RANK memory and its gradient in ZERO_MEMORY_SHARED "
      "memory: data and grad are swapped, because each rank has its own gradient and "
      "all ranks share the parameter");
}

}  // namespace zero
