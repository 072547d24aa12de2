// SPDX-License-Identifier: Apache-2.0
// The names of the status constants.
#include "base/status.h"

namespace zero {

const char* code_name(Code code) {
#define ZERO_NAME(constant) \
  case constant:            \
    return #constant
  switch (code) {
    ZERO_NAME(ZERO_OK);
    ZERO_NAME(ZERO_SKIPPED);
    ZERO_NAME(ZERO_ERR_ARGUMENT);
    ZERO_NAME(ZERO_ERR_STATE);
    ZERO_NAME(ZERO_ERR_BUSY);
    ZERO_NAME(ZERO_ERR_FORKED);
    ZERO_NAME(ZERO_ERR_UNSUPPORTED);
    ZERO_NAME(ZERO_ERR_MEMORY);
    ZERO_NAME(ZERO_ERR_MISMATCH);
    ZERO_NAME(ZERO_ERR_PEER);
    ZERO_NAME(ZERO_ERR_CKPT_IO);
    ZERO_NAME(ZERO_ERR_CKPT_INVALID);
    ZERO_NAME(ZERO_ERR_CKPT_MISMATCH);
    ZERO_NAME(ZERO_ERR_NOT_LOADED);
    ZERO_NAME(ZERO_ERR_RENDEZVOUS);
    ZERO_NAME(ZERO_ERR_TIMEOUT);
    ZERO_NAME(ZERO_ERR_PEER_DEAD);
    ZERO_NAME(ZERO_ERR_DESYNC);
    ZERO_NAME(ZERO_ERR_COMM);
    ZERO_NAME(ZERO_ERR_ABORTED);
    ZERO_NAME(ZERO_ERR_SYSTEM);
    ZERO_NAME(ZERO_ERR_NONFINITE);
    ZERO_NAME(ZERO_ERR_CALLBACK);
    ZERO_NAME(ZERO_ERR_INTERNAL);
    default:
      return nullptr;
  }
#undef ZERO_NAME
}

}  // namespace zero
