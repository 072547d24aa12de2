// SPDX-License-Identifier: Apache-2.0
// A table of all system calls that the library makes, so that a test can make the n-th call fail.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "base/fork.h"

// Missing from the headers of glibc 2.28 and Linux 4.18 (RHEL 8). A kernel without one of them
// returns EINVAL or ENOSYS. The numbers are the same on x86-64 and ARM64.
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace zero {

/// The first version of pidfd_info in linux/pidfd.h.
struct PidfdInfo {
  static constexpr uint64_t kExit = 8;  // mask bit: requests the exit code, or shows it
  uint64_t mask;
  uint64_t cgroup;
  uint32_t ids[11];
  int32_t exit_code;  // as in waitpid
};
static_assert(sizeof(PidfdInfo) == 64);

/// Makes a system call by its number, because the C library's wrapper is newer than the oldest
/// supported C library.
template <long number>
struct Numbered {
  template <class Answer, class... Arguments>
  using Call = Answer (*)(Arguments...);
  template <class Answer, class... Arguments>
  constexpr operator Call<Answer, Arguments...>() const {
    return
        [](Arguments... arguments) { return static_cast<Answer>(::syscall(number, arguments...)); };
  }
};

/// Members have the meaning, arguments and errno of the calls after which they are named. By
/// default each is the system's own call.
struct SystemCalls {
  // Files.
  int (*openat)(int directory, const char* path, int flags,
                unsigned mode) = [](int directory, const char* path, int flags, unsigned mode) {
    return ::openat(directory, path, flags, mode);
  };
  int (*close)(int fd) = ::close;
  ssize_t (*pread)(int fd, void* data, size_t bytes, int64_t offset) = ::pread;
  ssize_t (*pwrite)(int fd, const void* data, size_t bytes, int64_t offset) = ::pwrite;
  ssize_t (*write)(int fd, const void* data, size_t bytes) = ::write;
  int (*fsync)(int fd) = ::fsync;
  int (*fstat)(int fd, struct stat* info) = ::fstat;
  int (*fstatat)(int directory, const char* path, struct stat* info, int flags) = ::fstatat;
  int (*fallocate)(int fd, int mode, int64_t offset, int64_t bytes) = ::fallocate;
  int (*mkdirat)(int directory, const char* path, unsigned mode) = ::mkdirat;
  int (*unlinkat)(int directory, const char* path, int flags) = ::unlinkat;
  // Without flags this is renameat, which every system has.
  int (*renameat2)(int from_directory, const char* from, int to_directory, const char* to,
                   unsigned flags) = [](int from_directory, const char* from, int to_directory,
                                        const char* to, unsigned flags) {
    if (flags == 0) return ::renameat(from_directory, from, to_directory, to);
    return static_cast<int>(
        ::syscall(SYS_renameat2, from_directory, from, to_directory, to, flags));
  };
  ssize_t (*readlinkat)(int directory, const char* path, char* to, size_t bytes) = ::readlinkat;
  int (*flock)(int fd, int operation) = ::flock;
  DIR* (*fdopendir)(int fd) = ::fdopendir;
  struct dirent* (*readdir)(DIR* directory) = ::readdir;
  int (*closedir)(DIR* directory) = ::closedir;

  // Memory.
  int (*memfd_create)(const char* name, unsigned flags) = ::memfd_create;
  int (*ftruncate)(int fd, int64_t bytes) = ::ftruncate;
  int (*fcntl)(int fd, int command, int64_t argument) = [](int fd, int command, int64_t argument) {
    return ::fcntl(fd, command, argument);
  };
  void* (*mmap)(void* address, size_t bytes, int protection, int flags, int fd,
                int64_t offset) = ::mmap;
  int (*munmap)(void* address, size_t bytes) = ::munmap;
  int (*madvise)(void* address, size_t bytes, int advice) = ::madvise;
  int (*mincore)(void* address, size_t bytes, unsigned char* there) = ::mincore;
  int (*getpagesize)() = ::getpagesize;

  // Sockets.
  int (*socket)(int domain, int type, int protocol) = ::socket;
  int (*bind)(int fd, const struct sockaddr* address, socklen_t bytes) = ::bind;
  int (*listen)(int fd, int backlog) = ::listen;
  int (*accept4)(int fd, struct sockaddr* address, socklen_t* bytes, int flags) = ::accept4;
  int (*connect)(int fd, const struct sockaddr* address, socklen_t bytes) = ::connect;
  ssize_t (*sendmsg)(int fd, const struct msghdr* message, int flags) = ::sendmsg;
  ssize_t (*recvmsg)(int fd, struct msghdr* message, int flags) = ::recvmsg;
  int (*getsockopt)(int fd, int level, int name, void* value, socklen_t* bytes) = ::getsockopt;
  int (*setsockopt)(int fd, int level, int name, const void* value, socklen_t bytes) = ::setsockopt;
  int (*getsockname)(int fd, struct sockaddr* address, socklen_t* bytes) = ::getsockname;
  int (*getifaddrs)(struct ifaddrs** addresses) = ::getifaddrs;
  void (*freeifaddrs)(struct ifaddrs* addresses) = ::freeifaddrs;
  int (*getaddrinfo)(const char* host, const char* service, const struct addrinfo* hints,
                     struct addrinfo** found) = ::getaddrinfo;
  void (*freeaddrinfo)(struct addrinfo* found) = ::freeaddrinfo;
  int (*poll)(struct pollfd* fds, nfds_t count, int timeout_ms) = ::poll;

  // Processes, time and randomness.
  /// Returns the error, like the original, and does not set errno.
  int (*pthread_create)(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                        void* argument) = ::pthread_create;
  int (*futex)(uint32_t* word, int operation, uint32_t value,
               const struct timespec* timeout) = Numbered<SYS_futex>();
  int (*setpriority)(int which, id_t who, int nice) = Numbered<SYS_setpriority>();
  int (*pidfd_open)(pid_t pid, unsigned flags) = Numbered<SYS_pidfd_open>();
  /// Makes the ioctl PIDFD_GET_INFO.
  int (*pidfd_get_info)(int pidfd, PidfdInfo* info) = [](int pidfd, PidfdInfo* info) {
    return ::ioctl(pidfd, _IOWR(0xFF, 11, PidfdInfo), info);
  };
  pid_t (*getpid)() = ::getpid;
  unsigned long (*getauxval)(unsigned long which) = ::getauxval;
  pid_t (*gettid)() = Numbered<SYS_gettid>();
  uid_t (*geteuid)() = ::geteuid;
  int (*set_robust_list)(void* head, size_t bytes) = Numbered<SYS_set_robust_list>();
  int (*sched_getaffinity)(pid_t pid, size_t bytes, cpu_set_t* mask) = ::sched_getaffinity;
  int (*clock_gettime)(clockid_t clock, struct timespec* time) = ::clock_gettime;
  ssize_t (*getrandom)(void* data, size_t bytes, unsigned flags) = ::getrandom;

  /// Called when the protocol passes a named point, such as "vote.before". Does nothing by default.
  /// Tests stop or kill a rank there.
  void (*reached)(const char* point) = [](const char*) {};
};

/// Returns the current table: the system's own, unless a test has replaced it.
const SystemCalls& os();

/// Sets the current table for tests. `calls` must outlive its use. nullptr restores the system's
/// own.
void replace_system_calls(const SystemCalls* calls);

/// Returns the system's own table, which tests copy and change.
const SystemCalls& real_system_calls();

/// Return the time on the monotonic clock in milliseconds and nanoseconds.
int64_t now_ms();
int64_t now_ns();

/// The end of a wait.
class Deadline {
 public:
  explicit Deadline(int64_t limit_ms) : at_ns_(now_ns() + limit_ms * 1'000'000) {}

  /// Returns true if the deadline passed at least `grace_ms` ago.
  bool passed(int64_t grace_ms = 0) const { return now_ns() >= at_ns_ + grace_ms * 1'000'000; }
  /// Returns the time left, or 0 if the deadline has passed. Rounds up to whole milliseconds, so
  /// that a sleep of that time does not end before the deadline.
  int64_t left_ms() const {
    return std::max<int64_t>((at_ns_ - now_ns() + 999'999) / 1'000'000, 0);
  }
  auto operator<=>(const Deadline&) const = default;

 private:
  int64_t at_ns_;
};

/// The limit of uninterrupted() for calls that take little time.
constexpr int64_t kInterruptedMs = 1'000;

/// Repeats `call` while signals interrupt it, for at most `limit_ms`, because some timers fire
/// faster than a call completes. Then returns -1 (or null) with EINTR.
template <class Call>
auto uninterrupted(const Call& call, int64_t limit_ms = 60'000) {
  const auto interrupted = [](auto answer) {
    using Answer = decltype(answer);
    if constexpr (std::is_pointer_v<Answer>)
      return answer == nullptr && errno == EINTR;
    else
      return answer == -1 && errno == EINTR;
  };
  auto answer = call();
  if (!interrupted(answer)) return answer;
  const Deadline deadline(limit_ms);
  while (interrupted(answer) && !deadline.passed()) answer = call();
  return answer;
}

/// Returns up to `most` bytes of a system file, or "" if it cannot be read.
std::string read_small_file(const char* path, size_t most = 4096);

/// Renames a file within a directory to a name that does not exist. Returns -1 with EEXIST if it
/// exists. A file system without such a rename replaces the existing file, so check for it before.
int rename_to_new(int directory, const std::string& from, const std::string& to);

/// Returns this process's directory, for messages about relative paths, or "unknown" if the system
/// cannot name it.
std::string working_directory();

/// Owns a file descriptor. Forked children close it.
class Fd {
 public:
  Fd() = default;
  /// Does not protect against a fork between the creation of `fd` and this call. open() does.
  explicit Fd(int fd) : fd_(fd) { note_descriptor(fd); }
  Fd(Fd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), locked_(std::exchange(other.locked_, false)) {}
  Fd& operator=(Fd&& other) noexcept {
    Fd taken(std::move(other));
    std::swap(fd_, taken.fd_);
    std::swap(locked_, taken.locked_);
    return *this;
  }
  ~Fd() { reset(); }

  /// Runs a call that returns a new descriptor, or -1 and errno.
  template <class Call>
  static Fd open(const Call& call) {
    const DescriptorChange change;
    return Fd(call());
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

  /// Locks the file against its other descriptors. Returns 0, or -1 and errno.
  int lock() {
    const int answer = uninterrupted([&] { return os().flock(fd_, LOCK_EX | LOCK_NB); });
    locked_ = locked_ || answer == 0;
    return answer;
  }

  /// Releases the lock, also for children of vfork and _Fork, which share the descriptor.
  void unlock() {
    if (std::exchange(locked_, false)) (void)os().flock(fd_, LOCK_UN | LOCK_NB);
  }

  void reset() { (void)close(os().close); }
  /// Closes the descriptor with `call`, and returns the result.
  template <class Call>
  int close(const Call& call) {
    if (!valid()) return 0;
    const DescriptorChange change;
    const bool ours = forget_descriptor(fd_);
    if (ours) unlock();
    const int fd = std::exchange(fd_, -1);
    locked_ = false;
    return ours ? call(fd) : 0;
  }

 private:
  int fd_ = -1;
  bool locked_ = false;
};

}  // namespace zero
