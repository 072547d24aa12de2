// SPDX-License-Identifier: Apache-2.0
#include "support/ptx/memory.h"

#include <algorithm>

#include "base/text.h"

namespace zero::test::ptx {

void Clock::join(const Clock& other) {
  for (const auto& [thread, time] : other.threads_) add(thread, time);
  for (const auto& [block, time] : other.blocks_) add_block(block, time);
}

void Clock::add(uint32_t thread, uint32_t time) {
  threads_[thread] = std::max(threads_[thread], time);
}

void Clock::add_block(uint32_t block, uint32_t time) {
  blocks_[block] = std::max(blocks_[block], time);
}

bool Clock::has(uint32_t block, uint32_t thread, uint32_t time) const {
  const auto of_thread = threads_.find(thread);
  if (of_thread != threads_.end() && of_thread->second >= time) return true;
  const auto of_block = blocks_.find(block);
  return of_block != blocks_.end() && of_block->second >= time;
}

/// Spans may overlap. A byte is writable if one of its spans is.
Memory::Memory(std::vector<Span> spans, uint32_t block_threads) : block_threads_(block_threads) {
  std::erase_if(spans, [](const Span& span) { return span.bytes == 0; });
  std::vector<uint64_t> edges;
  for (const Span& span : spans) {
    const auto begin = reinterpret_cast<uint64_t>(span.begin);
    edges.insert(edges.end(), {begin, begin + span.bytes});
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  std::vector<Span> covering(edges.size());
  for (const Span& span : spans) {
    const auto begin = reinterpret_cast<uint64_t>(span.begin);
    for (auto i = static_cast<size_t>(std::lower_bound(edges.begin(), edges.end(), begin) -
                                      edges.begin());
         edges[i] < begin + span.bytes; i++) {
      if (covering[i].bytes == 0) covering[i] = span;
      covering[i].writable |= span.writable;
    }
  }
  for (size_t i = 0; i + 1 < edges.size(); i++) {
    if (covering[i].bytes == 0) continue;
    Part& part = parts_.emplace_back(Part{edges[i], edges[i + 1], covering[i].what, {}});
    if (covering[i].writable) part.cells.resize((part.end - part.begin - 1) / kGrain + 1);
  }
}

Memory::Part& Memory::part_of(Use use, uint64_t address) {
  size_t& recent = recent_[address / 256 % recent_.size()];
  if (recent >= parts_.size() || address < parts_[recent].begin || address >= parts_[recent].end) {
    const auto after =
        std::upper_bound(parts_.begin(), parts_.end(), address,
                         [](uint64_t at, const Part& part) { return at < part.begin; });
    if (after == parts_.begin()) throw Fault("touches memory that the launch was not given");
    recent = static_cast<size_t>(after - parts_.begin()) - 1;
  }
  Part& part = parts_[recent];
  if (address >= part.end)
    throw Fault(text("touches memory that the launch was not given, ", address - part.end,
                     " bytes behind the end of ", part.what));
  if (use != Use::loads && part.cells.empty()) throw Fault(text("writes to ", part.what));
  return part;
}

void Memory::touch(Toucher& toucher, Use use, bool is_volatile, uint64_t address, uint64_t bytes) {
  const bool atomic = use == Use::atomic || is_volatile;
  const Access access = {toucher.thread, toucher.time, static_cast<uint8_t>(atomic ? bytes : 0),
                         use != Use::loads};
  for (uint64_t at = address; at < address + bytes;) {
    Part& part = part_of(use, at);
    const uint64_t end = std::min(part.end, address + bytes);
    if (!part.cells.empty()) {
      for (uint64_t i = (at - part.begin) / kGrain; i <= (end - 1 - part.begin) / kGrain; i++)
        touch(part, i, toucher, access);
    }
    at = end;
  }
  if (use != Use::atomic) return;
  if (const auto told = told_.find(address); told != told_.end()) toucher.heard.join(told->second);
  if (!toucher.released.empty()) told_[address].join(toucher.released);
}

void Memory::touch(Part& part, uint64_t grain, const Toucher& toucher, const Access& access) {
  Cell& cell = part.cells[grain];
  const bool atomic = access.bytes != 0;
  check(part, grain, toucher, access, cell.writer, "wrote");
  const auto found = others_.empty() ? others_.end() : others_.find(&cell);
  if (found != others_.end()) {
    for (const Access& other : found->second.atomics) {
      if ((access.writes || other.writes) && access.bytes != other.bytes)
        check(part, grain, toucher, access, other, other.writes ? "wrote" : "read");
    }
  }
  if (access.writes) {
    check(part, grain, toucher, access, cell.reader, "read");
    if (found != others_.end()) {
      for (const Access& reader : found->second.readers)
        check(part, grain, toucher, access, reader, "read");
    }
  }
  const auto note = [&access](std::vector<Access>& all) {
    const auto own = std::find_if(all.begin(), all.end(), [&](const Access& one) {
      return one.thread == access.thread && one.writes == access.writes;
    });
    own == all.end() ? all.push_back(access) : void(*own = access);
  };
  if (atomic) {
    note(others_[&cell].atomics);
  } else if (access.writes) {
    cell = {access, {}};
    if (found != others_.end()) others_.erase(found);
  } else if (cell.reader.thread == kNobody || cell.reader.thread == access.thread) {
    cell.reader = access;
  } else {
    note(others_[&cell].readers);
  }
}

void Memory::check(const Part& part, uint64_t grain, const Toucher& toucher, const Access& access,
                   const Access& other, const char* did) const {
  if (other.thread == kNobody || other.thread == access.thread) return;
  const uint32_t block = other.thread / block_threads_;
  if (block == toucher.block && other.time <= toucher.block_time) return;
  if (toucher.known.has(block, other.thread, other.time)) return;
  throw Fault(text(access.writes ? "writes" : "reads", " byte ", grain * kGrain, " of ", part.what,
                   ", which thread ", other.thread % block_threads_, " of block ", block, " ", did,
                   ", without an order between them"));
}

}  // namespace zero::test::ptx
