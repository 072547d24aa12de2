// SPDX-License-Identifier: Apache-2.0
// Messages with descriptors between processes of one host, over sockets that have no name in any
// file system. Every wait has a deadline and keeps asking whether it still makes sense.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/os.h"
#include "base/status.h"

namespace zero::local {

/// What a wait obeys besides the socket it waits for.
struct Vigil {
  int64_t deadline_ns;
  std::function<Status()> check;  // asked every slice; a failure ends the wait
};

/// Waits are cut into slices of this length, so that whatever else may end one is seen soon.
inline constexpr int kSliceMs = 5;

/// At most this many descriptors travel with one message (the kernel's limit is 253).
inline constexpr size_t kDescriptorsPerMessage = 200;

/// Listen at `name` in the abstract name space; connect to whoever does. 0, or the errno.
int listen_at(std::string_view name, Fd* listener);
int connect_to(std::string_view name, Fd* connection);

/// Who made the other end of a connection, as the kernel vouches for it.
struct Identity {
  pid_t pid;
  uid_t uid;
};
Result<Identity> identity_of(int connection);

/// One message with at most `most` descriptors, if one is there. 0, or an errno: EAGAIN if none is,
/// ECONNRESET if the other end is closed, EMSGSIZE if it is longer than `bytes`, EMFILE if its
/// descriptors exceed this process's limit.
int try_receive(int connection, std::span<std::byte> bytes, size_t* got,
                std::vector<Fd>* descriptors, size_t most = kDescriptorsPerMessage);

/// EMFILE, in words.
Status too_many_descriptors();

/// One message, whole. ZERO_ERR_COMM if the other end is closed, ZERO_ERR_TIMEOUT at the deadline,
/// what `vigil.check` says, or ZERO_ERR_SYSTEM.
Status send_message(int connection, std::span<const std::byte> bytes,
                    std::span<const int> descriptors, const Vigil& vigil);
Result<size_t> receive_message(int connection, std::span<std::byte> bytes,
                               std::vector<Fd>* descriptors, const Vigil& vigil);

/// Sleep without a signal's help; woken early by nothing that matters.
void sleep_ms(int milliseconds);

}  // namespace zero::local
