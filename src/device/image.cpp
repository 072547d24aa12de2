// SPDX-License-Identifier: Apache-2.0
#include "device/image.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/checked.h"
#include "base/os.h"
#include "base/thread_sanitizer.h"
#include "kernels/past_caches.h"

namespace zero {
namespace {

constexpr size_t kRegionAlignment = 64;

/// Populates the pages of a block in one call, which costs half as much as page faults. If an
/// earlier save left the pages in place, this would cost as much as the copy, so it is skipped.
void populate_block(std::byte* data, size_t bytes) {
  const auto page = static_cast<size_t>(os().getpagesize());
  const size_t into_page = reinterpret_cast<uintptr_t>(data) % page;
  unsigned char there = 0;
  os().mincore(data - into_page + bytes / 2 / page * page, 1, &there);
  if ((there & 1) != 0) return;
  os().madvise(data - into_page, bytes + into_page, MADV_POPULATE_WRITE);  // only a hint
}

/// Merges ranges that overlap or touch.
std::vector<Image::Bytes> merged(std::vector<Image::Bytes> ranges) {
  std::ranges::sort(ranges, {}, [](Image::Bytes range) { return range.data(); });
  std::vector<Image::Bytes> regions;
  for (const Image::Bytes range : ranges) {
    if (range.empty()) continue;
    const std::byte* const end = range.data() + range.size();
    if (regions.empty() || range.data() > regions.back().data() + regions.back().size())
      regions.push_back(range);
    else
      regions.back() = {regions.back().data(),
                        std::max(end, regions.back().data() + regions.back().size())};
  }
  return regions;
}

}  // namespace

Result<std::shared_ptr<Image>> Image::create(std::vector<Bytes> ranges, HostMemory& memory) {
  auto image = std::make_shared<Image>();
  const std::vector<Bytes> regions = merged(ranges);
  size_t total = 0;
  for (const Bytes region : regions) total += round_up(region.size(), kRegionAlignment);
  image->copies_ = std::move(memory);
  if (image->copies_.bytes() < total) {
    image->copies_ = HostMemory();
    image->copies_ = ZERO_TRY(HostMemory::reserve(total, "a save's copy of the state"));
  }
  image->shown_ = ZERO_TRY(HostMemory::allocate(kBlockBytes, "a save's read buffer"));
  std::byte* copy = image->copies_.data();
  for (const Bytes region : regions) {
    for (size_t at = 0; at < region.size(); at += kBlockBytes)
      image->blocks_.emplace_back(region.data() + at, std::min(kBlockBytes, region.size() - at),
                                  copy + at);
    copy += round_up(region.size(), kRegionAlignment);
  }
  for (const Bytes range : ranges) {
    const std::byte* const end = range.data() + range.size();
    for (const std::byte* at = range.data(); at < end;) {
      Block& block = image->blocks_[image->block_at(at)];
      const std::byte* const next = std::min(block.data + block.bytes, end);
      block.unread += static_cast<size_t>(next - at);
      at = next;
    }
  }
  image->live_ = image->blocks_.size();
  return image;
}

/// Returns the first block that ends after `data`.
size_t Image::block_at(const std::byte* data) const {
  const auto found = std::ranges::partition_point(
      blocks_, [data](const Block& block) { return block.data + block.bytes <= data; });
  return static_cast<size_t>(found - blocks_.begin());
}

void Image::keep_block(Block& block) {
  Part part = Part::live;
  if (!block.part.compare_exchange_strong(part, Part::being_kept)) {
    while (part == Part::being_kept) std::this_thread::yield(), part = block.part;
    return;
  }
  if (kThreadSanitizer) await_reader();  // otherwise it reports the discarded read as a race
  if (block.bytes == kBlockBytes) populate_block(block.copy, block.bytes);
  copy_past_caches(block.copy, block.data, block.bytes);
  block.part = Part::kept;
  live_--;
}

void Image::keep(const std::byte* data, size_t bytes) {
  if (whole()) return;
  for (size_t b = block_at(data); b < blocks_.size() && blocks_[b].data < data + bytes; ++b)
    keep_block(blocks_[b]);
}

void Image::keep_all() {
  for (size_t b = 0; b < blocks_.size() && !whole(); ++b) keep_block(blocks_[b]);
}

void Image::let_go() {
  keep_all();
  await_reader();
}

Status Image::keep_all(Window& window) {
  for (Block& block : blocks_) {
    ZERO_TRY(window.read(block.copy, block.data, block.bytes));
    block.part = Part::kept;
  }
  live_ = 0;
  return {};
}

/// Copies bytes of a block to shown_, and returns whether they belong to the image. Either a thread
/// that keeps the block sees `reading_`, or this function sees that the block is no longer live. A
/// thread that has overwritten the block has changed `part` before.
bool Image::read_live(Block& block, const std::byte* from, size_t bytes) {
  reading_ = true;
  bool live = !closed_ && block.part == Part::live;
  if (live) {
    std::memcpy(shown_.data(), from, bytes);
    Part seen = Part::live;
    const Part next = block.unread == bytes ? Part::read : Part::live;
    live = block.part.compare_exchange_strong(seen, next);
    if (live && next == Part::read) live_--;
  }
  reading_ = false;
  return live;
}

void Image::await_reader() const {
  while (reading_) std::this_thread::yield();  // lasts for the copy of one block
}

Status Image::show_all(const std::byte* from, size_t bytes,
                       const std::function<Status(Bytes)>& visit) {
  size_t number = block_at(from);
  for (size_t part = 0; bytes > 0; from += part, bytes -= part, ++number) {
    Block& block = blocks_[number];
    const auto offset = static_cast<size_t>(from - block.data);
    part = std::min(bytes, block.bytes - offset);
    const bool live = read_live(block, from, part);
    if (closed_) return Status(ZERO_ERR_ABORTED, "the save was given up");
    while (block.part == Part::being_kept) std::this_thread::yield();
    block.unread -= part;
    const std::byte* const shown = live ? shown_.data() : block.copy + offset;
    ZERO_TRY(visit({shown, part}));
  }
  return Status();
}

void Image::close() {
  closed_ = true;
  await_reader();
}

}  // namespace zero
