// SPDX-License-Identifier: Apache-2.0
// What the kernel tells of another process: for the sentences of errors.
#pragma once

#include <sys/types.h>

#include <string>

namespace zero::local {

/// "running", "sleeping", "stopped", ...
const char* process_state(pid_t pid);

/// How a process that is gone, or going, left: "died", or "ended" and with which exit code where
/// the kernel still tells. `pidfd` may be -1.
std::string how_it_left(pid_t pid, int pidfd);

}  // namespace zero::local
