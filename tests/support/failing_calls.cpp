// SPDX-License-Identifier: Apache-2.0
#include "support/failing_calls.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <type_traits>

#include "base/os.h"
#include "support/trials.h"

namespace zero::test {
namespace {

thread_local int this_rank = -1;

struct State {
  Fault fault;
  int64_t calls = 0;
  int64_t hits = 0;
  std::vector<FileCall> log;
  std::map<int, std::string> names;  // of open descriptors
  std::set<int> failed_syncs;
  bool synced_again = false;
  int stalled = 0;
  bool awake = false;
  std::function<void(const char*)> on_point;
  std::function<void()> on_kill;
};

std::mutex mutex;
std::condition_variable awake;
State* state = nullptr;  // a thread may still be in the table when it is gone

enum class Verdict { pass, fail, fail_after, shorten };

bool fails(Verdict verdict) { return verdict == Verdict::fail || verdict == Verdict::fail_after; }

/// Counts a call and decides its fate. `fd` identifies the file if `name` is null.
Verdict judge(const char* operation, int fd, const char* name) {
  std::unique_lock lock(mutex);
  if (!state) return Verdict::pass;
  const Fault& fault = state->fault;
  FileCall call{operation, name ? name : state->names[fd], this_rank, false};
  const bool matches = (fault.rank < 0 || fault.rank == this_rank) &&
                       !(fault.aside && this_rank >= 0) &&
                       (fault.operation.empty() || fault.operation == operation);
  const int64_t number = matches ? state->calls++ : -1;
  const bool hit = matches && fault.kind != Fault::none &&
                   (number == fault.at || (fault.for_ever && number > fault.at));
  if (hit) {
    state->hits++;
    if (fault.kind == Fault::kill) {
      if (state->on_kill) state->on_kill();
      ::kill(::getpid(), SIGKILL);
      ::pause();
    }
    call.failed = fault.kind == Fault::error;
  }
  const bool is_sync = call.operation == "fsync";
  if (is_sync && state->failed_syncs.count(fd)) state->synced_again = true;
  if (is_sync && call.failed && fault.error_number != EINTR) state->failed_syncs.insert(fd);
  state->log.push_back(std::move(call));
  if (!hit) return Verdict::pass;
  if (fault.kind == Fault::stall) {
    State* const mine = state;
    const auto ends = [mine] { return state != mine || mine->awake; };
    mine->stalled++;
    awake.wait(lock, ends);
    if (state == mine) mine->stalled--;
    return Verdict::pass;
  }
  if (fault.kind == Fault::short_transfer) return Verdict::shorten;
  return fault.done_first ? Verdict::fail_after : Verdict::fail;
}

int fault_errno() {
  const std::lock_guard lock(mutex);
  return state ? state->fault.error_number : EIO;
}

/// Returns the result of the call, or `failed` with the errno of the fault.
template <class Answer, class Call>
Answer decide(Verdict verdict, Answer failed, Call call) {
  if (!fails(verdict)) return call();
  if (verdict == Verdict::fail_after) call();
  errno = fault_errno();
  return failed;
}

std::atomic<const SystemCalls*> below = &real_system_calls();
const SystemCalls& real() { return *below; }

/// Returns the path that follows the descriptor in the arguments, or null.
template <class... Rest>
const char* path_of(const char* path, Rest...) {
  return path;
}
template <class... Rest>
const char* path_of(Rest...) {
  return nullptr;
}

/// Replaces the table's member `Call` by one that calls judge() first.
template <auto Call, class Function = std::remove_cvref_t<decltype(real().*Call)>>
struct Judged;
template <auto Call, class... Rest>
struct Judged<Call, int (*)(int, Rest...)> {
  static inline const char* name = "";
  static int call(int fd, Rest... rest) {
    return decide(judge(name, fd, path_of(rest...)), -1,
                  [&] { return (real().*Call)(fd, rest...); });
  }
  static void put_into(SystemCalls& table, const char* its_name) {
    name = its_name;
    table.*Call = call;
  }
};

int f_openat(int directory, const char* path, int flags, unsigned mode) {
  // A call that takes place and then fails would leak a descriptor.
  if (fails(judge("openat", -1, path))) return errno = fault_errno(), -1;
  const int fd = real().openat(directory, path, flags, mode);
  const int error = errno;
  const std::lock_guard lock(mutex);
  errno = error;
  if (!state) return fd;
  if (fd >= 0) state->names[fd] = path;
  state->failed_syncs.erase(fd);
  errno = error;
  return fd;
}
int f_close(int fd) {
  // Linux closes the descriptor even if close reports an error.
  const Verdict verdict = judge("close", fd, nullptr);
  const int answer = real().close(fd);
  return decide(verdict, -1, [&] { return answer; });
}
template <class Call, class Data>
ssize_t transfer(const char* name, Call call, int fd, Data* data, size_t bytes, int64_t offset) {
  const Verdict verdict = judge(name, fd, nullptr);
  if (verdict == Verdict::shorten) bytes = std::max<size_t>(bytes / 2, std::min<size_t>(bytes, 1));
  return decide(verdict, ssize_t{-1}, [&] { return call(fd, data, bytes, offset); });
}
ssize_t f_pread(int fd, void* data, size_t bytes, int64_t offset) {
  return transfer("pread", real().pread, fd, data, bytes, offset);
}
ssize_t f_pwrite(int fd, const void* data, size_t bytes, int64_t offset) {
  return transfer("pwrite", real().pwrite, fd, data, bytes, offset);
}
int f_renameat2(int from_directory, const char* from, int to_directory, const char* to,
                unsigned flags) {
  const std::string name = std::string(from) + ">" + to;
  return decide(judge("renameat2", -1, name.c_str()), -1,
                [&] { return real().renameat2(from_directory, from, to_directory, to, flags); });
}
DIR* f_fdopendir(int fd) {
  if (fails(judge("fdopendir", fd, nullptr))) return errno = fault_errno(), nullptr;
  return real().fdopendir(fd);
}
struct dirent* f_readdir(DIR* directory) {
  return decide(judge("readdir", -1, ""), static_cast<struct dirent*>(nullptr),
                [&] { return real().readdir(directory); });
}
int f_closedir(DIR* directory) {
  const Verdict verdict = judge("closedir", -1, "");
  const int answer = real().closedir(directory);
  return decide(verdict, -1, [&] { return answer; });
}
void f_reached(const char* point) {
  std::function<void(const char*)> call;
  {
    const std::lock_guard lock(mutex);
    if (state) call = state->on_point;
  }
  if (call) call(point);
}

SystemCalls make_table() {
  SystemCalls table = real();
  table.openat = f_openat;
  table.close = f_close;
  table.pread = f_pread;
  table.pwrite = f_pwrite;
  Judged<&SystemCalls::fsync>::put_into(table, "fsync");
  Judged<&SystemCalls::fstat>::put_into(table, "fstat");
  Judged<&SystemCalls::fstatat>::put_into(table, "fstatat");
  Judged<&SystemCalls::fallocate>::put_into(table, "fallocate");
  Judged<&SystemCalls::fcntl>::put_into(table, "fcntl");
  Judged<&SystemCalls::mkdirat>::put_into(table, "mkdirat");
  Judged<&SystemCalls::unlinkat>::put_into(table, "unlinkat");
  table.renameat2 = f_renameat2;
  Judged<&SystemCalls::flock>::put_into(table, "flock");
  table.fdopendir = f_fdopendir;
  table.readdir = f_readdir;
  table.closedir = f_closedir;
  table.reached = f_reached;
  return table;
}

}  // namespace

FailingCalls::FailingCalls(Fault fault) {
  static auto& tables = *new std::deque<SystemCalls>;  // never freed: a thread may be inside one
  const std::lock_guard lock(mutex);
  if (state) std::abort();
  below = &os();
  const SystemCalls& table = tables.emplace_back(make_table());
  state = new State;
  if (fault.kind != Fault::none) count_trial();
  state->fault = std::move(fault);
  replace_system_calls(&table);
}

FailingCalls::~FailingCalls() {
  replace_system_calls(below);
  const std::lock_guard lock(mutex);
  delete state;
  state = nullptr;
  awake.notify_all();
}

bool FailingCalls::stalled() const {
  const std::lock_guard lock(mutex);
  return state->stalled > 0;
}

void FailingCalls::wake() {
  const std::lock_guard lock(mutex);
  if (state != nullptr) state->awake = true;
  awake.notify_all();
}

int64_t FailingCalls::calls() const {
  const std::lock_guard lock(mutex);
  return state->calls;
}

int64_t FailingCalls::hits() const {
  const std::lock_guard lock(mutex);
  return state->hits;
}

std::vector<FileCall> FailingCalls::log() const {
  const std::lock_guard lock(mutex);
  return state->log;
}

bool FailingCalls::synced_again() const {
  const std::lock_guard lock(mutex);
  return state->synced_again;
}

void FailingCalls::on_point(std::function<void(const char*)> call) {
  const std::lock_guard lock(mutex);
  state->on_point = std::move(call);
}

void FailingCalls::on_kill(std::function<void()> call) {
  const std::lock_guard lock(mutex);
  state->on_kill = std::move(call);
}

void set_rank(int rank) { this_rank = rank; }

}  // namespace zero::test
