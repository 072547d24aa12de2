// SPDX-License-Identifier: Apache-2.0
// Loads a checkpoint: the ranks compare their arguments; rank 0 finds the checkpoint and broadcasts
// its manifest; the ranks compare it with what is registered, verify every byte, receive the
// extras, read the ranges that they own, share parameters and buffers, and set step and settings.
// If the save id shows that another save has replaced the checkpoint, the load begins again.
#include "state/load.h"

#include <optional>

#include "base/log.h"
#include "base/os.h"
#include "base/refusals.h"
#include "comm/memory_check.h"
#include "state/collective.h"
#include "state/extras.h"
#include "state/find.h"
#include "step/broadcast.h"
#include "step/walk.h"

namespace zero {
namespace {

constexpr const char* kExtras = "a checkpoint's extras";

/// One load on one rank.
class Load {
 public:
  Load(Call& call, Optimizer& optim, std::string_view directory, int32_t flags)
      : call_(call),
        optim_(optim),
        directory_(directory),
        keep_settings_((flags & ZERO_LOAD_KEEP_SETTINGS) != 0) {}

  Status run() {
    std::optional<Publishing> publishing;
    for (int attempt = 1;; attempt++) {
      const Status status = read_once(publishing);
      if (status.ok()) {
        const auto walk = make_walk(call_, optim_);
        ZERO_TRY(walk->share_params());
        ZERO_TRY(walk->broadcast_buffers(0));
        publishing->done();
        take_over();
        return {};
      }
      if (!was_replaced()) return status;
      if (attempt == kMostReplacements)
        return {status.code(), text(status.text(), "; another save replaced the checkpoint ",
                                    attempt, " times during the load")};
      log(ZERO_LOG_INFO,
          text("'", directory_, "' was replaced during the load: loading the new checkpoint"));
    }
  }

 private:
  /// Makes one attempt, up to reading the owned ranges. Sets `publishing` before parameters change.
  /// All ranks succeed or fail alike, because a failure is one of a vote or aborts the comm.
  Status read_once(std::optional<Publishing>& publishing) {
    const std::string chosen = ZERO_TRY(broadcast_choice());
    ZERO_TRY(call_.vote("compared", compare(chosen)));
    loading_ = {};
    if (!manifest().extras.empty())
      ZERO_TRY(check_memory_of_ranks(call_, extras_bytes(manifest()), kExtras));
    ZERO_TRY(call_.vote("verified", verify()));
    os().reached("load.verified");
    ZERO_TRY(call_.vote("allocated", allocate()));
    ZERO_TRY(share_extras());
    os().reached("load.voted");

    publishing.emplace(*optim_.comm);
    optim_.not_loaded = true;
    optim_.addresses++;  // slots may have been allocated
    const Status read = read_share(files(), manifest(), places_, optim_, *windows_);
    os().reached("load.read");
    return call_.vote("read", read);
  }

  /// Returns true on all ranks if rank 0 finds a checkpoint of another save. The failure may then
  /// come from files of two saves.
  bool was_replaced() {
    const Sum mine{call_.rank() == 0 && !found_.path.empty() && is_replaced(found_) ? 1u : 0u};
    Result<Sum> all = call_.combine("replaced", mine);
    return all.ok() && all->value != 0;
  }

  /// Returns rank 0's choice on every rank: the path, a NUL, and the bytes of the manifest.
  Result<std::string> broadcast_choice() {
    found_ = {};
    const Status mine = prepare();
    std::string chosen = found_.path + '\0' + std::exchange(found_.bytes, {});
    ZERO_TRY(call_.vote("found", mine));
    uint64_t size = chosen.size();
    ZERO_TRY(call_.broadcast("size", std::as_writable_bytes(std::span(&size, 1)), 0));
    Status room;
    if (size > 2 * kLongestManifest)
      room = internal_error("rank 0 announces a manifest of ", size, " bytes");
    else
      chosen.resize(size);
    ZERO_TRY(call_.vote("room", room));
    ZERO_TRY(call_.broadcast("manifest", std::as_writable_bytes(std::span(chosen)), 0));
    return chosen;
  }

  Status prepare() {
    windows_ = ZERO_TRY(windows_of(optim_));
    block_ = ZERO_TRY(allocate_block());
    if (call_.rank() == 0) found_ = ZERO_TRY(find_checkpoint(directory_, progress()));
    return {};
  }

  /// Stores rank 0's choice, and compares it with what is registered.
  Status compare(std::string_view chosen) {
    if (call_.rank() != 0) {
      const size_t end = chosen.find('\0');
      auto sent = parse_manifest(chosen.substr(end + 1));
      if (!sent.ok())
        return internal_error("rank 0 sent an invalid manifest: ", sent.failure().text());
      found_.path = chosen.substr(0, end);
      found_.manifest = std::move(*sent);
    }
    const std::string& path = found_.path;
    const std::string name = path.substr(path.rfind('/') + 1);
    if (path != directory_ && !(is_file_name(name) && path == joined(directory_, name)))
      return internal_error("rank 0 chose '", path, "' for '", directory_, "'");
    places_ = ZERO_TRY(match_registered(manifest(), optim_));
    groups_ = ZERO_TRY(saved_groups(manifest(), rules_of(optim_)));
    loss_scale_ = ZERO_TRY(saved_loss_scale(manifest(), optim_.loss_scale()));
    return check_products(manifest(), groups_);
  }

  /// Returns the slots that a parameter has in the checkpoint, as bits.
  uint32_t saved_slots_of(size_t param) const {
    return saved_slots(*places_.params[param], optim_.rule_of(optim_.params[param]));
  }

  Status verify() {
    opened_ = ZERO_TRY(open_directory(start_of_paths(), found_.path, Links::followed));
    ZERO_TRY(verify_files(files(), manifest(), call_.rank(), call_.world(), ExtrasFiles::left_out));
    loading_.files = ZERO_TRY(HostMemory::allocate(extras_bytes(manifest()), kExtras));
    if (call_.rank() != 0) return {};
    ZERO_TRY(read_extras(files(), manifest(), {loading_.files.data(), loading_.files.bytes()}));
    return parse_all_extras();
  }

  Status allocate() {
    std::vector<uint32_t> slots(optim_.plan.sections().size());
    for (size_t i = 0; i < optim_.params.size(); i++) {
      const auto section = static_cast<size_t>(optim_.plan.section_number(static_cast<int64_t>(i)));
      const Group& group = groups_[static_cast<size_t>(optim_.params[i].group)];
      slots[section] |= saved_slots_of(i) | group.slots_used();
    }
    for (const Section& section : optim_.plan.sections())
      ZERO_TRY(optim_.allocate_slots(section, slots[static_cast<size_t>(section.number)]));
    return make_batch(step_memory(optim_));
  }

  /// Gives every rank the extras of all ranks, because the checkpoint may be gone when they are
  /// used. Only rank 0 reads the files: if each of 1,024 ranks did, 1,024 files would be opened a
  /// million times.
  Status share_extras() {
    own_extras_.clear();
    if (manifest().extras.empty()) return {};
    ZERO_TRY(call_.broadcast("extras", {loading_.files.data(), loading_.files.bytes()}, 0));
    return call_.vote("extras", parse_all_extras());
  }

  Status parse_all_extras() {
    const auto* const all = reinterpret_cast<const char*>(loading_.files.data());
    loading_.by_rank = ZERO_TRY(parse_extras({all, loading_.files.bytes()}, manifest()));
    const auto own = loading_.by_rank.find(call_.rank());
    if (own != loading_.by_rank.end()) own_extras_ = copy_of(own->second);
    return {};
  }

  /// Sets step and settings. Nothing here can fail.
  void take_over() {
    for (size_t i = 0; i < optim_.params.size(); i++) {
      const ManifestParam& saved = *places_.params[i];
      optim_.progress[i].step = saved.step;
      optim_.progress[i].product = saved.mu_product;
      optim_.progress[i].live_slots = saved_slots_of(i) & ~(1u << kMasterSlot);
    }
    // A setting that the caller keeps in device memory stays there.
    for (size_t i = 0; i < groups_.size() && !keep_settings_; i++)
      optim_.groups[i].settings = std::move(groups_[i].settings);
    if (optim_.options.scales_loss()) optim_.set_loss_scale(loss_scale_);
    optim_.state.steps = manifest().step;
    optim_.extras = std::move(own_extras_);
    optim_.loaded_extras = std::move(loading_);
    optim_.phase = Phase::open;
    optim_.not_loaded = false;
    optim_.alike_params = optim_.sealed_params();
  }

  const Manifest& manifest() const { return found_.manifest; }

  Progress progress() {
    return [this] { return call_.go_on(); };
  }
  BlockFiles files() { return {opened_, block_.data(), progress()}; }

  Call& call_;
  Optimizer& optim_;
  const std::string directory_;
  const bool keep_settings_;
  Windows* windows_ = nullptr;
  HostMemory block_;
  FoundCheckpoint found_;
  Directory opened_;
  Places places_;
  std::vector<Group> groups_;
  LossScale loss_scale_;
  LoadedExtras loading_;
  Extras own_extras_;
};

}  // namespace

Status load_state(Call& call, Optimizer& optim, std::string_view directory, int32_t flags) {
  const TimedSpan watch(optim.comm->trace, "load", optim.counters.load_seconds);
  os().reached("load.begin");
  ZERO_TRY(call.agree("arguments", "zero_state_load",
                      text("directory '", directory, "'\nflags ", flags, "\n")));
  Status status =
      with_working_directories(call, directory, Load(call, optim, directory, flags).run());
  os().reached("load.done");
  return status;
}

}  // namespace zero
