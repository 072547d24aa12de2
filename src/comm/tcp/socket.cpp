// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace zero::tcp {
namespace {

constexpr int kBacklog = 4096;
constexpr int kVanishedMs = 15'000;
constexpr size_t kMostAddresses = 4096;
constexpr Address kEvery4{4, {}};
constexpr Address kEvery6{6, {}};

struct Place {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Place place_of(const Address& address, uint16_t port) {
  Place place;
  if (address.version == 4) {
    auto* const in = reinterpret_cast<sockaddr_in*>(&place.storage);
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    memcpy(&in->sin_addr, address.bytes.data(), sizeof in->sin_addr);
    place.bytes = sizeof *in;
  } else {
    auto* const in = reinterpret_cast<sockaddr_in6*>(&place.storage);
    in->sin6_family = AF_INET6;
    in->sin6_port = htons(port);
    memcpy(&in->sin6_addr, address.bytes.data(), sizeof in->sin6_addr);
    place.bytes = sizeof *in;
  }
  return place;
}

Status failed(const char* what) {
  return Status(ZERO_ERR_SYSTEM, text(what, ": ", errno_text(errno)));
}

Result<Fd> open_socket(int family) {
  Fd fd(os().socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return failed("opening a socket");
  return fd;
}

/// Connections of a run that has ended do not keep a port that is asked for.
Result<Fd> bind_one(const Address& address, uint16_t port) {
  Fd fd = ZERO_TRY(open_socket(address.version == 4 ? AF_INET : AF_INET6));
  const int on = 1;
  const int off = 0;
  if (port != 0) (void)os().setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address == kEvery6 &&
      os().setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0)
    return failed("opening a socket to both versions");
  Place place = place_of(address, port);
  if (os().bind(fd.get(), place.get(), place.bytes) == 0) return fd;
  if (errno == EADDRINUSE) return Status(ZERO_ERR_RENDEZVOUS, text("port ", port, " is in use"));
  return failed("binding a socket");
}

/// One socket for both versions where the host has version 6.
Result<Fd> bind_anywhere(uint16_t port) {
  Result<Fd> both = bind_one(kEvery6, port);
  return both.ok() ? std::move(both) : bind_one(kEvery4, port);
}

Result<Listener> listen_with(Fd fd) {
  Listener listener;
  listener.fd = std::move(fd);
  if (os().listen(listener.fd.get(), kBacklog) != 0) return failed("listening for the ranks");
  Place place;
  place.bytes = sizeof place.storage;
  if (os().getsockname(listener.fd.get(), place.get(), &place.bytes) != 0)
    return failed("asking for a socket's port");
  listener.port = place.storage.ss_family == AF_INET6
                      ? ntohs(reinterpret_cast<sockaddr_in6*>(&place.storage)->sin6_port)
                      : ntohs(reinterpret_cast<sockaddr_in*>(&place.storage)->sin_port);
  return listener;
}

}  // namespace

std::string to_text(const Address& address) {
  char words[INET6_ADDRSTRLEN] = "?";
  inet_ntop(address.version == 4 ? AF_INET : AF_INET6, address.bytes.data(), words, sizeof words);
  return words;
}

bool Address::is_loopback() const {
  constexpr uint8_t kNet = 127;  // of version 4
  constexpr std::array<uint8_t, 16> kOne = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return version == 4 ? bytes[0] == kNet : bytes == kOne;
}

std::optional<Address> to_address(const std::string& words) {
  Address address;
  for (const uint8_t version : {uint8_t{4}, uint8_t{6}}) {
    address.version = version;
    const int family = version == 4 ? AF_INET : AF_INET6;
    if (inet_pton(family, words.c_str(), address.bytes.data()) == 1) return address;
  }
  return std::nullopt;
}

std::optional<Address> to_address(const sockaddr* from) {
  Address address;
  if (from == nullptr) return std::nullopt;
  if (from->sa_family == AF_INET) {
    address.version = 4;
    memcpy(address.bytes.data(), &reinterpret_cast<const sockaddr_in*>(from)->sin_addr, 4);
    return address;
  }
  if (from->sa_family != AF_INET6) return std::nullopt;
  const in6_addr& in = reinterpret_cast<const sockaddr_in6*>(from)->sin6_addr;
  if (IN6_IS_ADDR_LINKLOCAL(&in)) return std::nullopt;
  address.version = 6;
  memcpy(address.bytes.data(), &in, 16);
  return address;
}

Result<Listener> listen_anywhere(uint16_t port) {
  return listen_with(ZERO_TRY(bind_anywhere(port)));
}

Result<Listener> listen_at(std::span<const Address> addresses, uint16_t port) {
  const std::vector<Address> own = ZERO_TRY(own_addresses(kMostAddresses));
  const auto is_own = [&](const Address& one) {
    return std::find(own.begin(), own.end(), one) != own.end();
  };
  const auto found = std::find_if(addresses.begin(), addresses.end(), is_own);
  if (found == addresses.end()) return listen_anywhere(port);
  return listen_with(ZERO_TRY(bind_one(*found, port)));
}

Result<std::vector<Address>> own_addresses(size_t most) {
  ifaddrs* all = nullptr;
  if (os().getifaddrs(&all) != 0) return failed("asking for this host's addresses");
  std::vector<Address> addresses, loopback;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    const std::optional<Address> address = to_address(entry->ifa_addr);
    if (!address || (entry->ifa_flags & IFF_UP) == 0) continue;
    ((entry->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : addresses).push_back(*address);
  }
  os().freeifaddrs(all);
  addresses.resize(std::min(addresses.size(), most - 1));
  addresses.insert(addresses.end(), loopback.begin(), loopback.end());
  addresses.resize(std::min(addresses.size(), most));
  if (addresses.empty())
    return Status(ZERO_ERR_SYSTEM, "this host has no network interface that is up");
  return addresses;
}

Result<Fd> start_connect(const Address& address, uint16_t port) {
  Fd fd = ZERO_TRY(open_socket(address.version == 4 ? AF_INET : AF_INET6));
  Place place = place_of(address, port);
  // Wait: none, the socket is non-blocking.
  if (os().connect(fd.get(), place.get(), place.bytes) != 0 && errno != EINPROGRESS)
    return failed("connecting");
  return fd;
}

int connect_error(int fd) {
  int error = 0;
  socklen_t bytes = sizeof error;
  if (os().getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno;
  return error;
}

Fd accept_guest(int listener) {
  // Wait: none, the listener is non-blocking.
  Fd guest(os().accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  return guest;
}

void tune(int fd) {
  const struct {
    int level, name, value;
  } rows[] = {
      {IPPROTO_TCP, TCP_NODELAY, 1},  {SOL_SOCKET, SO_KEEPALIVE, 1},
      {IPPROTO_TCP, TCP_KEEPIDLE, 5}, {IPPROTO_TCP, TCP_KEEPINTVL, 2},
      {IPPROTO_TCP, TCP_KEEPCNT, 5},  {IPPROTO_TCP, TCP_USER_TIMEOUT, kVanishedMs},
  };
  // Each makes the connection better, none is needed.
  for (const auto& row : rows)
    (void)os().setsockopt(fd, row.level, row.name, &row.value, sizeof row.value);
}

ssize_t send_some(int fd, std::span<const std::byte> bytes) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const ssize_t sent = os().sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0) return sent;
  return errno == EAGAIN || errno == ENOBUFS || errno == EINTR ? 0 : -1;
}

ssize_t receive_some(int fd, std::span<std::byte> bytes) {
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const ssize_t got = os().recvmsg(fd, &message, MSG_DONTWAIT);
  if (got > 0) return got;
  return got < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

}  // namespace zero::tcp
