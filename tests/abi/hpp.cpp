// SPDX-License-Identifier: Apache-2.0
// zero.hpp in a program with warnings of every kind.
#include "zero.hpp"
