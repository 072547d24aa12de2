// SPDX-License-Identifier: Apache-2.0
// Whether a checkpoint is one of this model and optimizer.
#pragma once

#include <vector>

#include "base/status.h"
#include "optim/optimizer.h"
#include "state/manifest.h"

namespace zero {

/// Where in a manifest each registered parameter and buffer stands.
struct Places {
  std::vector<size_t> params, buffers;
};

/// The places, or ZERO_ERR_CKPT_MISMATCH with every difference.
Result<Places> match_registered(const Manifest& manifest, const Optimizer& optim);

/// Each group's settings as saved, in the order of the rule's. A setting that the checkpoint does
/// not have gets its default. ZERO_ERR_CKPT_INVALID if one is out of its range.
Result<std::vector<Group>> saved_settings(const Manifest& manifest, const Rule& rule);

/// The loss scale as it was saved, `current` where none was. ZERO_ERR_CKPT_INVALID if it is none.
Result<LossScale> saved_loss_scale(const Manifest& manifest, const LossScale& current);

/// ZERO_ERR_CKPT_INVALID unless a parameter has a mu_product exactly where its rule made one.
Status check_products(const Manifest& manifest, const Rule& rule);

}  // namespace zero
