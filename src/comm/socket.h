// SPDX-License-Identifier: Apache-2.0
// Sockets at which ranks find each other, by a name on one host or by an address between hosts.
// None of these calls waits.
#pragma once

#include <sys/types.h>

#include <string_view>

#include "base/os.h"
#include "base/status.h"

namespace zero {

/// The place where a socket listens, or to which it connects.
struct Place {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

/// Returns the place of a name that is in no file system. The name goes with the last descriptor of
/// the process that listens there, kill -9 or not.
Place place_of(std::string_view name);

/// Listens at `place`. Returns 0, or the errno.
int listen_at(const Place& place, Fd* listener);

/// Starts a connection. It becomes writable once it stands or has failed; connect_error() tells
/// which. Returns 0, or the errno.
int start_connect(const Place& place, Fd* connection);
int connect_error(int fd);

/// Accepts the next guest of a listener. The result is invalid, and errno says why, if there is
/// none.
Fd accept_connection(int listener);

/// The process and user that made the other end of a connection on one host. The kernel vouches for
/// them.
struct Identity {
  pid_t pid;
  uid_t uid;
};
Result<Identity> identity_of(int connection);

}  // namespace zero
