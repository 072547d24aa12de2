// SPDX-License-Identifier: Apache-2.0
// Threads never communicate. That all ranks have written is found out by a later entry vote, or by
// zero_state_save_wait; then rank 0's next thread makes it a checkpoint, and a vote after that
// tells all.
#include "state/save_behind.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>

#include "base/log.h"
#include "base/os.h"
#include "base/refusals.h"
#include "comm/apart.h"
#include "comm/watch.h"
#include "device/image.h"
#include "optim/saving.h"
#include "state/collective.h"
#include "state/find.h"
#include "state/save.h"
#include "step/memory.h"

namespace zero {
namespace {

/// How long a thread that was told to end may stay inside a call of the system.
constexpr int64_t kDropMs = 10'000;

constexpr int64_t kLookMs = 50;

/// Of threads that write, so that training keeps its cores: they get 1.5 % of one that is busy.
constexpr int kNice = 19;

/// What threads use; it outlives whoever gives them up.
struct Work {
  Work(const Optimizer& optim, std::string_view directory, int32_t flags)
      : save(optim, directory, flags) {}
  Save save;
  std::shared_ptr<Image> image;
  std::atomic<int64_t> blocks{0};  // written so far
};

class Behind final : public Saving {
 public:
  Behind(Optimizer& optim, std::string_view directory, int32_t flags)
      : optim_(optim), work_(std::make_shared<Work>(optim, directory, flags)) {}
  ~Behind() override;

  Status begin(Call& call);
  bool ended() const { return part_ == Part::ended; }
  bool failed() const { return failed_; }
  const std::string& target() const { return work_->save.target(); }
  Status await(Call& call);

  Word word() override;
  Status hear(Call& call, const Words& all) override;
  void keep_for_step() override;

 private:
  enum class Part { written, published, ended };

  Status make_image();
  std::vector<Image::Bytes> parts_of_others() const;
  void start(Status (*body)(Work&, const Progress&));
  void look();
  void publish();
  Status await_thread(Call& call);

  Optimizer& optim_;
  std::shared_ptr<Work> work_;
  std::vector<Image::Bytes> others_;  // what other ranks write into this rank's parameters
  Part part_ = Part::written;         // what all ranks wait for
  bool failed_ = false;               // some rank has
  Apart<Status> thread_;
  std::optional<Status> outcome_ = Status();  // of the latest thread, when it has ended
};

Behind::~Behind() {
  if (work_->image != nullptr) work_->image->close();
  if (!outcome_) outcome_ = thread_.await(kDropMs);
  look();
  if (work_->image != nullptr) optim_.image.reset();
}

/// Returns the parts of parameters that this rank writes to files and other ranks update.
std::vector<Image::Bytes> Behind::parts_of_others() const {
  const int32_t rank = optim_.comm->rank();
  std::vector<Image::Bytes> parts;
  for (size_t i = 0; i < optim_.params.size(); i++) {
    if (work_->save.writers()[i] != rank) continue;
    const Param& param = optim_.params[i];
    for (const auto& [owner, all] : optim_.plan.segments_of(static_cast<int64_t>(i)))
      if (owner != rank)
        parts.emplace_back(param.element(all.first), size_of(param.dtype, all.count));
  }
  return parts;
}

/// Buffers are copied at once, because the program changes them when it likes; so is all that is on
/// a device.
Status Behind::make_image() {
  work_->image = ZERO_TRY(Image::create(work_->save.shards().ranges(), optim_.memory_of_copies));
  others_ = parts_of_others();
  if (optim_.on_device) return work_->image->keep_all(ZERO_TRY(windows_of(optim_))->values);
  for (const Buffer& buffer : optim_.buffers) work_->image->keep(buffer.data, buffer.bytes());
  return {};
}

Status Behind::begin(Call& call) {
  ZERO_TRY(work_->save.begin(call, optim_, [this] { return make_image(); }));
  optim_.image = work_->image;
  start([](Work& work, const Progress& progress) {
    os().setpriority(PRIO_PROCESS, static_cast<id_t>(os().gettid()), kNice);  // a wish
    const Show show = [&](const std::byte* from, size_t bytes, const auto& visit) {
      return work.image->show_all(from, bytes, visit);
    };
    return work.save.write(show, progress);
  });
  return {};
}

void Behind::start(Status (*body)(Work&, const Progress&)) {
  outcome_.reset();
  thread_ = {};
  Status started = thread_.start([held = work_, body, rank = optim_.comm->rank()]() mutable {
    log_as(rank);
    const std::shared_ptr<Work> work = std::move(held);  // which must go before the outcome is told
    Status status(ZERO_ERR_MEMORY, "out of memory");
    (void)succeeds(
        [&] { return status = body(*work, [&] { return work->blocks++, Status(); }), true; });
    return status;
  });
  if (!started.ok()) outcome_ = std::move(started);
}

/// The next save has the memory for copies: to get it anew would cost a step twice its time.
void Behind::look() {
  if (!outcome_) outcome_ = thread_.await(0);
  if (!outcome_ || work_->image == nullptr) return;
  optim_.image.reset();
  optim_.memory_of_copies = work_->image->release();
  work_->image.reset();
}

Saving::Word Behind::word() {
  look();
  if (!outcome_) return Word::busy;
  return outcome_->ok() ? Word::ready : Word::failed;
}

void Behind::publish() {
  part_ = Part::published;
  if (optim_.comm->rank() == 0)
    start([](Work& work, const Progress& progress) { return work.save.publish(progress); });
}

Status Behind::hear(Call& call, const Words& all) {
  failed_ = failed_ || all.most == Word::failed;
  if (failed_ || ended() || all.least != Word::ready) return {};
  if (part_ == Part::published) return part_ = Part::ended, Status();
  ZERO_TRY(work_->save.gather_records(call));
  publish();
  return {};
}

/// Other ranks store what they have updated, and a trust ratio or a function of the caller's works
/// in other places than the walk over the share.
void Behind::keep_for_step() {
  if (optim_.image == nullptr) return;
  const OptimizerOptions& options = optim_.options;
  if (options.custom != nullptr || options.rule->trust != nullptr) return optim_.image->keep_all();
  for (const Image::Bytes part : others_) optim_.image->keep(part.data(), part.size());
  others_.clear();
}

/// Waits for this rank's thread, for as long as it writes block after block.
Status Behind::await_thread(Call& call) {
  const int64_t limit_ms = optim_.comm->options().timeout_ms;
  Watch watch({"zero_state_save_wait", "written", limit_ms, true});
  int64_t seen = work_->blocks, sign_ns = watch.now_ns();
  while (!outcome_) {
    outcome_ = thread_.await(kLookMs);
    sign_ns += watch.look();
    optim_.comm->heed_interrupt("the end of a save");
    if (optim_.comm->aborted()) return optim_.comm->failure_status();
    if (const int64_t blocks = work_->blocks; blocks != seen) {
      seen = blocks;
      call.progress();
      sign_ns = watch.now_ns();
    }
    if (!outcome_ && watch.is_late(sign_ns))
      outcome_ = Status(
          ZERO_ERR_CKPT_IO,
          text("'", work_->save.target(), "': the system wrote nothing for ", limit_ms, " ms"));
  }
  look();
  return {};
}

Status Behind::await(Call& call) {
  if (ended()) return {};
  ZERO_TRY(await_thread(call));
  if (part_ == Part::written) {
    ZERO_TRY(work_->save.agree_written(call, *outcome_));
    publish();
    ZERO_TRY(await_thread(call));
  }
  return work_->save.agree_published(call, *outcome_);
}

Behind* save_of(Optimizer& optim) { return static_cast<Behind*>(optim.saving.get()); }

Status none_begun() { return wrong_state("no save has begun: zero_state_save_begin comes first"); }

}  // namespace

Status check_no_save(Optimizer& optim) {
  if (optim.saving == nullptr || save_of(optim)->ended()) return {};
  return Status(ZERO_ERR_BUSY, "a save has begun: zero_state_save_wait ends it");
}

Status begin_save(Call& call, Optimizer& optim, std::string_view directory, int32_t flags) {
  const TimedSpan watch(optim.comm->trace, "save begin", optim.counters.save_seconds);
  ZERO_TRY(agree_save(call, optim, directory, flags));
  auto save = std::make_shared<Behind>(optim, directory, flags);
  const Status begun = with_working_directories(call, directory, save->begin(call));
  if (begun.ok()) optim.saving = std::move(save);
  return begun;
}

Result<bool> poll_save(Optimizer& optim) {
  if (optim.saving == nullptr) return none_begun();
  return save_of(optim)->ended() || save_of(optim)->failed();
}

Status await_save(Call& call, Optimizer& optim) {
  const TimedSpan watch(optim.comm->trace, "save wait", optim.counters.save_seconds);
  if (optim.saving == nullptr) return none_begun();
  const std::shared_ptr<Saving> save = std::exchange(optim.saving, nullptr);
  auto& behind = static_cast<Behind&>(*save);
  return with_working_directories(call, behind.target(), behind.await(call));
}

}  // namespace zero
