// SPDX-License-Identifier: Apache-2.0
// Writes a save on threads, which never communicate. A later entry vote, or zero_state_save_wait,
// finds out that all ranks have written. Another thread of rank 0 then completes the checkpoint,
// and a later vote informs all ranks. A thread that is given up keeps everything that it uses until
// its system call returns, and then ends. The next save has its own memory and descriptors.
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

/// How long zero_free waits at most for a thread that is inside a system call.
constexpr int64_t kDropMs = 10'000;

constexpr int64_t kLookMs = 50;

/// The niceness of writing threads, which leaves cores to training: they get 1.5 % of a busy core.
constexpr int kNice = 19;

/// What a thread uses. The thread and the optimizer's Behind own it together.
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
  Status give_up(Status why);
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
  uint64_t bytes_of_copies() const;
  std::vector<Image::Bytes> parts_of_others() const;
  void start(Status (*body)(Work&, const Progress&));
  void look();
  void publish();
  Status await_thread(Call& call);

  Optimizer& optim_;
  std::shared_ptr<Work> work_;
  std::shared_ptr<Image> image_;      // until the thread that reads it has ended or is given up
  std::vector<Image::Bytes> others_;  // parts that this rank saves and other ranks update
  Part part_ = Part::written;         // what all ranks wait for
  bool failed_ = false;               // on some rank
  bool told_ = false;                 // the caller knows the outcome
  Apart<Status> thread_;
  std::optional<Status> outcome_ = Status();  // of the latest thread, once it has ended
};

/// Waits for a save that only needs to be renamed. Gives up any other save at once, and waits for
/// its thread to end, so that its directory is removed.
Behind::~Behind() {
  const int64_t limit_ms = std::min(kDropMs, optim_.comm->options().timeout_ms);
  if (!outcome_) outcome_ = thread_.await(part_ == Part::published ? limit_ms : 0);
  if (outcome_) {
    look();
    if (!told_ && !outcome_->ok())
      log(ZERO_LOG_WARNING, text("the save of '", target(), "' failed: ", outcome_->text()));
    return;
  }
  const Status end = give_up({ZERO_ERR_ABORTED, text("the optimizer was freed before the save of '",
                                                     target(), "' finished")});
  log(ZERO_LOG_WARNING, end.text());
  if (part_ == Part::written) (void)thread_.await(limit_ms);
}

Status Behind::give_up(Status why) {
  look();
  optim_.image.reset();
  if (image_ != nullptr) std::exchange(image_, nullptr)->close();
  told_ = true;
  if (outcome_) why = with_own(std::move(why), *outcome_);
  outcome_ = work_->save.give_up(std::move(why));
  return *outcome_;
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

/// Makes the image. Copies buffers at once, because the program may change them at any time, and
/// copies everything on a device at once.
Status Behind::make_image() {
  image_ = ZERO_TRY(Image::create(work_->save.shards().ranges(), optim_.memory_of_copies));
  work_->image = image_;
  others_ = parts_of_others();
  if (optim_.on_device) return image_->keep_all(ZERO_TRY(windows_of(optim_))->values);
  for (const Buffer& buffer : optim_.buffers) image_->keep(buffer.data, buffer.bytes());
  return {};
}

/// Returns how many bytes the copies need, or 0 if the earlier save left enough memory.
uint64_t Behind::bytes_of_copies() const {
  uint64_t bytes = 0;
  for (const Image::Bytes range : work_->save.shards().ranges()) bytes += range.size();
  return bytes > optim_.memory_of_copies.bytes() ? bytes : 0;
}

Status Behind::begin(Call& call) {
  ZERO_TRY(work_->save.begin(
      call, optim_, [this] { return make_image(); }, [this] { return bytes_of_copies(); }));
  optim_.image = image_;
  start([](Work& work, const Progress& progress) {
    os().setpriority(PRIO_PROCESS, static_cast<id_t>(os().gettid()), kNice);  // best effort
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
    const std::shared_ptr<Work> work = std::move(held);  // destroyed before the outcome is set
    Status status(ZERO_ERR_MEMORY, "out of memory");
    const Progress progress = [&] {
      work->blocks++;
      return work->save.given_up() ? save_given_up() : Status();
    };
    (void)succeeds([&] { return status = body(*work, progress), true; });
    return status;
  });
  if (!started.ok()) outcome_ = std::move(started);
}

/// Checks whether the thread has ended. The next save reuses the memory for copies, because
/// allocating it again would double the time of a step.
void Behind::look() {
  if (!outcome_) outcome_ = thread_.await(0);
  if (!outcome_ || image_ == nullptr) return;
  optim_.image.reset();
  optim_.memory_of_copies = std::exchange(image_, nullptr)->release();
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
  if (part_ == Part::published) {
    part_ = Part::ended;
    work_->save.note_complete();
    return {};
  }
  ZERO_TRY(work_->save.gather_records(call));
  publish();
  return {};
}

/// Keeps the parts that other ranks will overwrite. Keeps everything if the step has a trust ratio
/// or a custom function, because these write outside the walk over the share.
void Behind::keep_for_step() {
  if (optim_.image == nullptr) return;
  if (optim_.any_rule(is_custom) || optim_.any_rule(has_trust)) return optim_.image->keep_all();
  for (const Image::Bytes part : others_) optim_.image->keep(part.data(), part.size());
  others_.clear();
}

/// Waits for this rank's thread as long as it keeps writing blocks. Fails if the comm breaks.
Status Behind::await_thread(Call& call) {
  const int64_t limit_ms = optim_.comm->options().timeout_ms;
  Watch watch({"zero_state_save_wait", "written", limit_ms, true});
  int64_t seen = work_->blocks, sign_ns = watch.now_ns();
  while (!outcome_) {
    outcome_ = thread_.await(kLookMs);
    sign_ns += watch.look();
    optim_.comm->heed_interrupt("the end of a save");
    if (!outcome_ && optim_.comm->aborted()) return give_up(optim_.comm->failure_status());
    if (const int64_t blocks = work_->blocks; blocks != seen) {
      seen = blocks;
      call.progress();
      sign_ns = watch.now_ns();
    }
    if (!outcome_ && watch.is_late(sign_ns))
      (void)give_up({ZERO_ERR_CKPT_IO, text("'", work_->save.target(),
                                            "': the system wrote nothing for ", limit_ms, " ms")});
  }
  look();
  return {};
}

Status Behind::await(Call& call) {
  told_ = true;
  if (ended()) return {};
  ZERO_TRY(await_thread(call));
  if (part_ == Part::written) {
    Status written = work_->save.agree_written(call, *outcome_);
    if (!written.ok()) return work_->save.give_up(std::move(written));
    publish();
    ZERO_TRY(await_thread(call));
  }
  return work_->save.agree_published(call, *outcome_);
}

Behind* save_of(Optimizer& optim) { return static_cast<Behind*>(optim.saving.get()); }

Status none_begun() { return wrong_state("no save has begun: call zero_state_save_begin first"); }

}  // namespace

Status check_no_save(Optimizer& optim) {
  if (optim.saving == nullptr || save_of(optim)->ended()) return {};
  return Status(ZERO_ERR_BUSY, "a save has begun: call zero_state_save_wait to finish it");
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

Status give_up_save(Optimizer& optim, Status why) {
  if (optim.saving == nullptr || !optim.comm->aborted()) return why;
  const std::shared_ptr<Saving> save = std::exchange(optim.saving, nullptr);
  return static_cast<Behind&>(*save).give_up(std::move(why));
}

}  // namespace zero
