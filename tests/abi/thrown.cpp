// SPDX-License-Identifier: Apache-2.0
// An exception that an update rule of a C++ program throws through the shared library's frames
// makes its step fail, and the program's own runtime still works. With "other-runtime" the library
// may have the runtime of another project, which cannot read the text of the exception.
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "tap.h"

namespace {

enum What { kRuntimeError, kDerived, kNumber, kNothing };

struct Derived : std::out_of_range {
  using std::out_of_range::out_of_range;
};

/// Counts calls of its destructor while an exception passes.
struct Counted {
  int& count;
  ~Counted() { count++; }
};

int g_destroyed = 0;
bool g_other_runtime = false;

const char* words(const char* what) {
  static char said[64];
  std::snprintf(said, sizeof said, "custom:throws threw: %s", g_other_runtime ? "" : what);
  return said;
}

zero_status update(void* ctx, const zero_update*) {
  const Counted counted{g_destroyed};
  switch (*static_cast<const What*>(ctx)) {
    case kRuntimeError:
      throw std::runtime_error("no basis");
    case kDerived:
      throw Derived("row 7");
    case kNumber:
      throw 7;
    case kNothing:
      break;
  }
  return ZERO_OK;
}

void thrown() {
  zero_comm* comm = nullptr;
  zero_optim* optim = nullptr;
  zero_options options;
  zero_custom_optimizer custom;
  zero_param param;
  float data = 1, grad = 1;
  What what = kRuntimeError;
  CHECK_STATUS(ZERO_OK, zero_comm_create_solo(&comm, nullptr));
  ZERO_INIT(options);
  ZERO_INIT(custom);
  ZERO_INIT(param);
  custom.name = "throws";
  custom.update = update;
  custom.ctx = &what;
  options.optimizer = ZERO_OPTIMIZER_CUSTOM;
  options.custom = &custom;
  param.name = "w";
  param.data = &data;
  param.grad = &grad;
  CHECK_STATUS(ZERO_OK, zero_create(&optim, comm, &options));
  CHECK_STATUS(ZERO_OK, zero_register_params(optim, nullptr, &param, 1, nullptr));
  CHECK_REFUSED(ZERO_ERR_CALLBACK, words("no basis"), zero_step(optim, nullptr));
  what = kDerived;
  CHECK_REFUSED(ZERO_ERR_CALLBACK, words("row 7"), zero_step(optim, nullptr));
  what = kNumber;
  CHECK_REFUSED(ZERO_ERR_CALLBACK, "custom:throws threw: ", zero_step(optim, nullptr));
  what = kNothing;
  CHECK_STATUS(ZERO_OK, zero_step(optim, nullptr));
  CHECK(g_destroyed == 4);
  CHECK(data == 1);
  CHECK_STATUS(ZERO_OK, zero_free(optim));
  CHECK_STATUS(ZERO_OK, zero_comm_free(comm));
}

/// The program's own exceptions work as before.
void own_exceptions() {
  CHECK(std::uncaught_exceptions() == 0);
  bool caught = false;
  try {
    throw std::runtime_error("own");
  } catch (const std::exception& error) {
    caught = std::strcmp(error.what(), "own") == 0;
  }
  CHECK(caught);
  CHECK(std::uncaught_exceptions() == 0);
}

}  // namespace

int main(int argc, char** argv) {
  g_other_runtime = argc > 1 && std::strcmp(argv[1], "other-runtime") == 0;
  phase("thrown", thrown);
  phase("own exceptions", own_exceptions);
  return finish();
}
