// SPDX-License-Identifier: Apache-2.0
// A connection whose other end sends arbitrary bytes and descriptors, in parts.
#include "comm/link.h"

#include <sys/socket.h>

#include <filesystem>

#include "fuzz/input.h"

using namespace zero;

namespace {

constexpr size_t kMostBytes = 512, kMostDescriptors = 2, kMostCalls = 10'000;

void send(int to, std::string_view part, size_t descriptors) {
  const int any = STDERR_FILENO;
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  iovec bytes{const_cast<char*>(part.data()), part.size()};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (descriptors != 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors * sizeof(int));
    for (size_t i = 0; i < descriptors; i++)
      std::memcpy(CMSG_DATA(rights) + i * sizeof to, &any, sizeof to);
  }
  ::sendmsg(to, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void talk(fuzz::Input& input) {
  int ends[2];
  fuzz::must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "there are sockets");
  Fd other(ends[1]);
  Link link(Fd(ends[0]), kMostBytes, kMostDescriptors);
  const auto take_all = [&] {
    while (const std::optional<Frame> frame = link.take()) {
      fuzz::must(frame->payload.size() <= kMostBytes, "a frame has at most what was allowed");
      for (const Fd& fd : frame->descriptors) fuzz::must(fd.valid(), "a descriptor is one");
    }
  };
  while (!input.empty()) {
    const size_t descriptors = input.below(4);
    Prefix prefix;
    if (input.below(8) != 0) send(other.get(), {reinterpret_cast<const char*>(&prefix), 16}, 0);
    send(other.get(), input.bytes(input.take()), descriptors);
    take_all();
  }
  other.reset();
  // A call takes only what comes before the next descriptors.
  for (size_t i = 0; i < kMostCalls && !link.over() && !link.other_version(); i++) take_all();
  fuzz::must(link.over() || link.other_version(), "a closed connection is over");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::SameDescriptors same;
  fuzz::Input input(data, size);
  talk(input);
  return 0;
}
