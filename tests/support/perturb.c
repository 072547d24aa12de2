// SPDX-License-Identifier: Apache-2.0
// Produces rare schedules. Preloaded into a program (LD_PRELOAD), this sleeps at random where
// threads and processes meet: at locks, condition variables, futexes, polls, messages, looks at the
// clock, and the library's numbered points. The seed is ZERO_PERTURB, or the argument of
// perturb_seed(). It selects how long and how often.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_uint_fast64_t seed;
static atomic_uint threads, forks;  // so far, with this seed
static atomic_uint round_number;    // counts the seeds
static __thread uint64_t state;
static __thread unsigned state_round;

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

void perturb_seed(uint64_t value) {
  atomic_store(&seed, value);
  atomic_store(&threads, 0);
  atomic_fetch_add(&round_number, 1);
}

static uint64_t draw(void) {
  const unsigned now = atomic_load_explicit(&round_number, memory_order_relaxed);
  if (state == 0 || state_round != now) {
    state_round = now;
    state = mix(atomic_load(&seed) * 4096 + atomic_fetch_add(&threads, 1) + 1) | 1;
  }
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state >> 11;
}

/// Sleeps briefly and often with one seed, rarely and longer with another. The total time is the
/// same.
void perturb(void) {
  const uint64_t drawn = draw();
  const uint64_t most_us = UINT64_C(50) << atomic_load_explicit(&seed, memory_order_relaxed) % 6;
  if (drawn % 4096 >= 16384 / most_us) return;
  const int kept = errno;
  if ((drawn >> 12) % 4 == 0) {
    sched_yield();
  } else {
    const struct timespec time = {0, (long)((drawn >> 14) % (most_us * 1000))};
    nanosleep(&time, NULL);
  }
  errno = kept;
}

static void note_fork(void) { atomic_fetch_add(&forks, 1); }
static void differ(void) { state = mix(draw() + atomic_load(&forks)) | 1; }

__attribute__((constructor)) static void begin(void) {
  const char* const value = getenv("ZERO_PERTURB");
  if (value != NULL) perturb_seed(strtoull(value, NULL, 0));
  pthread_atfork(note_fork, NULL, differ);
}

// Returns the version of the condition variables that programs are linked with today.
static void* next(const char* name) {
  const int watched = dlsym(RTLD_DEFAULT, "__tsan_init") != NULL;  // TSan wraps unversioned ones
  void* const newer = watched ? NULL : dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
  return newer != NULL ? newer : dlsym(RTLD_NEXT, name);
}

#define PERTURBED(type, name, parameters, arguments)                  \
  type name parameters {                                              \
    static type(*_Atomic original) parameters;                        \
    if (original == NULL) original = (type(*) parameters)next(#name); \
    perturb();                                                        \
    type(*const call) parameters = original;                          \
    const type result = call arguments;                               \
    perturb();                                                        \
    return result;                                                    \
  }

PERTURBED(int, pthread_mutex_lock, (pthread_mutex_t * mutex), (mutex))
PERTURBED(int, pthread_mutex_trylock, (pthread_mutex_t * mutex), (mutex))
PERTURBED(int, pthread_mutex_unlock, (pthread_mutex_t * mutex), (mutex))
PERTURBED(int, pthread_cond_signal, (pthread_cond_t * condition), (condition))
PERTURBED(int, pthread_cond_broadcast, (pthread_cond_t * condition), (condition))
PERTURBED(int, pthread_cond_wait, (pthread_cond_t * condition, pthread_mutex_t* mutex),
          (condition, mutex))
PERTURBED(int, pthread_cond_clockwait,
          (pthread_cond_t * condition, pthread_mutex_t* mutex, clockid_t clock,
           const struct timespec* until),
          (condition, mutex, clock, until))
PERTURBED(int, pthread_create,
          (pthread_t * thread, const pthread_attr_t* attributes, void* (*start)(void*),
           void* argument),
          (thread, attributes, start, argument))
PERTURBED(int, pthread_join, (pthread_t thread, void** ended), (thread, ended))
PERTURBED(int, clock_gettime, (clockid_t clock, struct timespec* time), (clock, time))
PERTURBED(int, poll, (struct pollfd * fds, nfds_t count, int timeout_ms), (fds, count, timeout_ms))
PERTURBED(int, connect, (int fd, const struct sockaddr* address, socklen_t bytes),
          (fd, address, bytes))
PERTURBED(int, accept4, (int fd, struct sockaddr* address, socklen_t* bytes, int flags),
          (fd, address, bytes, flags))
PERTURBED(ssize_t, sendmsg, (int fd, const struct msghdr* message, int flags), (fd, message, flags))
PERTURBED(ssize_t, recvmsg, (int fd, struct msghdr* message, int flags), (fd, message, flags))

long syscall(long number, ...) {
  static long (*_Atomic original)(long, ...);
  if (original == NULL) original = (long (*)(long, ...))next("syscall");
  long given[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; i++) given[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_futex) perturb();
  long (*const call)(long, ...) = original;
  return call(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}
