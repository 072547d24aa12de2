// SPDX-License-Identifier: Apache-2.0
#include <cxxabi.h>
#include <dlfcn.h>
#include <unwind.h>

#include <array>
#include <exception>

#include "api/guard.h"
#include "api/options.h"

// Every C++ runtime defines this, but libc++ does not declare it.
namespace __cxxabiv1 {
struct __cxa_eh_globals;
extern "C" __cxa_eh_globals* __cxa_get_globals() noexcept;
}  // namespace __cxxabiv1

namespace {

using namespace zero;
using namespace zero::api;

// ---- Exceptions that the program's C++ runtime throws and this library's runtime catches. The
// shared library has its own runtime linked in.

/// Must be constructed before a call that may throw, outside of the `try`.
class ForeignExceptions {
 public:
  // An unwinder determines the sizes of registers in its first use. This library's copy would abort
  // if it had to catch an exception that another copy threw before that. So it first traces an
  // empty stack.
  //
  // The runtime that throws counts an exception as uncaught, and the runtime that catches it
  // decrements the count. If these are two runtimes, both counts are wrong from then on, and so is
  // the program's std::uncaught_exceptions(). There is no remedy for a program that hides its
  // statically linked runtime.
  ForeignExceptions() {
    (void)_Unwind_Backtrace(stop, nullptr);
    auto* const ours = reinterpret_cast<Counts*>(abi::__cxa_get_globals());
    using Get = Counts* (*)();
    const auto get = reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "__cxa_get_globals"));
    auto* const theirs = get == nullptr ? ours : get();
    runtimes_ = {Noted{ours, ours->uncaught}, Noted{theirs, theirs->uncaught}};
  }
  ForeignExceptions(const ForeignExceptions&) = delete;
  ForeignExceptions& operator=(const ForeignExceptions&) = delete;

  /// Restores the counts. The code that has caught an exception must call this.
  void caught() const {
    for (const Noted& runtime : runtimes_) runtime.counts->uncaught = runtime.uncaught;
  }

 private:
  static _Unwind_Reason_Code stop(_Unwind_Context*, void*) { return _URC_END_OF_STACK; }

  /// The counts that a runtime keeps for each thread, in the layout of the C++ ABI.
  struct Counts {
    void* caught;
    unsigned int uncaught;
  };
  struct Noted {
    Counts* counts;
    unsigned int uncaught;
  };
  std::array<Noted, 2> runtimes_;  // this library's and the program's; may be the same
};

// ---- The custom rule.

/// Returns the message of the caller's function, which may contain any bytes.
std::string words_of(std::span<char> message) {
  const std::string_view all(message.data(), message.size());
  const std::string_view words = all.substr(0, all.find('\0'));
  return is_utf8(words) ? std::string(words) : "its message is not UTF-8";
}

zero_update header_of(const CustomRule& rule, const UpdateRange& range) {
  static_assert(sizeof(std::byte*) == sizeof(void*));
  return {.struct_size = sizeof(zero_update),
          .param = range.param,
          .name = range.name,
          .shape = range.shape.data(),
          .ndim = static_cast<int32_t>(range.shape.size()),
          .dtype = static_cast<int32_t>(range.dtype),
          .first = range.first,
          .count = range.count,
          .values = range.values,
          .gradient = range.gradient,
          .slots = reinterpret_cast<void* const*>(range.slots.data()),
          .slot_count = range.slots.size(),
          .step = range.step,
          .lr = range.settings[CustomRule::kRate],
          .weight_decay = range.settings[CustomRule::kDecay],
          .setting_names = rule.setting_names().data(),
          .setting_values = range.settings.data(),
          .setting_count = range.settings.size(),
          .message = range.message.data(),
          .message_bytes = range.message.size()};
}

/// Calls the caller's function, and turns every failure of it into one kind of failure.
Status call_update(const zero_custom_optimizer& custom, const CustomRule& rule,
                   const UpdateRange& range) {
  const auto failed = [&](std::string_view how, std::string_view words) {
    return Status(ZERO_ERR_CALLBACK,
                  text(rule.rule().name, ' ', how, words.empty() ? "" : ": ", words));
  };
  const zero_update update = header_of(rule, range);
  const ForeignExceptions exceptions;
  zero_status status = ZERO_OK;
  try {
    status = custom.update(custom.ctx, &update);
  } catch (const std::exception& error) {
    exceptions.caught();
    const char* const what = error.what();
    return failed("threw", is_utf8(what) ? what : "an exception whose text is not UTF-8");
  } catch (...) {
    exceptions.caught();
    return failed("threw", "something that is not a std::exception");
  }
  if (status == ZERO_OK) return {};
  const char* const name = code_name(status);
  return failed(name != nullptr ? text("returned ", name) : text("returned ", status),
                words_of(range.message));
}

Status check_declaration(const zero_custom_optimizer& read) {
  const auto bad = [](const auto&... parts) {
    return bad_argument("custom optimizer: ", parts...);
  };
  if (read.name == nullptr) return bad("name is NULL");
  if (read.update == nullptr) return bad("update is NULL");
  if (read.slots == nullptr && read.slot_count > 0)
    return bad("slot_count is ", read.slot_count, ", but slots is NULL");
  if ((read.setting_names == nullptr || read.setting_values == nullptr) && read.setting_count > 0)
    return bad("setting_count is ", read.setting_count,
               ", but setting_names or setting_values is NULL");
  // This precedes any access to the lists. The rule checks the counts again.
  if (read.slot_count > size_t{kMaxStateSlots} || read.setting_count > size_t{kMaxSettings})
    return bad(read.slot_count, " slots and ", read.setting_count, " settings; at most ",
               kMaxStateSlots, " and ", kMaxSettings, " are allowed");
  if ((read.flags & ~ZERO_CUSTOM_WHOLE_TENSORS) != 0)
    return bad("flags ", read.flags, " are unknown");
  if (read.reserved != 0) return bad("reserved is ", read.reserved, ", not 0");
  return {};
}

}  // namespace

namespace zero::api {

Result<std::shared_ptr<const CustomRule>> read_custom(const zero_custom_optimizer* given) {
  if (given == nullptr)
    return bad_argument("optimizer is ZERO_OPTIMIZER_CUSTOM, but custom is NULL");
  const zero_custom_optimizer read = ZERO_TRY(read_struct(given));
  ZERO_TRY(check_declaration(read));
  CustomRule::Declaration declared;
  declared.name = read.name;
  declared.whole_tensors = (read.flags & ZERO_CUSTOM_WHOLE_TENSORS) != 0;
  for (size_t i = 0; i < read.slot_count; i++) {
    if (read.slots[i] == nullptr)
      return bad_argument("custom optimizer: the name of slot ", i, " is NULL");
    declared.slots.emplace_back(read.slots[i]);
  }
  for (size_t i = 0; i < read.setting_count; i++) {
    if (read.setting_names[i] == nullptr)
      return bad_argument("custom optimizer: the name of setting ", i, " is NULL");
    declared.settings.emplace_back(read.setting_names[i], read.setting_values[i]);
  }
  return CustomRule::create(std::move(declared),
                            [read](const CustomRule& rule, const UpdateRange& range) {
                              return call_update(read, rule, range);
                            });
}

}  // namespace zero::api
