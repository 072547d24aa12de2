// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/interrupt.h"
#include "base/text.h"
#include "comm/apart.h"

namespace zero::tcp {
namespace {

constexpr size_t kMostAddresses = 4096;
constexpr Address kEvery4{4, {}};
constexpr Address kEvery6{6, {}};

Result<Listener> listen_one(const Address& address, uint16_t port) {
  Listener listener;
  const int error = zero::listen_at(place_of(address, port), &listener.fd);
  if (error == EADDRINUSE) return Status(ZERO_ERR_RENDEZVOUS, text("port ", port, " is in use"));
  if (error != 0)
    return Status(ZERO_ERR_SYSTEM, text("listening for the ranks: ", errno_text(error)));
  Place place;
  place.bytes = sizeof place.storage;
  if (os().getsockname(listener.fd.get(), place.get(), &place.bytes) != 0)
    return Status(ZERO_ERR_SYSTEM, text("getting a socket's port: ", errno_text(errno)));
  // The port is at the same offset for both versions.
  listener.port = ntohs(reinterpret_cast<const sockaddr_in*>(&place.storage)->sin_port);
  return listener;
}

}  // namespace

std::string to_text(const Address& address) {
  char words[INET6_ADDRSTRLEN] = "?";
  inet_ntop(address.version == 4 ? AF_INET : AF_INET6, address.bytes.data(), words, sizeof words);
  return words;
}

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

bool Address::is_loopback() const {
  constexpr uint8_t kNet = 127;  // of IPv4
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

/// Listens with one socket for both versions, if the host has IPv6.
Result<Listener> listen_anywhere(uint16_t port) {
  Result<Listener> both = listen_one(kEvery6, port);
  return both.ok() ? std::move(both) : listen_one(kEvery4, port);
}

Result<Listener> listen_at(std::span<const Address> addresses, uint16_t port) {
  const std::vector<Address> own = ZERO_TRY(own_addresses(kMostAddresses));
  const auto found = std::find_first_of(addresses.begin(), addresses.end(), own.begin(), own.end());
  return found == addresses.end() ? listen_anywhere(port) : listen_one(*found, port);
}

Result<std::vector<Address>> own_addresses(size_t most) {
  constexpr unsigned kUsable = IFF_UP | IFF_RUNNING;  // IFF_RUNNING means that there is a carrier
  ifaddrs* all = nullptr;
  if (os().getifaddrs(&all) != 0)
    return Status(ZERO_ERR_SYSTEM, text("getting this host's addresses: ", errno_text(errno)));
  std::vector<Address> addresses, loopback;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    const std::optional<Address> address = to_address(entry->ifa_addr);
    if (!address || (entry->ifa_flags & kUsable) != kUsable) continue;
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

// ---- Names. The system resolver has no timeout, so a separate thread calls it. The thread is
// abandoned if the answer is too late.

namespace {

constexpr int64_t kAgainMs = 200;

/// The answer of the resolver. `error` is 0 or an EAI code.
struct Answer {
  int error = EAI_MEMORY;
  std::vector<Address> addresses;
};

int ask(const std::string& host, std::vector<Address>& addresses) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  // Wait: as long as the resolver likes, on a thread that is left behind.
  if (const int error = os().getaddrinfo(host.c_str(), nullptr, &hints, &found)) return error;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const std::optional<Address> address = to_address(one->ai_addr);
    if (address) addresses.push_back(*address);
  }
  os().freeaddrinfo(found);
  return addresses.empty() ? EAI_NONAME : 0;
}

}  // namespace

Result<std::vector<Address>> resolve(const std::string& host, int64_t limit_ms) {
  if (const std::optional<Address> address = to_address(host)) return std::vector{*address};
  const Deadline deadline(limit_ms);
  const auto failed = [&](std::string_view why) {
    return Status(ZERO_ERR_RENDEZVOUS,
                  text("no address for host '", host, "' was found",
                       interrupted() ? ": this rank was interrupted"
                                     : text(" within ", limit_ms, " ms: ", why)));
  };
  for (;;) {
    Apart<Answer> apart;
    ZERO_TRY(apart.start([host] {
      Answer made;
      (void)succeeds([&] { return made.error = ask(host, made.addresses), true; });
      return made;
    }));
    std::optional<Answer> found = apart.await(deadline.left_ms());
    if (!found) return failed("the resolver did not answer");
    if (found->error == 0) return std::move(found->addresses);
    if (deadline.passed() || interrupted()) return failed(gai_strerror(found->error));
    // Wait: a slice of limit_ms.
    os().poll(nullptr, 0, static_cast<int>(std::min(kAgainMs, deadline.left_ms())));
  }
}

}  // namespace zero::tcp
