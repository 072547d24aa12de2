// SPDX-License-Identifier: Apache-2.0
#include "support/nccl_ranks.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "base/text.h"
#include "comm/nccl/channel.h"
#include "support/emulated_launches.h"
#include "support/ranks.h"

namespace zero::test {

nccl::Library open_fake_nccl(FakeNcclKnobs** knobs) {
  const std::string path = FAKE_NCCL;
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const found = handle != nullptr ? dlsym(handle, "fake_nccl_knobs") : nullptr;
  if (found == nullptr) {
    std::fprintf(stderr, "%s: %s\n", path.c_str(), dlerror());
    std::abort();
  }
  *knobs = reinterpret_cast<FakeNcclKnobs* (*)()>(found)();
  (*knobs)->version = nccl::kOldestVersion;
  Result<nccl::Library> library = nccl::open_library({&path, 1});
  EXPECT_TRUE(library.ok()) << library.failure().text();
  return std::move(library).value();
}

NcclRanks::NcclRanks(int32_t world, uint64_t seed, bool guarded, bool reaches)
    : world_(world),
      library_(open_fake_nccl(&knobs_)),
      chaos_(ChaosWorld::create({.seed = seed,
                                 .eager = seed % 4 == 0,
                                 .patience = INT64_MAX,
                                 .emulate = emulate,
                                 .guarded = guarded,
                                 .reaches = reaches})),
      name_(unique_name()) {
  if (seed / 2 % 2 == 0) knobs_->version = library_.version = 23203;  // with windows
  knobs_->busy_polls = 1;
  knobs_->takes_us = 0;
  knobs_->current_device = ChaosDevice::current;
  knobs_->failing_call = knobs_->broken_from_call = knobs_->rank = knobs_->stuck_rank = -1;
  knobs_->abort_hangs = knobs_->finalize_fails = knobs_->allows_blocking = false;
  knobs_->broken_now = 0;
  knobs_->calls = knobs_->living = knobs_->aborted = knobs_->destroyed = knobs_->met =
      knobs_->misused = 0;
  knobs_->launches = knobs_->to_owners = 0;
  knobs_->windows = knobs_->reduced_in_windows = knobs_->gathered_in_windows =
      knobs_->gathered_by_engines = 0;
  knobs_->has_windows = true;
  knobs_->keeps_windows = false;
  nccl::replace_library(&library_);
  for (int32_t r = 0; r < world; ++r) devices_.push_back(chaos_->make_device(r));
}

NcclRanks::~NcclRanks() {
  nccl::replace_library(nullptr);
  if (leaves_some_) return;
  EXPECT_EQ(knobs_->living, 0);
  EXPECT_EQ(knobs_->windows, 0);
  EXPECT_EQ(knobs_->misused, 0);
}

NcclId NcclRanks::id(int number) const {
  NcclId id{};
  const std::string words = text(name_, " ", number);
  memcpy(id.data(), words.data(), std::min(words.size(), id.size() - 1));
  return id;
}

nccl::Handle NcclRanks::engines(int32_t rank, bool blocking) const {
  nccl::UniqueId shared{};
  memcpy(&shared, id(9).data(), sizeof shared);
  nccl::Config config;
  config.blocking = blocking ? 1 : 0;
  nccl::Handle made = nullptr;
  const Status begun = device(rank)->run_current([&] {
    EXPECT_EQ(library_.init_rank(&made, world_, shared, rank, &config), nccl::kInProgress);
    return Status();
  });
  EXPECT_TRUE(begun.ok());
  nccl::Channel channel(library_, device(rank), made);
  const Status met = channel.await_ready("init", {20'000, [] { return Status(); }});
  EXPECT_TRUE(met.ok()) << met.text();
  return made;
}

void NcclRanks::end_engines(int32_t rank, nccl::Handle engines, bool sound) const {
  (void)device(rank)->run_current([&] {
    sound ? library_.destroy(engines) : library_.abort(engines);
    return Status();
  });
}

Result<std::shared_ptr<Comm>> NcclRanks::join(int32_t rank, const CommOptions& options,
                                              int number) const {
  return create_nccl(device(rank), id(number), rank, world_, options);
}

}  // namespace zero::test
