// SPDX-License-Identifier: Apache-2.0
#include "api/thrown.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <unwind.h>

namespace zero::api {
namespace {

_Unwind_Reason_Code stop(_Unwind_Context*, void*) { return _URC_END_OF_STACK; }

}  // namespace

// An unwinder learns the sizes of registers in its first use, and its copy in here aborts when it
// is to catch what another copy threw before that. So it walks a stack, of no frames.
//
// Who throws counts an exception as uncaught, and who catches it counts it off: if these are two
// runtimes, both are wrong from then on, and the program's std::uncaught_exceptions() with them. A
// program that has its runtime linked in, and hides it, cannot be helped.
ForeignExceptions::ForeignExceptions() {
  (void)_Unwind_Backtrace(stop, nullptr);
  auto* const ours = reinterpret_cast<Counts*>(abi::__cxa_get_globals());
  using Get = Counts* (*)();
  const auto get = reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "__cxa_get_globals"));
  auto* const theirs = get == nullptr ? ours : get();
  runtimes_ = {Noted{ours, ours->uncaught}, Noted{theirs, theirs->uncaught}};
}

void ForeignExceptions::caught() const {
  for (const Noted& runtime : runtimes_) runtime.counts->uncaught = runtime.uncaught;
}

}  // namespace zero::api
