// SPDX-License-Identifier: Apache-2.0
// Communicators of the library with NCCL's names, and what they belong to.
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

/// Where a rank's part of a collective is: the number of a window of its group, from 1, and bytes
/// in there; 0: in none.
struct Place {
  int64_t window = 0;
  ptrdiff_t at = 0;
  bool operator==(const Place&) const = default;
};

/// A collective of one group, begun by its first rank.
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
  std::vector<nccl::Handle*> out;  // where to put them
  std::vector<int> policy, device;
};

struct FakeWindow {
  Communicator* of;
  int64_t number;
  const std::byte* data;
  size_t bytes;
};

/// The opening of a window by all ranks.
struct Opening {
  int arrived = 0;
};

struct Group {
  explicit Group(int world) : world(world) {}
  const int world;
  int joined = 0;
  std::set<int> ranks;  // that were made by the group's id
  std::map<int64_t, std::shared_ptr<Opening>> openings;
  std::map<int64_t, std::shared_ptr<Collective>> collectives;
  std::map<int64_t, std::shared_ptr<Split>> splits;
};

struct Communicator {
  std::shared_ptr<Group> group;
  int rank;
  int busy;  // polls until the last call is taken in
  int device;
  std::shared_ptr<std::atomic<bool>> taking = {};  // by a thread
  bool blocking = false;
  bool finalized = false;  // only its end is left
  std::shared_ptr<Split> split = {};
  int error = nccl::kSuccess;
  std::shared_ptr<Opening> opening = {};
  FakeWindow* opened = nullptr;    // by that
  nccl::Window* window = nullptr;  // where to put it
  bool by_engines = false;         // gathers in windows
  int64_t collectives = 0, splits = 0, openings = 0;
  bool runs = false;  // its part of a collective is at the head of a stream, and has not ended
};

extern FakeNcclKnobs knobs;
extern std::mutex mutex;  // over all below
extern std::string words;
extern std::map<std::string, std::shared_ptr<Group>> groups;
extern std::set<Communicator*> communicators;
extern std::set<FakeWindow*> windows;

/// Null, and counted as misuse, for what is no communicator. Another device that is current is
/// misuse, too, and what comes behind ncclCommFinalize, unless it `ends` it.
Communicator* find(nccl::Handle handle, bool ends = false);
Communicator* make(std::shared_ptr<Group> group, int rank, int device);
/// What becomes of a call by the knobs; kSuccess: it goes on.
int judge(int rank, Communicator* communicator);
bool is_busy(Communicator& one);
/// Once all have come: children by color, in order of their keys.
void make_children(const Group& group, Split& split);
/// The communicator is gone; work of it that is queued ends without effect.
int end(nccl::Handle handle, bool sound);

}  // namespace zero::test::fake_nccl
