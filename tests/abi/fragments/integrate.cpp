// SPDX-License-Identifier: Apache-2.0
// The C++ program of docs/integrate.md, on one rank.
#include "integrate/with-zero-hpp-1.cpp"
