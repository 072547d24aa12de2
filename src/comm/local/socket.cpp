// SPDX-License-Identifier: Apache-2.0
#include "comm/local/socket.h"

#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace zero::local {
namespace {

constexpr int kBacklog = 4096;

struct Address {
  sockaddr_un un;
  socklen_t bytes;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&un); }
};

/// A leading zero byte is what makes the name abstract: it goes with the last descriptor, kill -9
/// or not.
Address address_of(std::string_view name) {
  Address address{};
  address.un.sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof address.un.sun_path - 1);
  std::memcpy(address.un.sun_path + 1, name.data(), length);
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

int open_socket(Fd* out) {
  out->reset(os().socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return out->valid() ? 0 : errno;
}

/// Room for the descriptors of one message, aligned as the kernel wants it.
struct ControlBuffer {
  alignas(cmsghdr) char bytes[CMSG_SPACE(kDescriptorsPerMessage * sizeof(int))];
};

void take_descriptors(msghdr& message, std::vector<Fd>* out) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      out->push_back(Fd(fd));
    }
  }
}

/// Wait up to a slice for `events`, then ask whether to go on.
Status wait_slice(int connection, short events, const Vigil& vigil) {
  ZERO_TRY(vigil.check());
  const int64_t left_ns = vigil.deadline_ns - now_ns();
  if (left_ns <= 0) return Status(ZERO_ERR_TIMEOUT, "the deadline passed");
  const int slice = static_cast<int>(std::min<int64_t>(kSliceMs, left_ns / 1'000'000 + 1));
  pollfd one{connection, events, 0};
  // Wait: a slice: the vigil has the deadline.
  if (os().poll(&one, 1, slice) < 0 && errno != EINTR)
    return Status(ZERO_ERR_SYSTEM, text("waiting for a connection: ", errno_text(errno)));
  return {};
}

}  // namespace

int listen_at(std::string_view name, Fd* listener) {
  Fd fd;
  if (const int error = open_socket(&fd)) return error;
  const Address address = address_of(name);
  if (os().bind(fd.get(), address.get(), address.bytes) != 0) return errno;
  os().reached("rendezvous.bound");
  if (os().listen(fd.get(), kBacklog) != 0) return errno;
  *listener = std::move(fd);
  return 0;
}

int connect_to(std::string_view name, Fd* connection) {
  Fd fd;
  if (const int error = open_socket(&fd)) return error;
  const Address address = address_of(name);
  // Wait: none, the socket is non-blocking.
  if (os().connect(fd.get(), address.get(), address.bytes) != 0) return errno;
  *connection = std::move(fd);
  return 0;
}

Result<Identity> identity_of(int connection) {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (os().getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0)
    return Status(ZERO_ERR_SYSTEM, text("asking who is connected: ", errno_text(errno)));
  return Identity{credentials.pid, credentials.uid};
}

int try_receive(int connection, std::span<std::byte> bytes, size_t* got,
                std::vector<Fd>* descriptors, size_t most) {
  ControlBuffer control;
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = CMSG_SPACE(most * sizeof(int));
  std::vector<Fd> received;    // closed here, should the message be refused
  received.reserve(most + 1);  // what there is room for, before anything can be left open
  const ssize_t count = os().recvmsg(connection, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0) return errno == EINTR ? EAGAIN : errno;
  take_descriptors(message, &received);
  // What came is as much as there was room for, or as this process may open.
  if (message.msg_flags & MSG_CTRUNC) return received.size() < most ? EMFILE : EMSGSIZE;
  if (message.msg_flags & MSG_TRUNC) return EMSGSIZE;
  if (count == 0) return ECONNRESET;
  *got = static_cast<size_t>(count);
  *descriptors = std::move(received);
  return 0;
}

Status too_many_descriptors() {
  return Status(ZERO_ERR_SYSTEM,
                "this process may not open so many descriptors as the ranks need: raise ulimit -n");
}

Status send_message(int connection, std::span<const std::byte> bytes,
                    std::span<const int> descriptors, const Vigil& vigil) {
  ControlBuffer control{};
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  for (;;) {
    if (os().sendmsg(connection, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return {};
    switch (errno) {
      case EINTR:
      case EAGAIN:
        ZERO_TRY(wait_slice(connection, POLLOUT, vigil));
        break;
      case ETOOMANYREFS:  // descriptors under way count against a limit until they are received
        ZERO_TRY(wait_slice(-1, 0, vigil));
        break;
      case EPIPE:
      case ECONNRESET:
        return Status(ZERO_ERR_COMM, "the connection is closed");
      default:
        return Status(ZERO_ERR_SYSTEM, text("sending to a rank: ", errno_text(errno)));
    }
  }
}

Result<size_t> receive_message(int connection, std::span<std::byte> bytes,
                               std::vector<Fd>* descriptors, const Vigil& vigil) {
  for (;;) {
    size_t got = 0;
    switch (const int error = try_receive(connection, bytes, &got, descriptors)) {
      case 0:
        return got;
      case EAGAIN: {
        const Status ended = wait_slice(connection, POLLIN, vigil);
        // The other end may have said why before it went.
        if (!ended.ok() && try_receive(connection, bytes, &got, descriptors) != 0) return ended;
        if (!ended.ok()) return got;
        break;
      }
      case ECONNRESET:
        return Status(ZERO_ERR_COMM, "the connection is closed");
      case EMFILE:
        return too_many_descriptors();
      default:
        return Status(ZERO_ERR_SYSTEM, text("receiving from a rank: ", errno_text(error)));
    }
  }
}

// Wait: as long as the caller says.
void sleep_ms(int milliseconds) { os().poll(nullptr, 0, milliseconds); }

}  // namespace zero::local
