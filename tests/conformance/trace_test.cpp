// SPDX-License-Identifier: Apache-2.0
// zero_trace_start: a rank's file has its actions and the rank that it waited for, and tracing
// delays no step.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "base/os.h"
#include "support/comms.h"
#include "support/expect.h"
#include "support/scratch.h"
#include "support/system_calls.h"
#include "zero.h"

namespace zero::test {
namespace {

void start(zero_comm* comm, const std::string& directory) {
  EXPECT_OK(zero_trace_start(comm, directory.c_str()));
}

size_t count_of(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(word, at)) != text.npos; at++) found++;
  return found;
}

std::string file_of(const std::string& directory, int rank) {
  return read_file(directory + "/rank-" + std::to_string(rank) + ".json");
}

TEST(Trace, names_the_rank_that_came_late_on_every_comm) {
  const Scratch scratch;
  on_each_comm(3, [&](zero_comm* comm, int rank) {
    start(comm, scratch / "trace");
    EXPECT_OK(zero_comm_barrier(comm));
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_OK(zero_comm_barrier(comm));
    EXPECT_OK(zero_trace_stop(comm));
    const std::string file = file_of(scratch / "trace", rank);
    const size_t last = file.rfind("barrier\",\"cat\":\"wait\"");
    ASSERT_NE(last, file.npos);
    EXPECT_NE(file.find("\"rank\":2}", last), file.npos) << file;
    EXPECT_EQ(count_of(file, "\"name\":\"zero_comm_barrier\",\"cat\":\"call\""), 2u);
  });
}

TEST(Trace, names_of_ranks_are_in_their_order_as_texts) {
  const Scratch scratch;
  on_ranks(CommKind::local, 11, [&](zero_comm* comm, int rank) {
    start(comm, scratch / "order");
    EXPECT_OK(zero_trace_stop(comm));
    const char* const name = rank < 10 ? "\"rank  %d of 11\"" : "\"rank %d of 11\"";
    char words[32];
    std::snprintf(words, sizeof words, name, rank);
    EXPECT_EQ(count_of(file_of(scratch / "order", rank), words), 1u);
  });
}

TEST(Trace, one_rank_may_trace_alone) {
  const Scratch scratch;
  on_each_comm(2, [&](zero_comm* comm, int rank) {
    if (rank == 1) start(comm, scratch / "alone");
    for (int i = 0; i < 3; i++) EXPECT_OK(zero_comm_barrier(comm));
    if (rank != 1) return;
    EXPECT_OK(zero_trace_stop(comm));
    EXPECT_EQ(entries_of(scratch / "alone"), 1);
    // From the second exchange on, the other rank reports when it arrived.
    EXPECT_EQ(count_of(file_of(scratch / "alone", 1), "\"args\":{\"rank\":"), 2u);
  });
}

TEST(Trace, others_tell_when_they_came_only_while_a_rank_traces) {
  const Scratch scratch;
  on_each_comm(2, [&](zero_comm* comm, int rank) {
    for (const char* name : {"first", "second"}) {
      if (rank == 1) start(comm, scratch / name);
      for (int i = 0; i < 3; i++) EXPECT_OK(zero_comm_barrier(comm));
      if (rank == 1) {
        EXPECT_OK(zero_trace_stop(comm));
      }
      for (int i = 0; i < 2; i++) EXPECT_OK(zero_comm_barrier(comm));
      // The first exchange has no times, because nobody had asked for them.
      if (rank == 1) {
        EXPECT_EQ(count_of(file_of(scratch / name, 1), "\"args\":{\"rank\":"), 2u) << name;
      }
    }
  });
}

TEST(Trace, a_sub_group_has_files_of_its_own) {
  const Scratch scratch;
  setenv("ZERO_TRACE", (scratch / "all").c_str(), 1);
  on_ranks(CommKind::local, 2, [&](zero_comm* comm, int rank) {
    zero_comm* group = nullptr;
    EXPECT_OK(zero_comm_split(&group, comm, rank, 0));
    EXPECT_OK(zero_trace_stop(comm));
    EXPECT_OK(zero_trace_stop(group));
    EXPECT_OK(zero_comm_free(group));
  });
  unsetenv("ZERO_TRACE");
  EXPECT_EQ(entries_of(scratch / "all"), 4);
}

TEST(Trace, a_second_comm_of_a_rank_does_not_write_into_the_first_ones_file) {
  const Scratch scratch;
  zero_comm* const first = solo();
  zero_comm* const second = solo();
  start(first, scratch.path());
  start(second, scratch.path());
  EXPECT_EQ(entries_of(scratch.path()), 2);
  EXPECT_OK(zero_comm_free(first));
  EXPECT_OK(zero_comm_free(second));
  EXPECT_EQ(read_file(scratch / "2.rank-0.json").back(), '\n');
}

TEST(Trace, what_cannot_be_written_is_told_and_changes_nothing) {
  const Scratch scratch;
  write_file(scratch / "file", "mine");
  zero_comm* const comm = solo();
  EXPECT_EQ(zero_trace_stop(comm), ZERO_ERR_STATE);
  EXPECT_EQ(zero_trace_start(comm, (scratch / "file").c_str()), ZERO_ERR_SYSTEM);
  EXPECT_TRUE(says("file/rank-0.json"));
  EXPECT_EQ(zero_trace_start(comm, (scratch / "no/folder").c_str()), ZERO_ERR_SYSTEM);
  EXPECT_EQ(read_file(scratch / "file"), "mine");
  start(comm, scratch.path());
  EXPECT_EQ(zero_trace_start(comm, scratch.path().c_str()), ZERO_ERR_STATE);
  EXPECT_OK(zero_comm_barrier(comm));
  EXPECT_OK(zero_trace_stop(comm));
  start(comm, scratch.path());
  EXPECT_OK(zero_comm_free(comm));
}

int locks_left = 0;
std::function<void()> meanwhile;  // what another job does before this many more locks are taken

TEST(Trace, a_file_that_another_job_makes_at_the_same_moment_stays_that_jobs) {
  const ReplacedCall lock(&SystemCalls::flock, [](int fd, int operation) {
    if (locks_left-- == 0) meanwhile();
    return real_system_calls().flock(fd, operation);
  });
  for (const auto& [has_old, locks] : {std::pair(false, 0), {true, 0}, {true, 1}}) {
    const Scratch scratch;
    if (has_old) write_file(scratch / "rank-0.json", "of a job that has ended");
    zero_comm* const first = solo();
    zero_comm* const second = solo();
    locks_left = locks;
    meanwhile = [&] { start(second, scratch.path()); };
    start(first, scratch.path());
    EXPECT_OK(zero_comm_free(first));
    EXPECT_OK(zero_comm_free(second));
    EXPECT_EQ(entries_of(scratch.path()), 2) << has_old << locks;
    for (const char* file : {"rank-0.json", "2.rank-0.json"})
      EXPECT_NE(read_file(scratch / file).find("libzero end"), std::string::npos) << file;
  }
}

std::string watched;

TEST(Trace, a_file_that_does_not_say_yet_whose_it_is_has_no_name) {
  const Scratch scratch;
  watched = scratch / "rank-0.json";
  const ReplacedCall write(&SystemCalls::pwrite,
                           [](int fd, const void* data, size_t bytes, int64_t at) -> ssize_t {
                             EXPECT_TRUE(at > 0 || !std::filesystem::exists(watched));
                             return real_system_calls().pwrite(fd, data, bytes, at);
                           });
  zero_comm* const comm = solo();
  start(comm, scratch.path());
  EXPECT_TRUE(std::filesystem::exists(watched));
  EXPECT_OK(zero_comm_free(comm));
}

TEST(Trace, no_room_for_any_file_is_told_and_ends_nothing) {
  const Scratch scratch;
  zero_comm* const comm = solo();
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit none{0, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  const zero_status started = zero_trace_start(comm, scratch.path().c_str());
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(started, ZERO_ERR_SYSTEM);
  EXPECT_TRUE(says("EFBIG"));
  EXPECT_EQ(entries_of(scratch.path()), 0);
  EXPECT_OK(zero_comm_free(comm));
}

std::atomic<bool> full{false};

TEST(Trace, a_full_disk_ends_the_trace_and_no_call) {
  const Scratch scratch;
  zero_comm* const comm = solo();
  start(comm, scratch.path());
  EXPECT_OK(zero_comm_barrier(comm));
  full = true;
  const ReplacedCall refused(&SystemCalls::pwrite,
                             [](int fd, const void* data, size_t bytes, int64_t at) -> ssize_t {
                               struct stat file;
                               fstat(fd, &file);
                               // Existing bytes can be overwritten.
                               if (full)
                                 bytes = std::min(bytes, static_cast<size_t>(file.st_size - at));
                               if (bytes > 0)
                                 return real_system_calls().pwrite(fd, data, bytes, at);
                               errno = ENOSPC;
                               return -1;
                             });
  for (int i = 0; i < 100; i++) EXPECT_OK(zero_comm_barrier(comm));
  EXPECT_EQ(zero_trace_stop(comm), ZERO_ERR_SYSTEM);
  EXPECT_TRUE(says("ENOSPC"));
  full = false;
  const std::string file = file_of(scratch.path(), 0);
  EXPECT_TRUE(file.starts_with("[\n{") && file.ends_with("}\n]\n")) << file;
  start(comm, scratch.path());
  EXPECT_OK(zero_trace_stop(comm));
  EXPECT_OK(zero_comm_free(comm));
}

std::atomic<bool> stuck{false};

TEST(Trace, more_than_finds_room_is_dropped_and_counted) {
  const Scratch scratch;
  zero_comm* const comm = solo();
  start(comm, scratch.path());
  stuck = true;
  const ReplacedCall slow(&SystemCalls::pwrite,
                          [](int fd, const void* data, size_t bytes, int64_t at) -> ssize_t {
                            while (stuck) std::this_thread::yield();
                            return real_system_calls().pwrite(fd, data, bytes, at);
                          });
  for (int i = 0; i < 40'000; i++) EXPECT_OK(zero_comm_barrier(comm));  // nobody waits for the disk
  stuck = false;
  EXPECT_OK(zero_trace_stop(comm));
  const std::string file = file_of(scratch.path(), 0);
  EXPECT_EQ(file.find("\"dropped\":0}"), file.npos);
  EXPECT_NE(file.find("\"dropped\":"), file.npos);
  EXPECT_OK(zero_comm_free(comm));
}

}  // namespace
}  // namespace zero::test
