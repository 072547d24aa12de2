// SPDX-License-Identifier: Apache-2.0
// Each write closes the JSON array, and the next write overwrites the closing bracket. So the file
// is valid JSON between two writes, even if its process is killed.
#include "comm/trace.h"

#include <linux/fs.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/file_size_signal.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/refusals.h"
#include "base/secret.h"
#include "base/text.h"

namespace zero {
namespace {

constexpr size_t kEvents = 16384;
constexpr std::chrono::milliseconds kPause{50};
constexpr int64_t kDiskMs = 10'000;                   // for a disk that does not respond
constexpr int64_t kMostFileBytes = int64_t{1} << 30;  // of a file
constexpr size_t kChunkBytes = 65536, kEventBytes = 512, kMarkBytes = 8;
// The offset changes by larger steps only, because a change can break the nesting of events.
constexpr int64_t kOffsetStepNs = 100'000;
constexpr int kMostFiles = 1000;  // of one rank in one directory at a time

constexpr std::string_view kEnd = "\n]\n";

constexpr const char* kKinds[] = {"call", "phase", "transfer", "wait"};  // in the order of Kind
constexpr const char* kValues[] = {nullptr, nullptr, "bytes", "rank"};

pid_t this_thread() {
  thread_local const pid_t number = os().gettid();
  return number;
}

Status refused(const std::string& path, const char* what, int error) {
  return Status(ZERO_ERR_SYSTEM, text("'", path, "': ", what, ": ", errno_text(error)));
}

/// A file with an array, one event per line. Discards a chunk that cannot be written completely.
class EventLines {
 public:
  EventLines(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  bool full() const { return written_ + static_cast<int64_t>(used_) >= kMostFileBytes; }

  /// Adds an event of at most kEventBytes, formatted as with printf.
  [[gnu::format(printf, 2, 3)]] Status add(const char* format, ...) {
    if (used_ + kEventBytes + kMarkBytes > kChunkBytes) ZERO_TRY(flush());
    mark(written_ == 0 && used_ == 0 ? "[\n" : ",\n");
    va_list values;
    va_start(values, format);
    used_ += static_cast<size_t>(std::vsnprintf(chunk_ + used_, kEventBytes, format, values));
    va_end(values);
    return {};
  }
  Status flush() {
    const size_t used = used_;
    mark(kEnd);
    for (size_t done = 0; done < used_;) {
      const ssize_t bytes = uninterrupted([&] {
        return os().pwrite(fd_.get(), chunk_ + done, used_ - done,
                           written_ + static_cast<int64_t>(done));
      });
      if (bytes <= 0) {
        const int error = bytes < 0 ? errno : ENOSPC;
        end_again();
        return refused(path_, "writing", error);
      }
      done += static_cast<size_t>(bytes);
    }
    written_ += static_cast<int64_t>(used);
    used_ = 0;
    return {};
  }

 private:
  void mark(std::string_view between) { used_ += between.copy(chunk_ + used_, kMarkBytes); }
  /// Restores the closing bracket after the last complete write. This needs no space on the disk.
  void end_again() {
    used_ = 0;
    const int64_t length = written_ == 0 ? 0 : written_ + static_cast<int64_t>(kEnd.size());
    if (written_ > 0) (void)os().pwrite(fd_.get(), kEnd.data(), kEnd.size(), written_);
    (void)os().ftruncate(fd_.get(), length);
  }

  const Fd fd_;
  const std::string path_;
  int64_t written_ = 0;
  size_t used_ = 0;
  char chunk_[kChunkBytes + kMarkBytes];
};

/// Creates and locks the file of a rank under a temporary name that no reader looks for.
Result<std::unique_ptr<EventLines>> make(const std::string& temporary, const std::string& path,
                                         const Trace::Seat& seat) {
  Fd fd = Fd::open([&] {
    return uninterrupted([&] {
      return os().openat(AT_FDCWD, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                         0666);
    });
  });
  if (!fd.valid()) return refused(path, "creating the file", errno);
  (void)fd.lock();  // some file systems have no locks
  auto file = std::make_unique<EventLines>(std::move(fd), path);
  const auto width = static_cast<int>(text(seat.world - 1).size());  // viewers sort names as texts
  ZERO_TRY(
      file->add("{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,"
                "\"args\":{\"name\":\"%srank %*d of %d\"}}",
                seat.rank, seat.group.c_str(), width, seat.rank, seat.world));
  ZERO_TRY(
      file->add("{\"name\":\"libzero\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{"
                "\"group\":\"%s\",\"rank\":%d,\"world\":%d,\"comm\":\"%s\",\"process\":%d}}",
                seat.rank, seat.group.c_str(), seat.rank, seat.world, seat.comm, os().getpid()));
  ZERO_TRY(file->flush());
  return file;
}

/// Locks a file that already has the name, so that no other job replaces it. Returns false if a
/// trace is being written there, or if another job has just replaced the file.
bool take_place(Fd& old) {
  struct stat info;
  return (old.lock() == 0 || errno != EWOULDBLOCK) && os().fstat(old.get(), &info) == 0 &&
         info.st_nlink > 0;
}

/// Gives a file its final name, unless a file other than `old` has it. `old` may be invalid.
int rename_over(const Fd& old, const std::string& temporary, const std::string& path) {
  if (!old.valid()) return rename_to_new(AT_FDCWD, temporary, path);
  return uninterrupted(
      [&] { return os().renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), 0); });
}

/// Creates the file of a rank and renames it only after it identifies the rank, so that readers
/// never see it without. Replaces a file that an ended job left. Appends a number to the group if
/// the rank has another file there.
Result<std::unique_ptr<EventLines>> create(const std::string& directory, Trace::Seat seat) {
  if (uninterrupted([&] { return os().mkdirat(AT_FDCWD, directory.c_str(), 0777); }) != 0 &&
      errno != EEXIST)
    return refused(directory, "creating the directory", errno);
  uint64_t drawn = 0;
  ZERO_TRY(draw_random(std::as_writable_bytes(std::span(&drawn, 1))));
  const std::string temporary = text(directory, "/.trace-", hex(drawn)), given = seat.group;
  for (int number = 2; number < kMostFiles; number++) {
    const std::string path = text(directory, "/", seat.group, "rank-", seat.rank, ".json");
    Fd old = Fd::open([&] {
      return uninterrupted([&] {
        return os().openat(AT_FDCWD, path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                           0);
      });
    });
    if (!old.valid() || take_place(old)) {
      auto file = make(temporary, path, seat);
      if (file.ok() && rename_over(old, temporary, path) == 0) return file;
      const int error = errno;
      (void)os().unlinkat(AT_FDCWD, temporary.c_str(), 0);
      if (!file.ok()) return file;
      if (error != EEXIST) return refused(path, "creating the file", error);
    }
    seat.group = text(given, number, ".");
  }
  return refused(directory, "creating a file", EEXIST);
}

}  // namespace

struct Trace::Event {
  int64_t begin_ns, end_ns, value;
  pid_t thread;
  Kind kind;
  char name[35];
};

struct Trace::State {
  std::mutex mutex;
  std::condition_variable wake;
  bool on = false, ends = false;
  std::vector<Event> events;  // with room for kEvents
  uint64_t dropped = 0;
  int64_t offset_ns = 0;
  int32_t rank = 0;
  std::unique_ptr<EventLines> file;  // used by the writer

  Status write(const std::vector<Event>& taken, int64_t offset);
  Status write_all();
  Status run();
};

/// Writes events. Drops those that do not fit in the file.
Status Trace::State::write(const std::vector<Event>& taken, int64_t offset) {
  uint64_t lost = 0;
  for (const Event& event : taken) {
    if (file->full()) {
      lost++;
      continue;
    }
    const auto kind = static_cast<size_t>(event.kind);
    const auto begin = event.begin_ns + offset, length = event.end_ns - event.begin_ns;
    char arguments[64] = "", waited[40] = "";
    if (event.kind == Kind::wait && event.value >= 0 && event.value != rank)
      std::snprintf(waited, sizeof waited,
                    "wait for rank %lld: ", static_cast<long long>(event.value));
    if (kValues[kind] != nullptr && event.value >= 0)
      std::snprintf(arguments, sizeof arguments, ",\"args\":{\"%s\":%lld}", kValues[kind],
                    static_cast<long long>(event.value));
    ZERO_TRY(
        file->add("{\"name\":\"%s%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%lld.%03lld,"
                  "\"dur\":%lld.%03lld,\"pid\":%d,\"tid\":%d%s}",
                  waited, event.name, kKinds[kind], static_cast<long long>(begin / 1000),
                  static_cast<long long>(begin % 1000), static_cast<long long>(length / 1000),
                  static_cast<long long>(length % 1000), rank, event.thread, arguments));
  }
  ZERO_TRY(file->flush());
  const std::lock_guard lock(mutex);
  dropped += lost;
  return {};
}

Status Trace::State::write_all() {
  std::vector<Event> taken;
  taken.reserve(kEvents);
  int64_t offset = 0;
  std::unique_lock lock(mutex);
  for (bool last = false; !last;) {
    // Wait: a slice; whoever ends the trace wakes this thread.
    wake.wait_for(lock, kPause, [this] { return ends || events.size() > kEvents / 2; });
    last = ends;
    std::swap(taken, events);
    if (std::abs(offset_ns - offset) > kOffsetStepNs) offset = offset_ns;
    lock.unlock();
    ZERO_TRY(write(taken, offset));
    taken.clear();
    lock.lock();
  }
  const auto lost = static_cast<unsigned long long>(dropped);
  lock.unlock();
  ZERO_TRY(
      file->add("{\"name\":\"libzero end\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,"
                "\"args\":{\"dropped\":%llu}}",
                rank, lost));
  return file->flush();
}

/// The main function of the writer thread.
Status Trace::State::run() {
  log_as(rank);
  Status status;
  if (!succeeds([&] { return status = write_all(), true; }))
    status = Status(ZERO_ERR_MEMORY, "out of memory");
  (void)succeeds([&] {
    if (!status.ok()) log(ZERO_LOG_WARNING, text("tracing stopped: ", status.text()));
    return true;
  });
  std::unique_ptr<EventLines> ended;
  const std::lock_guard lock(mutex);
  on = false;
  ended = std::move(file);
  return status;  // and closes the file after the lock is released
}

Trace::Trace(Device* device) : device_(device), state_(std::make_shared<State>()) {}

Trace::~Trace() {
  if (on()) (void)succeeds([this] { return stop().ok(); });
}

Status Trace::start(const std::string& directory, const Seat& seat) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.file != nullptr)
    return wrong_state("'", state.file->path(), "' is already being written");
  const FileSizeSignal held;
  std::unique_ptr<EventLines> file = ZERO_TRY(create(directory, seat));
  state.events.clear();
  state.events.reserve(kEvents);
  state.dropped = 0;
  state.rank = seat.rank;
  state.ends = false;
  writer_ = {};
  ZERO_TRY(writer_.start([shared = state_] { return shared->run(); }));
  state.file = std::move(file);  // the writer waits for the lock until then
  state.on = true;
  on_.store(true, std::memory_order_relaxed);
  return {};
}

Status Trace::stop() {
  Apart<Status> writer;  // another thread may start the next writer
  {
    const std::lock_guard lock(state_->mutex);
    if (!on_.exchange(false)) return wrong_state("no trace is being written");
    state_->on = false;
    state_->ends = true;
    std::swap(writer, writer_);
  }
  state_->wake.notify_one();
  std::optional<Status> end = writer.await(kDiskMs);
  if (end) return *std::move(end);
  return Status(ZERO_ERR_SYSTEM, text("the last events of the trace were not written within ",
                                      kDiskMs / 1000, " s: its thread is leaked"));
}

void Trace::add(Kind kind, std::string_view name, int64_t begin_ns, int64_t end_ns, int64_t value) {
  if (!on()) return;
  Event event{begin_ns, end_ns, value, this_thread(), kind, {}};
  name = name.substr(0, sizeof event.name - 1);
  // No name in the library contains a character that would end a JSON string.
  std::transform(name.begin(), name.end(), event.name, [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\' ? '?' : c;
  });
  State& state = *state_;
  bool wakes = false;
  {
    const std::lock_guard lock(state.mutex);
    if (!state.on) return;
    if (state.events.size() == kEvents) {
      state.dropped++;
      return;
    }
    state.events.push_back(event);
    wakes = state.events.size() == kEvents / 2 + 1;
  }
  if (wakes) state.wake.notify_one();
}

void Trace::set_offset_ns(int64_t offset_ns) {
  if (!on()) return;
  const std::lock_guard lock(state_->mutex);
  state_->offset_ns = offset_ns;
}

}  // namespace zero
