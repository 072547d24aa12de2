// SPDX-License-Identifier: Apache-2.0
// Implements the calls about the version, errors and the log.
#include <algorithm>
#include <exception>
#include <new>

#include "api/guard.h"
#include "base/log.h"
#include "device/device.h"
#include "kernels/kernels.h"

namespace zero::api {
namespace {

// This has no destructor, because a thread may end after the library's statics are gone.
thread_local char last_error[4096] = "";

std::string isa_text() {
  std::string words = kernels().name;
  for (const Isa isa : compiled_isas())
    words += text(isa == Isa::scalar ? " of " : ", ", kernel_table(isa).name);
  return words;
}

}  // namespace

void remember(std::string_view call, std::string_view text) noexcept {
  char* const end = last_error + sizeof last_error - 1;
  char* at = last_error;
  const auto append = [&](std::string_view part) {
    part = utf8_prefix(part, static_cast<size_t>(end - at));
    at = std::copy(part.begin(), part.end(), at);
  };
  const bool named = text.starts_with(call) && text.substr(call.size()).starts_with(": ");
  if (!named) {
    append(call);
    append(": ");
  }
  append(text);
  *at = '\0';
}

const char* remembered() noexcept { return last_error; }

zero_status report_exception(const char* caller) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    remember(caller, "out of host memory");
    return ZERO_ERR_MEMORY;
  } catch (const std::exception& error) {
    remember(caller, error.what());
    return ZERO_ERR_INTERNAL;
  } catch (...) {
    remember(caller, "unknown exception");
    return ZERO_ERR_INTERNAL;
  }
}

}  // namespace zero::api

uint32_t zero_version(void) {
  return ZERO_VERSION_MAJOR * 10000 + ZERO_VERSION_MINOR * 100 + ZERO_VERSION_PATCH;
}

const char* zero_build_info(void) {
  // This is never destroyed, because callers keep its address.
  static const auto* const info =
      new std::string(zero::text("comms: solo, local, user, nccl, mpi; devices: host, cuda (",
                                 zero::cuda_info(), "); isa: ", zero::api::isa_text()));
  return info->c_str();
}

const char* zero_last_error(void) { return zero::api::remembered(); }

const char* zero_status_name(zero_status status) {
  const char* name = zero::code_name(status);
  return name != nullptr ? name : "unknown status";
}

zero_status zero_set_interrupt_callback(zero_interrupt_fn ask, void* ctx) {
  zero::set_interrupt(ask, ctx);
  return ZERO_OK;
}

zero_status zero_set_log_callback(zero_log_fn log, void* ctx, int32_t max_level) {
  zero::set_log(log, ctx, max_level);
  return ZERO_OK;
}
