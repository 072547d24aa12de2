// SPDX-License-Identifier: Apache-2.0
// Sockets through which ranks find each other, by a name on one host or by an address between
// hosts. None of these functions waits.
#pragma once

#include <sys/types.h>

#include <string_view>

#include "base/os.h"
#include "base/status.h"

namespace zero {

/// The address at which a socket listens, or to which it connects.
struct Place {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

/// Returns the place of an abstract name, which is not in a file system. The name is released with
/// the last descriptor of the listening process, even after kill -9.
Place place_of(std::string_view name);

/// Listens at `place`. Returns 0, or the errno.
int listen_at(const Place& place, Fd* listener);

/// Starts a connection, which becomes writable when it is established or has failed.
/// connect_error() returns which of the two happened. Returns 0, or the errno.
int start_connect(const Place& place, Fd* connection);
int connect_error(int fd);

/// Accepts the next connection. If there is none, the result is invalid and errno says why.
Fd accept_connection(int listener);

/// The process and user at the other end of a connection on one host, as the kernel reports them.
struct Identity {
  pid_t pid;
  uid_t uid;
};
Result<Identity> identity_of(int connection);

}  // namespace zero
