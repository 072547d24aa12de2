// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/messages.h"

#include <numeric>

#include "base/refusals.h"

namespace zero::mpi {
namespace {

constexpr int32_t kMostTag = 32'767;  // the largest tag that every MPI supports

std::vector<int32_t> first_ranks(int32_t world) {
  std::vector<int32_t> ranks(static_cast<size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Status check_thread(const Library& library) {
  mpi_level level = MPI_LEVEL_FUNNELED;
  int is_main = 0;
  ZERO_TRY(outcome(library, "MPI_Query_thread", library.calls->thread(&level, &is_main)));
  if (level != MPI_LEVEL_FUNNELED || is_main != 0) return {};
  return Status(
      ZERO_ERR_STATE,
      "this is not the thread that initialized MPI, and MPI allows calls only from that thread: "
      "request MPI_THREAD_SERIALIZED or higher from MPI_Init_thread");
}

MpiMessages::MpiMessages(const Library& library, Duplicate& own, int32_t world)
    : shared_(new Shared{library, own}), tag_(0), ranks_(first_ranks(world)) {}

Status MpiMessages::check_caller() const {
  ZERO_TRY(check_running(shared_->library));
  return check_thread(shared_->library);
}

template <class Begin>
Result<MpiMessages::Request> MpiMessages::begin(const char* what, int32_t with,
                                                const Begin& begin) {
  caller_ = std::this_thread::get_id();
  Request request = 0;
  ZERO_TRY(
      outcome(shared_->library, what,
              begin(ranks_[static_cast<size_t>(with)], tag_, shared_->duplicate.handle, &request)));
  return request;
}

Result<MpiMessages::Request> MpiMessages::send(int32_t to, std::span<const std::byte> data) {
  return begin("MPI_Isend", to, [&](auto... how) {
    return shared_->library.calls->send(data.data(), static_cast<int>(data.size()), how...);
  });
}

Result<MpiMessages::Request> MpiMessages::receive(int32_t from, std::span<std::byte> data) {
  return begin("MPI_Irecv", from, [&](auto... how) {
    return shared_->library.calls->receive(data.data(), static_cast<int>(data.size()), how...);
  });
}

Result<bool> MpiMessages::has_ended(Request& request) {
  int done = 0;
  ZERO_TRY(outcome(shared_->library, "MPI_Test", shared_->library.calls->test(&request, &done)));
  return done != 0;
}

void MpiMessages::progress() {
  if (caller_.load() == std::this_thread::get_id())
    (void)shared_->library.calls->progress(shared_->duplicate.handle);
}

Result<std::unique_ptr<hosts::Messages>> MpiMessages::of_some(
    Call& call, std::span<const int32_t> members) const {
  struct LastTag {
    int64_t value;
    void add(const LastTag& other) { value = std::max(value, other.value); }
  };
  const int64_t tag = ZERO_TRY(call.combine("tag", LastTag{shared_->last_tag})).value + 1;
  if (tag > kMostTag) return unsupported("more than ", kMostTag, " splits of one communicator");
  shared_->last_tag = static_cast<int32_t>(tag);
  if (members.empty()) return std::unique_ptr<Messages>();
  std::vector<int32_t> ranks;
  for (const int32_t member : members) ranks.push_back(ranks_[static_cast<size_t>(member)]);
  return std::unique_ptr<Messages>(
      new MpiMessages(shared_, static_cast<int32_t>(tag), std::move(ranks)));
}

}  // namespace zero::mpi
