// SPDX-License-Identifier: Apache-2.0
// The system's own calls. Where the C library's wrapper is younger than the kernels and libraries
// we run on, the call is made by its number.
#include "base/os.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <bit>

#include "base/working_directory.h"

namespace zero {
namespace {

static_assert(sizeof(off_t) == sizeof(int64_t));

int real_openat(int directory, const char* path, int flags, unsigned mode) {
  return ::openat(directory, path, flags, mode);
}

int real_renameat2(int from_directory, const char* from, int to_directory, const char* to,
                   unsigned flags) {
  return static_cast<int>(::syscall(SYS_renameat2, from_directory, from, to_directory, to, flags));
}

int real_fcntl(int fd, int command, int64_t argument) { return ::fcntl(fd, command, argument); }

int real_futex(uint32_t* word, int operation, uint32_t value, const struct timespec* timeout) {
  return static_cast<int>(::syscall(SYS_futex, word, operation, value, timeout, nullptr, 0));
}

int real_pidfd_get_info(int pidfd, PidfdInfo* info) {
  return ::ioctl(pidfd, _IOWR(0xFF, 11, PidfdInfo), info);
}

int real_pidfd_open(pid_t pid, unsigned flags) {
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, flags));
}

pid_t real_gettid() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

int real_set_robust_list(void* head, size_t bytes) {
  return static_cast<int>(::syscall(SYS_set_robust_list, head, bytes));
}

int real_sched_getaffinity(pid_t pid, size_t bytes, void* mask) {
  return ::sched_getaffinity(pid, bytes, static_cast<cpu_set_t*>(mask));
}

constexpr SystemCalls kRealCalls = {
    .openat = real_openat,
    .close = ::close,
    .pread = ::pread,
    .pwrite = ::pwrite,
    .fsync = ::fsync,
    .fstat = ::fstat,
    .fstatat = ::fstatat,
    .fallocate = ::fallocate,
    .mkdirat = ::mkdirat,
    .unlinkat = ::unlinkat,
    .renameat2 = real_renameat2,
    .flock = ::flock,
    .fdopendir = ::fdopendir,
    .readdir = ::readdir,
    .closedir = ::closedir,

    .memfd_create = ::memfd_create,
    .ftruncate = ::ftruncate,
    .fcntl = real_fcntl,
    .mmap = ::mmap,
    .munmap = ::munmap,
    .madvise = ::madvise,

    .socket = ::socket,
    .bind = ::bind,
    .listen = ::listen,
    .accept4 = ::accept4,
    .connect = ::connect,
    .sendmsg = ::sendmsg,
    .recvmsg = ::recvmsg,
    .getsockopt = ::getsockopt,
    .setsockopt = ::setsockopt,
    .getsockname = ::getsockname,
    .getifaddrs = ::getifaddrs,
    .freeifaddrs = ::freeifaddrs,
    .getaddrinfo = ::getaddrinfo,
    .freeaddrinfo = ::freeaddrinfo,
    .poll = ::poll,

    .pthread_create = ::pthread_create,
    .futex = real_futex,
    .pidfd_open = real_pidfd_open,
    .pidfd_get_info = real_pidfd_get_info,
    .getpid = ::getpid,
    .gettid = real_gettid,
    .geteuid = ::geteuid,
    .set_robust_list = real_set_robust_list,
    .sched_getaffinity = real_sched_getaffinity,
    .clock_gettime = ::clock_gettime,
    .getrandom = ::getrandom,

    .reached = [](const char*) {},
};

std::atomic<const SystemCalls*> in_force{&kRealCalls};

}  // namespace

const SystemCalls& os() { return *in_force.load(std::memory_order_acquire); }

void replace_system_calls(const SystemCalls* calls) {
  in_force.store(calls != nullptr ? calls : &kRealCalls, std::memory_order_release);
}

const SystemCalls& real_system_calls() { return kRealCalls; }

int64_t now_ns() {
  struct timespec time = {};
  os().clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

int64_t now_ms() { return now_ns() / 1'000'000; }

std::string working_directory() {
  char path[4096];
  return ::getcwd(path, sizeof path) != nullptr ? path : "unknown";
}

int usable_cores() {
  alignas(uint64_t) std::byte mask[1024] = {};
  if (os().sched_getaffinity(0, sizeof mask, mask) < 0) return 1;
  int count = 0;
  for (const std::byte part : mask) count += std::popcount(static_cast<unsigned char>(part));
  return count > 0 ? count : 1;
}

}  // namespace zero
