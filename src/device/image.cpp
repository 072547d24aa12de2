// SPDX-License-Identifier: Apache-2.0
#include "device/image.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"

namespace zero {
namespace {

constexpr size_t kAlignment = 64;

/// Joins ranges that overlap or touch.
std::vector<Image::Bytes> join(std::vector<Image::Bytes> ranges) {
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

Result<std::shared_ptr<Image>> Image::create(std::vector<Bytes> ranges) {
  auto image = std::make_shared<Image>();
  const std::vector<Bytes> regions = join(ranges);
  size_t total = 0;
  for (const Bytes region : regions) total += round_up(region.size(), kAlignment);
  image->copies_ = ZERO_TRY(HostMemory::reserve(total, "what a save keeps of the state"));
  image->shown_ = ZERO_TRY(HostMemory::allocate(kBlockBytes, "what a save reads of the state"));
  std::byte* copy = image->copies_.data();
  for (const Bytes region : regions) {
    for (size_t at = 0; at < region.size(); at += kBlockBytes)
      image->blocks_.emplace_back(region.data() + at, std::min(kBlockBytes, region.size() - at),
                                  copy + at);
    copy += round_up(region.size(), kAlignment);
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

/// Returns the first block that ends behind `data`.
size_t Image::block_at(const std::byte* data) const {
  const auto found = std::ranges::partition_point(
      blocks_, [data](const Block& block) { return block.data + block.bytes <= data; });
  return static_cast<size_t>(found - blocks_.begin());
}

void Image::settle(Block& block, Part part) {
  block.part.store(part, std::memory_order_release);
  live_.fetch_sub(1, std::memory_order_acq_rel);
}

void Image::keep_block(size_t number) {
  Block& block = blocks_[number];
  if (block.part.load(std::memory_order_acquire) != Part::live) return;
  const std::lock_guard lock(lock_of(number));
  if (block.part.load(std::memory_order_relaxed) != Part::live) return;
  std::memcpy(block.copy, block.data, block.bytes);
  settle(block, Part::kept);
}

void Image::keep(const std::byte* data, size_t bytes) {
  if (whole()) return;
  for (size_t b = block_at(data); b < blocks_.size() && blocks_[b].data < data + bytes; ++b)
    keep_block(b);
}

void Image::keep_all() {
  for (size_t b = 0; b < blocks_.size() && !whole(); ++b) keep_block(b);
}

Status Image::keep_all(Window& window) {
  for (Block& block : blocks_) {
    ZERO_TRY(window.read(block.copy, block.data, block.bytes));
    settle(block, Part::kept);
  }
  return Status();
}

Status Image::show_all(const std::byte* from, size_t bytes,
                       const std::function<Status(Bytes)>& visit) {
  size_t number = block_at(from);
  for (size_t part = 0; bytes > 0; from += part, bytes -= part, ++number) {
    Block& block = blocks_[number];
    const auto offset = static_cast<size_t>(from - block.data);
    part = std::min(bytes, block.bytes - offset);
    const std::byte* shown = block.copy + offset;
    {
      const std::lock_guard lock(lock_of(number));
      if (closed_.load(std::memory_order_relaxed))
        return Status(ZERO_ERR_ABORTED, "the save was given up");
      const bool live = block.part.load(std::memory_order_relaxed) == Part::live;
      if (live) shown = static_cast<std::byte*>(std::memcpy(shown_.data(), from, part));
      block.unread -= part;
      if (live && block.unread == 0) settle(block, Part::read);
    }
    ZERO_TRY(visit({shown, part}));
  }
  return Status();
}

void Image::close() {
  closed_ = true;
  // Whoever copies a block now has it in a moment.
  for (std::mutex& lock : locks_) const std::lock_guard wait(lock);
}

}  // namespace zero
