// SPDX-License-Identifier: Apache-2.0
#include "support/ptx/machine.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "base/float_environment.h"
#include "base/text.h"

namespace zero::test::ptx {

constexpr u32 kWarp = 32;

/// Threads that share memory and barriers.
class Block {
 public:
  Block(const Kernel& kernel, const std::byte* parameters, u32 number, u32 blocks, u32 threads,
        Memory& global)
      : kernel_(kernel),
        parameters_(parameters),
        number_(number),
        blocks_(blocks),
        global_(global),
        room_(kernel.shared_bytes / sizeof(u64) + 1, 0xCCCCCCCCCCCCCCCC),
        shared_({{room_.data(), kernel.shared_bytes, true, "the block's shared memory"}}, threads),
        touchers_(threads) {
    for (u32 i = 0; i < threads; i++)
      touchers_[i] = {.block = number, .thread = number * threads + i};
  }

  void run(u32 first);

 private:
  friend class Thread;

  void run_ready(u32 first);
  bool shuffle();
  bool shuffle(u32 warp);
  void pass_barrier();
  u32 size() const { return static_cast<u32>(touchers_.size()); }
  bool all_ended() const;
  [[noreturn]] void fail(const std::string& why, const Thread& thread) const;

  const Kernel& kernel_;
  const std::byte* const parameters_;
  const u32 number_, blocks_;
  Memory& global_;
  std::vector<u64> room_;
  Memory shared_;
  std::vector<Toucher> touchers_;
  std::vector<Thread> threads_;  // only of a kernel that waits
};

Thread::Thread(Block& block, u32 number)
    : tid(number),
      ntid(block.size()),
      ctaid(block.number_),
      nctaid(block.blocks_),
      parameters(block.parameters_),
      block_(block) {}

std::byte* Thread::look_up(Space space, Use use, bool is_volatile, u64 address, u64 bytes,
                           u32 line) {
  line_ = line;
  try {
    if (address % bytes != 0)
      throw Fault(text("touches ", bytes, " bytes at an address that ", bytes, " does not divide"));
    Toucher& toucher = block_.touchers_[tid];
    const u64 depot = reinterpret_cast<u64>(depot_.data());
    const bool own = address >= depot && address + bytes <= depot + depot_.size();
    if (space == Space::local || (space == Space::generic && own)) {
      if (!own) throw Fault("touches local memory that the thread does not have");
    } else if (space == Space::shared) {
      address += reinterpret_cast<u64>(block_.room_.data());
      block_.shared_.touch(toucher, use, is_volatile, address, bytes);
    } else {
      block_.global_.touch(toucher, use, is_volatile, address, bytes);
    }
  } catch (const Fault& fault) {
    block_.fail(fault.what(), *this);
  }
  return reinterpret_cast<std::byte*>(address);
}

/// The thread's next atomics publish what is complete, and what its atomics received is now
/// complete.
void Thread::fences() {
  Toucher& toucher = block_.touchers_[tid];
  toucher.known.join(toucher.heard);
  toucher.released = toucher.known;
  toucher.released.add(toucher.thread, toucher.time++);
  if (toucher.block_time > 0) toucher.released.add_block(toucher.block, toucher.block_time);
}

void Thread::meets(u32 line) {
  line_ = line;
  state_ = State::at_barrier;
}

void Thread::offers(u32 line, u32 value, u32 lanes, u32 clamp, u32 mask) {
  line_ = line;
  state_ = State::at_shuffle;
  offer_ = {value, lanes, clamp, mask};
}

void Thread::end() { state_ = State::ended; }

void Block::fail(const std::string& why, const Thread& thread) const {
  throw Fault(text(kernel_.name, ", block ", number_, ", thread ", thread.tid, ", line ",
                   thread.line_, " of the PTX: ", why));
}

void Block::run(u32 first) {
  if (!kernel_.waits) {
    for (u32 i = 0; i < size(); i++) {
      Thread thread(*this, (first + i) % size());
      kernel_.run(thread);
    }
    return;
  }
  for (u32 i = 0; i < size(); i++) threads_.emplace_back(*this, i);
  while (!all_ended()) {
    run_ready(first);
    if (!shuffle() && !all_ended()) pass_barrier();
  }
}

bool Block::all_ended() const {
  return std::all_of(threads_.begin(), threads_.end(),
                     [](const Thread& thread) { return thread.state_ == Thread::State::ended; });
}

void Block::run_ready(u32 first) {
  for (u32 i = 0; i < size(); i++) {
    Thread& thread = threads_[(first + i) % size()];
    if (thread.state_ != Thread::State::runs) continue;
    kernel_.run(thread);
  }
}

bool Block::shuffle() {
  bool any = false;
  for (u32 warp = 0; warp < size(); warp += kWarp) any |= shuffle(warp);
  return any;
}

/// All lanes that a shuffle names must reach it. Only butterfly shuffles are implemented.
bool Block::shuffle(u32 warp) {
  const u32 end = std::min(warp + kWarp, size());
  const auto lanes = std::span(threads_).subspan(warp, end - warp);
  const auto waits = [](const Thread& lane) { return lane.state_ == Thread::State::at_shuffle; };
  const auto first = std::find_if(lanes.begin(), lanes.end(), waits);
  if (first == lanes.end()) return false;
  const u32 mask = first->offer_.mask;
  for (u32 i = 0; i < kWarp; i++) {
    if ((mask >> i & 1) == 0) continue;
    if (i >= lanes.size() || !waits(lanes[i]) || lanes[i].line_ != first->line_ ||
        lanes[i].offer_.mask != mask)
      fail(text("a shuffle that lane ", i, ", which it names, does not come to"), *first);
  }
  for (u32 i = 0; i < lanes.size(); i++) {
    Thread& lane = lanes[i];
    if (!waits(lane) || lane.line_ != first->line_) continue;
    if ((mask >> i & 1) == 0) fail("a shuffle that does not name its own lane", lane);
    const u32 segment = lane.offer_.clamp >> 8 & 0x1F;
    const u32 last = (i & segment) | (lane.offer_.clamp & 0x1F & ~segment);
    const u32 from = i ^ lane.offer_.lanes;
    lane.given_there = from <= last;
    const u32 source = lane.given_there ? from : i;
    if ((mask >> source & 1) == 0) fail("a shuffle from a lane that it does not name", lane);
    lane.given = lanes[source].offer_.value;
  }
  for (u32 i = 0; i < lanes.size(); i++)
    if (mask >> i & 1) lanes[i].state_ = Thread::State::runs;
  return true;
}

/// All threads of the block must reach the same barrier.
void Block::pass_barrier() {
  const auto waits = [](const Thread& thread) {
    return thread.state_ == Thread::State::at_barrier;
  };
  const Thread& first = *std::find_if(threads_.begin(), threads_.end(), waits);
  for (const Thread& thread : threads_) {
    if (!waits(thread) || thread.line_ != first.line_)
      fail(text("a barrier that thread ", thread.tid, " does not come to"), first);
  }
  Toucher all;
  for (const Toucher& toucher : touchers_) {
    all.time = std::max(all.time, toucher.time);
    all.known.join(toucher.known);
  }
  for (Toucher& toucher : touchers_) {
    toucher.block_time = all.time;
    toucher.time = all.time + 1;
    toucher.known = all.known;
  }
  for (Thread& thread : threads_) thread.state_ = Thread::State::runs;
}

void run(const Kernel& kernel, const void* parameters, u32 blocks, u32 threads, Memory& memory,
         u64 seed) {
  const FloatEnvironment environment;  // GPUs have their own floating-point control
  std::mt19937_64 random(seed);
  std::vector<u32> order(blocks);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  const std::vector<u64> copy = [&] {
    std::vector<u64> words(kernel.parameter_bytes / sizeof(u64) + 1);
    std::memcpy(words.data(), parameters, kernel.parameter_bytes);
    return words;
  }();
  for (const u32 number : order) {
    Block block(kernel, reinterpret_cast<const std::byte*>(copy.data()), number, blocks, threads,
                memory);
    block.run(static_cast<u32>(random() % threads));
  }
}

}  // namespace zero::test::ptx
