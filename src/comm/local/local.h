// SPDX-License-Identifier: Apache-2.0
// The comm of ranks on one host, which are processes or threads of one user. Either all ranks are
// on the host, or each rank has a device.
#pragma once

#include <memory>
#include <vector>

#include "comm/comm.h"
#include "comm/local/arena.h"
#include "comm/local/gates.h"
#include "comm/local/life.h"
#include "comm/local/rendezvous.h"
#include "comm/local/staged_plane.h"

namespace zero::local {

class LocalComm final : public Comm {
 public:
  LocalComm(int32_t rank, int32_t world, const CommOptions& options, Life life, Seat seat,
            std::shared_ptr<Device> device)
      : Comm(rank, world, options, std::move(device)),
        life_(std::move(life)),
        control_(std::move(seat.control)),
        links_(std::move(seat.links)) {
    static_assert(kRecordBytes <= kRecordRoom);
    control_->set_steps(&steps);
  }

  const char* kind() const override { return "local"; }
  bool aborted() const override { return control_->aborted(); }
  Failure failure() const override { return control_->failure(); }
  void abort(const Failure& cause) override { control_->abort(cause); }

  bool direct() const override { return staged_ == nullptr; }
  Result<std::byte*> resolve(int32_t rank, const Location& location, size_t bytes) const override;
  Gates* gates() override { return gates_.get(); }
  QueuedPlane* queued() override { return staged_.get(); }
  Status check_capture() const override { return Status(uncaptured_); }
  /// Finds out how the ranks' devices work together. Collective, before any other call.
  Status join_devices();

  /// Checks that the other ranks are alive.
  Status check_alive() { return control_->check({"", "", 0, false}); }
  /// Returns true if each rank has a core of its own. Known after the first exchange.
  bool has_cores_for_all() const { return control_->spins(); }
  /// Returns a name such as "rank 2 (process 1234)".
  std::string name_of(int32_t rank) const { return control_->name_of(rank); }
  /// Makes this comm a part of a larger comm, or resets that.
  void be_part(Part part) { control_->be_part(std::move(part)); }

  bool combines() const override { return true; }
  Status combine_bytes(std::span<std::byte> data, const Combine& combine,
                       const Patience& patience) override {
    return control_->combine(data, combine, patience);
  }
  void come_ahead(std::span<const std::byte> data, const Combine& combine) override {
    control_->come_ahead(data, combine);
  }
  /// Combines over several hosts; see Control::Through.
  Status combine_through(std::span<std::byte> data, const Combine& combine,
                         const Patience& patience, const Between& between) {
    const Patience rest = later(patience);
    const Control::Through through{rest, between};
    return control_->combine(data, combine, patience, &through);
  }
  bool may_have_ended() const { return control_->may_have_ended(); }
  Status exchange_bytes(std::span<const std::byte> mine, std::span<std::byte> all,
                        const Patience& patience) override {
    return control_->exchange(mine, all, patience);
  }
  Status broadcast_bytes(std::span<std::byte> data, int32_t root,
                         const Patience& patience) override {
    return control_->broadcast(data, root, patience, later(patience));
  }
  void note_progress() override { control_->note_progress(); }

 protected:
  Result<std::shared_ptr<Arena>> allocate(Call& call, uint32_t number, size_t bytes, int32_t kind,
                                          Side side) override;
  Result<std::shared_ptr<Comm>> make_child(Call& call, std::span<const int32_t> members,
                                           int32_t place, int32_t color) override;

 private:
  Status open_gates(Call& call);
  Result<std::unique_ptr<HostMeeting>> open_meeting(Call& call, const char* what,
                                                    const std::string& why);
  Status open_staging(Call& call, const std::string& why);
  Bounds handing_out_bounds();
  Result<std::shared_ptr<Mapping>> map_on_all(Call& call, uint32_t number,
                                              const ArenaLayout& layout);
  Result<std::shared_ptr<Arena>> make_device_arena(Call& call, uint32_t number, size_t bytes,
                                                   int32_t kind);
  Patience handing_out() const;
  Status not_handed(int32_t rank, const Status& why);
  Status offer(int32_t rank, uint32_t number, std::span<const int> memory);
  Status offer_to_all(uint32_t number, std::span<const int> memory);
  Result<std::vector<Fd>> take_offer(size_t link, uint32_t number, size_t count);
  Status reserve_part(int memory, const Mapping& mapping, const ArenaLayout& layout);

  Life life_;  // destroyed last, because freeing the comm must not look like a death
  const std::unique_ptr<Control> control_;
  const std::vector<std::unique_ptr<Link>> links_;

  // With several ranks on devices, one of the two is set.
  std::unique_ptr<Gates> gates_;
  std::unique_ptr<StagedPlane> staged_;
  Status uncaptured_;  // the reason if calls cannot be captured
};

/// Joins the comm at `address`, whose ranks know the secret `word`. A failure of `check` ends the
/// rendezvous early.
Result<std::shared_ptr<LocalComm>> join(const std::string& title, const std::string& address,
                                        std::string_view word, int32_t rank, int32_t world,
                                        const CommOptions& options, std::shared_ptr<Device> device,
                                        std::function<Status()> check);

}  // namespace zero::local
