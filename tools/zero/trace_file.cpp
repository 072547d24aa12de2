// SPDX-License-Identifier: Apache-2.0
#include "trace_file.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/os.h"
#include "base/refusals.h"
#include "base/text.h"
#include "trace_event.h"

namespace zero::tool {
namespace {

constexpr size_t kLongestLine = 8192;

Status not_a_trace(const std::string& path, std::string_view why) {
  return Status(ZERO_ERR_ARGUMENT, text("'", path, "' is not a libzero trace: ", why));
}

/// Returns 0 if there is no regular file. Opening a pipe would wait for its writer.
uint64_t inode_of(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) ? info.st_ino : 0;
}

}  // namespace

// ---- One file.

Result<TraceFile> TraceFile::open(const std::string& path) {
  TraceFile file;
  file.path_ = path;
  file.line_.resize(kLongestLine + 1);
  do {  // again if a job has replaced the file meanwhile
    file.inode_ = inode_of(path);
    if (file.inode_ == 0) return not_a_trace(path, "it is not a file, or was removed");
    file.in_ = std::ifstream(path, std::ios::binary);
    if (!file.in_) return Status(ZERO_ERR_SYSTEM, text("'", path, "': ", errno_text(errno)));
  } while (inode_of(path) != file.inode_);
  bool found = false;
  // The line that says whose file it is precedes all events.
  while (!found) {
    const std::string_view line = ZERO_TRY(file.next_line());
    if (line.empty()) return not_a_trace(path, "it does not name its rank");
    const Json event = Json::parse(line, nullptr, false);
    if (!event.is_object()) return not_a_trace(path, "a line is not an event");
    const Json& arguments = arguments_of(event);
    found = is(event, "name", "libzero");
    file.group_ = field<std::string>(arguments, "group", "");
    file.rank_ = field<int32_t>(arguments, "rank", -1);
    file.world_ = field<int32_t>(arguments, "world", -1);
  }
  if (file.rank_ < 0 || file.world_ <= file.rank_) return not_a_trace(path, "its rank is wrong");
  file.rewind();
  file.limit_ = -1;
  return file;
}

bool TraceFile::ended() const {
  if (ended_) return true;
  const Fd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return fd.valid() && flock(fd.get(), LOCK_SH | LOCK_NB) == 0;  // a writer holds the lock
}

void TraceFile::rewind() {
  limit_ = at_;
  at_ = 0;
  ended_ = false;
}

/// Continues after the last event, where the next write begins.
void TraceFile::resume() {
  in_.clear();
  in_.seekg(at_);
  next_ = at_;
}

/// Returns the next complete event without its comma, or "".
Result<std::string_view> TraceFile::next_line() {
  while (limit_ < 0 || at_ < limit_) {
    in_.getline(line_.data(), static_cast<std::streamsize>(line_.size()));
    if (in_.eof()) break;
    if (!in_) return not_a_trace(path_, "a line is too long");
    const std::streamoff begin = next_;
    next_ += in_.gcount();
    std::string_view line(line_.data(), static_cast<size_t>(in_.gcount() - 1));
    if (line.ends_with(',')) line.remove_suffix(1);
    if (line.empty() || line == "[") continue;
    if (line == "]") break;
    at_ = begin + static_cast<std::streamoff>(line.size());
    return line;
  }
  return std::string_view();
}

Status TraceFile::read(const Take& take) {
  resume();
  for (;;) {
    const std::string_view line = ZERO_TRY(next_line());
    if (line.empty()) return {};
    const Json event = Json::parse(line, nullptr, false);
    if (!event.is_object()) return not_a_trace(path_, "a line is not an event");
    ended_ = ended_ || is(event, "name", "libzero end");
    ZERO_TRY(take(line, event));
  }
}

Status TraceFile::skip() {
  return read([](std::string_view, const Json&) { return Status(); });
}

// ---- A directory.

bool names_trace(const std::filesystem::path& path) {
  const std::string name = path.filename();
  return path.extension() == ".json" && name.find("rank-") != name.npos;
}

Result<std::vector<TraceFile>> open_traces(const std::string& directory) {
  std::error_code error;
  std::vector<TraceFile> all;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error))
    if (names_trace(at->path())) all.push_back(ZERO_TRY(TraceFile::open(at->path())));
  const bool is_missing = error == std::errc::no_such_file_or_directory;
  if (error && !is_missing)
    return Status(ZERO_ERR_SYSTEM, text("'", directory, "': ", errno_text(error.value())));
  if (all.empty())
    return wrong_state("'", directory,
                       "' has no traces: ZERO_TRACE and zero_trace_start write them");
  // A job with another number of ranks leaves the files of ranks that the new job lacks.
  std::map<std::string, int32_t> worlds;
  for (const TraceFile& file : all)
    if (file.rank() == 0) worlds[file.group()] = file.world();
  std::erase_if(all, [&](const TraceFile& file) {
    const auto found = worlds.find(file.group());
    return found != worlds.end() && found->second != file.world();
  });
  std::ranges::sort(all, {},
                    [](const TraceFile& file) { return std::tuple(file.group(), file.rank()); });
  return all;
}

}  // namespace zero::tool
