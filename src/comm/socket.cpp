// SPDX-License-Identifier: Apache-2.0
#include "comm/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/text.h"

namespace zero {
namespace {

constexpr int kBacklog = 4096;
constexpr int kVanishedMs = 15'000;

/// Opens a socket. Between processes of one host it preserves message boundaries.
int open_socket(const Place& place, Fd* out) {
  const int family = place.storage.ss_family;
  const int type = family == AF_UNIX ? SOCK_SEQPACKET : SOCK_STREAM;
  *out = Fd::open([&] { return os().socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  return out->valid() ? 0 : errno;
}

/// Makes a connection between hosts send at once, and detect within 15 s that a host has vanished.
void tune(int fd) {
  const struct {
    int level, name, value;
  } rows[] = {
      {IPPROTO_TCP, TCP_NODELAY, 1},  {SOL_SOCKET, SO_KEEPALIVE, 1},
      {IPPROTO_TCP, TCP_KEEPIDLE, 5}, {IPPROTO_TCP, TCP_KEEPINTVL, 2},
      {IPPROTO_TCP, TCP_KEEPCNT, 5},  {IPPROTO_TCP, TCP_USER_TIMEOUT, kVanishedMs},
  };
  // Each option is an improvement, and none is required.
  for (const auto& row : rows)
    (void)os().setsockopt(fd, row.level, row.name, &row.value, sizeof row.value);
}

/// Makes a socket that listens on all interfaces of IPv6 also serve IPv4. Takes a requested port
/// even if connections of a job that has ended still use it.
int prepare(const Place& place, int fd) {
  const int on = 1, off = 0;
  const auto* const in = reinterpret_cast<const sockaddr_in6*>(&place.storage);
  if (place.storage.ss_family == AF_UNIX) return 0;
  if (in->sin6_port != 0)  // the port is at the same offset for both versions
    (void)os().setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool both = place.storage.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&in->sin6_addr);
  if (!both || os().setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0) return 0;
  return errno;
}

}  // namespace

/// Returns the place of an abstract name, which begins with a zero byte.
Place place_of(std::string_view name) {
  Place place;
  auto* const un = reinterpret_cast<sockaddr_un*>(&place.storage);
  un->sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof un->sun_path - 1);
  memcpy(un->sun_path + 1, name.data(), length);
  place.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return place;
}

int listen_at(const Place& place, Fd* listener) {
  Fd fd;
  if (const int error = open_socket(place, &fd)) return error;
  if (const int error = prepare(place, fd.get())) return error;
  if (os().bind(fd.get(), place.get(), place.bytes) != 0) return errno;
  os().reached("rendezvous.bound");
  if (os().listen(fd.get(), kBacklog) != 0) return errno;
  *listener = std::move(fd);
  return 0;
}

int start_connect(const Place& place, Fd* connection) {
  Fd fd;
  if (const int error = open_socket(place, &fd)) return error;
  if (place.storage.ss_family != AF_UNIX) tune(fd.get());
  // Wait: none, the socket is non-blocking.
  if (os().connect(fd.get(), place.get(), place.bytes) != 0 && errno != EINPROGRESS) return errno;
  *connection = std::move(fd);
  return 0;
}

int connect_error(int fd) {
  int error = 0;
  socklen_t bytes = sizeof error;
  if (os().getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno;
  return error;
}

Fd accept_connection(int listener) {
  Place from;
  from.bytes = sizeof from.storage;
  Fd guest = Fd::open([&] {
    // Wait: none, the listener is non-blocking.
    return os().accept4(listener, from.get(), &from.bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
  });
  if (guest.valid() && from.storage.ss_family != AF_UNIX) tune(guest.get());
  return guest;
}

Result<Identity> identity_of(int connection) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (os().getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0)
    return Status(ZERO_ERR_SYSTEM, text("identifying a connected process: ", errno_text(errno)));
  return Identity{credentials.pid, credentials.uid};
}

}  // namespace zero
