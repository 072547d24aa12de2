// SPDX-License-Identifier: Apache-2.0
// The communicators of the fake NCCL, and the groups that they belong to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "comm/nccl/abi.h"
#include "support/fake_nccl.h"

namespace zero::test::fake_nccl {

/// The position of a rank's part of a collective: the number of a window of its group, from 1, and
/// the offset in bytes. 0 means that it is in no window.
struct Place {
  int64_t window = 0;
  ptrdiff_t at = 0;
  bool operator==(const Place&) const = default;
};

/// A collective of one group. Its first rank creates it.
struct Collective {
  std::string what;
  size_t bytes;  // of one chunk
  int type, root;
  std::vector<const std::byte*> send;
  std::vector<std::byte*> recv;
  std::vector<bool> at_head;
  std::vector<Place> places;  // of each rank's part
  bool done = false;
};

struct Communicator;

struct Split {
  int arrived = 0;
  std::vector<int> color, key;
  std::vector<Communicator*> made;
  std::vector<nccl::Handle*> out;  // where to store them
  std::vector<int> policy, device;
};

struct FakeWindow {
  Communicator* of;
  int64_t number;
  const std::byte* data;
  size_t bytes;
};

/// A window that all ranks open together.
struct Opening {
  int arrived = 0;
};

struct Group {
  explicit Group(int world) : world(world) {}
  const int world;
  int joined = 0;
  std::set<int> ranks;  // ranks that joined with the group's id
  std::map<int64_t, std::shared_ptr<Opening>> openings;
  std::map<int64_t, std::shared_ptr<Collective>> collectives;
  std::map<int64_t, std::shared_ptr<Split>> splits;
};

struct Communicator {
  std::shared_ptr<Group> group;
  int rank;
  int busy;  // polls until the last call has been accepted
  int device;
  std::shared_ptr<std::atomic<bool>> taking = {};  // true while a thread accepts a call
  bool blocking = false;
  bool finalized = false;  // may only be destroyed
  std::shared_ptr<Split> split = {};
  int error = nccl::kSuccess;
  std::shared_ptr<Opening> opening = {};
  FakeWindow* opened = nullptr;    // by `opening`
  nccl::Window* window = nullptr;  // where to store it
  bool by_engines = false;         // gathers in windows through copy engines
  int64_t collectives = 0, splits = 0, openings = 0;
  bool runs = false;  // its part of a collective is at the head of a stream and has not ended
};

extern FakeNcclKnobs knobs;
extern std::mutex mutex;  // guards everything below
extern std::string words;
extern std::map<std::string, std::shared_ptr<Group>> groups;
extern std::set<Communicator*> communicators;
extern std::set<FakeWindow*> windows;

/// Returns null, and counts a misuse, if the handle is not a communicator. It is also a misuse if
/// another device is current, or if ncclCommFinalize was called before and this call does not end
/// the communicator (`ends`).
Communicator* find(nccl::Handle handle, bool ends = false);
Communicator* make(std::shared_ptr<Group> group, int rank, int device);
/// Applies the knobs to a call. kSuccess means that it continues.
int judge(int rank, Communicator* communicator);
bool is_busy(Communicator& one);
/// Makes the children by color, ordered by their keys, after all ranks have called.
void make_children(const Group& group, Split& split);
/// Removes the communicator. Its queued work ends without effect.
int end(nccl::Handle handle, bool sound);

}  // namespace zero::test::fake_nccl
