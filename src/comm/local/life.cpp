// SPDX-License-Identifier: Apache-2.0
#include "comm/local/life.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>

#include "base/log.h"
#include "base/text.h"
#include "base/worker_thread.h"
#include "comm/process.h"

namespace zero::local {
namespace {

/// A thread whose death the kernel records. It sleeps for its whole life.
class LifeThread {
 public:
  static Result<LifeThread*> start();
  void stop();  // also deletes this object

  Fd page_fd;
  Fd pidfd;
  pid_t pid = 0;
  int shares = 0;

 private:
  void hold_word();

  std::shared_ptr<Mapping> page_;
  WorkerThread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ready_ = false;
  bool stop_ = false;
  int error_ = 0;

  // The robust list of the thread, which the kernel walks when the thread dies. It has one entry.
  // The futex word lies in the page, at futex_offset from the entry.
  struct robust_list entry_ {};
  struct robust_list_head head_ {};
};

std::mutex life_mutex;
LifeThread* life = nullptr;

Result<LifeThread*> LifeThread::start() {
  auto made = std::make_unique<LifeThread>();
  made->pid = os().getpid();
  made->page_fd = ZERO_TRY(create_segment("zero.life", kLifePageBytes));
  made->page_ = ZERO_TRY(map_segment(made->page_fd.get(), kLifePageBytes, Access::hidden));
  ZERO_TRY(reserve(made->page_fd.get(), *made->page_, 0, kLifePageBytes));
  // From here on only this mapping can write to the page. Kernels before 5.1 do not ensure this.
  os().fcntl(made->page_fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
  made->pidfd = Fd::open([&] { return os().pidfd_open(made->pid, 0); });

  ZERO_TRY(made->thread_.start("the thread that shows that this process is alive",
                               [&self = *made] { self.hold_word(); }));

  std::unique_lock lock(made->mutex_);
  // Wait: the thread gets there without waiting for anything.
  made->changed_.wait(lock, [&] { return made->ready_; });
  const int refused = made->error_;
  lock.unlock();
  if (refused == 0) return made.release();
  const std::string why = text("registering a robust futex: ", errno_text(refused));
  if (made->pidfd.valid()) {
    log(ZERO_LOG_INFO, text(why, ": other ranks notice the end of this process a little later"));
    return made.release();
  }
  made.release()->stop();
  return Status(ZERO_ERR_SYSTEM, why);
}

void LifeThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  // Wait: it has been told to stop, and does nothing else.
  thread_.join();
  delete this;
}

void LifeThread::hold_word() {
  auto& word = reinterpret_cast<LifePage*>(page_->data())->word;
  entry_.next = &head_.list;
  head_.list.next = &entry_;
  head_.futex_offset =
      static_cast<long>(reinterpret_cast<intptr_t>(&word) - reinterpret_cast<intptr_t>(&entry_));
  head_.list_op_pending = nullptr;
  const int error = os().set_robust_list(&head_, sizeof head_) == 0 ? 0 : errno;
  word.store(static_cast<uint32_t>(os().gettid()), std::memory_order_release);

  std::unique_lock lock(mutex_);
  ready_ = true;
  error_ = error;
  changed_.notify_all();
  // Wait: for as long as ranks live here: stop() ends it, or the end of the process.
  changed_.wait(lock, [&] { return stop_; });
  word.store(0, std::memory_order_release);
}

// ---- Peers: one object for each watched process.

std::mutex peers_mutex;
std::map<const Mapping*, std::weak_ptr<Peer>>* peers = nullptr;  // never freed

}  // namespace

Result<Life> Life::begin() {
  const std::lock_guard lock(life_mutex);
  const pid_t pid = os().getpid();
  if (life != nullptr && life->pid != pid)
    return Status(ZERO_ERR_FORKED, "this process was forked from one that holds ranks");
  if (life == nullptr) life = ZERO_TRY(LifeThread::start());
  ++life->shares;
  return Life(pid);
}

Life::~Life() {
  if (pid_ == 0) return;
  const std::lock_guard lock(life_mutex);
  if (pid_ != os().getpid() || --life->shares > 0) return;
  life->stop();
  life = nullptr;
}

int Life::page() const { return life->page_fd.get(); }
int Life::pidfd() const { return life->pidfd.get(); }

Result<std::shared_ptr<Peer>> Peer::meet(int page, Fd pidfd, pid_t pid) {
  ZERO_TRY(check_segment(page, kLifePageBytes));
  // A process maps each page once, so the mapping identifies the peer.
  std::shared_ptr<Mapping> mapping = ZERO_TRY(map_segment(page, kLifePageBytes, Access::read_only));
  const std::lock_guard lock(peers_mutex);
  if (peers == nullptr) peers = new std::map<const Mapping*, std::weak_ptr<Peer>>;
  std::erase_if(*peers, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Peer>& place = (*peers)[mapping.get()];
  if (std::shared_ptr<Peer> standing = place.lock()) return standing;
  auto peer = std::make_shared<Peer>(std::move(mapping), std::move(pidfd), pid);
  place = peer;
  return peer;
}

bool Peer::ask() const {
  if (dead()) return true;
  if (pidfd_.valid() && pidfd_ended(pidfd_.get(), 0))
    exited_.store(true, std::memory_order_release);
  return dead();
}

std::string Peer::how_it_left() const { return zero::how_it_left(pid_, pidfd_.get()); }

}  // namespace zero::local
