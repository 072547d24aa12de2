// SPDX-License-Identifier: Apache-2.0
// Compiles zero.hpp with warnings of every kind.
#include "zero.hpp"
