// SPDX-License-Identifier: Apache-2.0
#include "support/power_loss.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>

#include "base/os.h"
#include "support/scratch.h"

namespace zero::test {
namespace {

namespace fs = std::filesystem;

using Node = size_t;
using Inode = std::pair<dev_t, ino_t>;

struct Call {
  enum Kind { make, remove, rename, exchange, write, reserve, sync };
  Kind kind;
  Node node = 0;  // the directory whose entry changes, or the node that is written or synced
  std::string name = {}, to = {};
  Node made = 0;          // under `name`
  std::string data = {};  // written at `offset`; for a reservation, as many bytes as are reserved
  size_t offset = 0;

  bool is_entry() const { return kind <= exchange; }
};

struct State {
  std::map<Inode, Node> nodes;
  std::vector<bool> is_directory;
  std::vector<std::map<std::string, Node>> entries;  // as at the start
  std::vector<std::string> data;
  std::vector<Call> calls;

  Node add(const Inode& inode, bool directory) {
    is_directory.push_back(directory);
    entries.emplace_back();
    data.emplace_back();
    return nodes[inode] = is_directory.size() - 1;
  }
};

std::mutex mutex;
State* state = nullptr;

Inode inode_of(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 ? Inode(info.st_dev, info.st_ino) : Inode();
}

/// Returns the node of a descriptor if it is below the root.
std::optional<Node> node_of(int fd) {
  if (state == nullptr) return {};
  const auto found = state->nodes.find(inode_of(fd));
  if (found == state->nodes.end()) return {};
  return found->second;
}

void take_in(const fs::path& path) {
  const Node node = state->add(inode_of(Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)).get()),
                               fs::is_directory(path));
  if (!state->is_directory[node]) {
    state->data[node] = read_file(path);
    return;
  }
  for (const auto& entry : fs::directory_iterator(path)) {
    state->entries[node][entry.path().filename()] = state->is_directory.size();
    take_in(entry.path());
  }
}

/// Records a call that has succeeded.
void note(int fd, Call call) {
  const std::lock_guard lock(mutex);
  const std::optional<Node> node = node_of(fd);
  if (!node) return;
  call.node = *node;
  state->calls.push_back(std::move(call));
}

void note_made(int directory, const char* name, const Inode& inode, bool is_directory) {
  const std::lock_guard lock(mutex);
  const std::optional<Node> in = node_of(directory);
  if (!in) return;
  const Node made = state->add(inode, is_directory);
  state->calls.push_back({Call::make, *in, name, {}, made});
}

const SystemCalls& real() { return real_system_calls(); }

int f_openat(int directory, const char* path, int flags, unsigned mode) {
  struct stat before {};
  const bool makes = (flags & O_CREAT) != 0 && ::fstatat(directory, path, &before, 0) != 0;
  const int fd = real().openat(directory, path, flags, mode);
  if (fd >= 0 && makes) note_made(directory, path, inode_of(fd), false);
  return fd;
}
int f_mkdirat(int directory, const char* path, unsigned mode) {
  const int answer = real().mkdirat(directory, path, mode);
  struct stat info {};
  if (answer == 0 && ::fstatat(directory, path, &info, 0) == 0)
    note_made(directory, path, {info.st_dev, info.st_ino}, true);
  return answer;
}
ssize_t f_pwrite(int fd, const void* data, size_t bytes, int64_t offset) {
  const ssize_t put = real().pwrite(fd, data, bytes, offset);
  if (put > 0)
    note(fd, {.kind = Call::write,
              .data = {static_cast<const char*>(data), static_cast<size_t>(put)},
              .offset = static_cast<size_t>(offset)});
  return put;
}
int f_fallocate(int fd, int mode, int64_t offset, int64_t bytes) {
  const int answer = real().fallocate(fd, mode, offset, bytes);
  if (answer == 0 && mode == 0)
    note(fd, {.kind = Call::reserve, .data = std::string(static_cast<size_t>(offset + bytes), 0)});
  return answer;
}
int f_fsync(int fd) {
  note(fd, {.kind = Call::sync});  // before the call, as concurrent changes may miss it
  return real().fsync(fd);
}
int f_unlinkat(int directory, const char* path, int flags) {
  const int answer = real().unlinkat(directory, path, flags);
  if (answer == 0) note(directory, {.kind = Call::remove, .name = path});
  return answer;
}
int f_renameat2(int from_directory, const char* from, int to_directory, const char* to,
                unsigned flags) {
  if (inode_of(from_directory) != inode_of(to_directory)) std::abort();  // not modelled
  const int answer = real().renameat2(from_directory, from, to_directory, to, flags);
  const auto kind = (flags & RENAME_EXCHANGE) != 0 ? Call::exchange : Call::rename;
  if (answer == 0) note(from_directory, {.kind = kind, .name = from, .to = to});
  return answer;
}

/// The entries of each directory after some of the calls.
using Entries = std::vector<std::map<std::string, Node>>;

void apply(const Call& call, std::map<std::string, Node>& names) {
  if (call.kind == Call::make) names[call.name] = call.made;
  if (call.kind == Call::remove) names.erase(call.name);
  if (call.kind == Call::exchange) std::swap(names.at(call.name), names.at(call.to));
  if (call.kind != Call::rename) return;
  names[call.to] = names.at(call.name);
  names.erase(call.name);
}

/// Returns for each node the number of calls up to its last sync, or 0.
std::vector<size_t> last_syncs(size_t calls) {
  std::vector<size_t> synced(state->is_directory.size());
  for (size_t i = 0; i < calls; i++)
    if (state->calls[i].kind == Call::sync) synced[state->calls[i].node] = i + 1;
  return synced;
}

Entries entries_there(size_t calls, const std::vector<size_t>& synced,
                      const PowerLoss::Choose& choose) {
  Entries entries = state->entries;
  std::set<std::pair<Node, std::string>> lost;  // names with a lost call
  for (size_t i = 0; i < calls; i++) {
    const Call& call = state->calls[i];
    if (!call.is_entry()) continue;
    const std::pair from(call.node, call.name);
    const std::pair to(call.node, call.to.empty() ? call.name : call.to);
    const bool possible = !lost.count(from) && !lost.count(to);
    if (i < synced[call.node] || (possible && choose(2) == 1)) {
      apply(call, entries[call.node]);
    } else {
      lost.insert({from, to});
    }
  }
  return entries;
}

/// Returns the contents of a file: what was synced, and nothing, a part, garbage or all of what was
/// written later.
std::string data_there(Node node, size_t calls, size_t synced, const PowerLoss::Choose& choose) {
  std::string data = state->data[node];
  enum Kept { nothing, part, garbage, all, kWays };
  size_t kept = all;
  bool chosen = false;
  for (size_t i = 0; i < calls; i++) {
    const Call& call = state->calls[i];
    if (call.node != node || (call.kind != Call::write && call.kind != Call::reserve)) continue;
    if (i >= synced && !chosen) kept = choose(kWays);
    chosen = chosen || i >= synced;
    if (kept == nothing) break;
    const size_t bytes = kept == part ? call.data.size() / 2 : call.data.size();
    data.resize(std::max(data.size(), call.offset + call.data.size()));
    if (call.kind == Call::write) data.replace(call.offset, bytes, call.data, 0, bytes);
    for (size_t at = 0; at < bytes && kept == garbage; at++) data[call.offset + at] ^= 0x55;
  }
  return data;
}

}  // namespace

PowerLoss::PowerLoss(const std::string& root) {
  static const SystemCalls table = [] {
    SystemCalls made = real();
    made.openat = f_openat;
    made.mkdirat = f_mkdirat;
    made.pwrite = f_pwrite;
    made.fallocate = f_fallocate;
    made.fsync = f_fsync;
    made.unlinkat = f_unlinkat;
    made.renameat2 = f_renameat2;
    return made;
  }();
  const std::lock_guard lock(mutex);
  if (state != nullptr) std::abort();
  state = new State;
  take_in(root);
  replace_system_calls(&table);
}

PowerLoss::~PowerLoss() {
  replace_system_calls(nullptr);
  const std::lock_guard lock(mutex);
  delete state;
  state = nullptr;
}

size_t PowerLoss::calls() const {
  const std::lock_guard lock(mutex);
  return state->calls.size();
}

PowerLoss::Image PowerLoss::image(size_t calls, const Choose& choose) const {
  const std::lock_guard lock(mutex);
  const std::vector<size_t> synced = last_syncs(calls);
  const Entries entries = entries_there(calls, synced, choose);
  Image image;
  const std::function<void(Node, const std::string&)> walk = [&](Node node,
                                                                 const std::string& path) {
    for (const auto& [name, child] : entries[node]) {
      const std::string below = path + "/" + name;
      if (state->is_directory[child]) {
        image[below] = std::nullopt;
        walk(child, below);
      } else {
        image[below] = data_there(child, calls, synced[child], choose);
      }
    }
  };
  walk(0, "");
  return image;
}

void PowerLoss::write(const Image& image, const std::string& to) {
  fs::create_directories(to);
  for (const auto& [path, data] : image) {
    if (data)
      write_file(to + path, *data);
    else
      fs::create_directory(to + path);
  }
}

size_t Choices::operator()(size_t ways) {
  if (at_ == made_.size()) made_.push_back({0, ways});
  return made_[at_++].chosen;
}

bool Choices::next() {
  at_ = 0;
  while (!made_.empty() && ++made_.back().chosen == made_.back().ways) made_.pop_back();
  return !made_.empty();
}

}  // namespace zero::test
