// SPDX-License-Identifier: Apache-2.0
// Files and blocks of a checkpoint: names, links and pipes, interrupted and short transfers,
// damage.
#include "state/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/hash.h"
#include "state/blocks.h"
#include "support/failing_calls.h"
#include "support/scratch.h"

namespace zero {
namespace {

using test::FailingCalls;
using test::Fault;
using test::Scratch;

Fd open_path(const std::string& path) {
  auto fd = open_directory(AT_FDCWD, path, path, true);
  EXPECT_TRUE(fd.ok());
  return fd.ok() ? std::move(*fd) : Fd();
}

TEST(File, only_plain_names_are_names_of_files) {
  for (const char* name :
       {"a", "zero.json", "model-00001-of-00002.safetensors", "a b", "\u00e9", "a..b"}) {
    EXPECT_TRUE(is_file_name(name)) << name;
  }
  const std::string_view bad[] = {"",
                                  ".",
                                  "..",
                                  ".a",
                                  "a/b",
                                  "/a",
                                  "a/",
                                  "..\\a",
                                  "a\\b",
                                  "a\nb",
                                  "a\x7f",
                                  "\xff",
                                  std::string_view("a\0b", 3)};
  for (const std::string_view name : bad) EXPECT_FALSE(is_file_name(name)) << name;
  EXPECT_FALSE(is_file_name(std::string(256, 'a')));
}

TEST(File, a_path_splits_at_its_last_name) {
  const struct {
    const char *path, *parent, *name;
  } good[] = {{"c", ".", "c"},         {"a/c", "a", "c"},  {"/c", "/", "c"},
              {"a/b/c//", "a/b", "c"}, {"./c", ".", "c"},  {"../c", "..", "c"},
              {"/a/.c", "/a", ".c"},   {"a//c", "a/", "c"}};
  for (const auto& one : good) {
    const auto split = split_path(one.path);
    ASSERT_TRUE(split.ok()) << one.path;
    EXPECT_EQ((*split).parent, one.parent) << one.path;
    EXPECT_EQ((*split).name, one.name) << one.path;
  }
  for (const char* path : {"", "/", "//", ".", "..", "a/..", "a/./", "/.."}) {
    EXPECT_EQ(split_path(path).failure().code(), ZERO_ERR_ARGUMENT) << path;
  }
}

TEST(File, missing_parents_are_made_and_synced_where_they_were_entered) {
  Scratch scratch;
  const FailingCalls calls;
  ASSERT_TRUE(make_directories(scratch / "a/b//c").ok());
  struct stat info;
  EXPECT_EQ(stat((scratch / "a/b/c").c_str(), &info), 0);
  int made = 0, synced = 0;
  for (const auto& call : calls.log()) {
    made += call.operation == "mkdirat";
    synced += call.operation == "fsync";
  }
  EXPECT_EQ(made, 3);
  EXPECT_EQ(synced, 3);
  ASSERT_TRUE(make_directories(scratch / "a/b/c").ok());  // again, nothing to do
  test::write_file(scratch / "file", "x");
  EXPECT_EQ(make_directories(scratch / "file/d").failure().code(), ZERO_ERR_CKPT_IO);
}

TEST(File, a_listing_is_sorted_and_whole) {
  Scratch scratch;
  for (int i = 0; i < 300; i++) test::write_file(scratch / std::to_string(i), "");
  auto names = list_directory(open_path(scratch.path()), scratch.path());
  ASSERT_TRUE(names.ok());
  EXPECT_EQ((*names).size(), 300u);
  EXPECT_TRUE(std::is_sorted((*names).begin(), (*names).end()));
}

TEST(File, links_pipes_and_directories_are_not_opened_as_input) {
  Scratch scratch;
  test::write_file(scratch / "file", "0123456789");
  ASSERT_EQ(symlink("file", (scratch / "link").c_str()), 0);
  ASSERT_EQ(mkfifo((scratch / "pipe").c_str(), 0600), 0);
  ASSERT_EQ(mkdir((scratch / "directory").c_str(), 0700), 0);
  ASSERT_EQ(symlink("/dev/zero", (scratch / "device").c_str()), 0);
  const Fd directory = open_path(scratch.path());
  EXPECT_EQ(open_input(directory, "file", "file")->bytes, 10u);
  const struct {
    const char *name, *says;
  } bad[] = {{"link", "symbolic link"},
             {"device", "symbolic link"},
             {"pipe", "not a regular file"},
             {"directory", "not a regular file"},
             {"nothing", "missing"}};
  for (const auto& one : bad) {
    const auto input = open_input(directory, one.name, one.name);
    EXPECT_EQ(input.failure().code(), ZERO_ERR_CKPT_INVALID) << one.name;
    EXPECT_NE(input.failure().text().find(one.says), std::string::npos) << input.failure().text();
  }
}

TEST(File, an_error_names_file_operation_and_reason) {
  EXPECT_EQ(io_error("run/x", "fsync", ENOSPC).text(),
            "'run/x': fsync: No space left on device (ENOSPC)");
}

/// A file of random bytes through the writer, in appends of random sizes.
Result<FileRecord> write_blocks(const Fd& directory, const std::string& name,
                                const std::string& bytes, uint32_t seed) {
  std::mt19937 random(seed);
  BlockBuffer buffer = ZERO_TRY(BlockBuffer::create());
  const BlockFiles files{directory, "dir", buffer, [] {}};
  BlockWriter writer = ZERO_TRY(BlockWriter::create(files, {name, bytes.size(), {}}));
  for (size_t at = 0; at < bytes.size();) {
    const size_t part = std::min<size_t>(bytes.size() - at, random() % (3 * kBlockBytes));
    ZERO_TRY(writer.append(bytes_of(std::string_view(bytes).substr(at, part))));
    at += part;
  }
  return writer.finish();
}

std::string random_bytes(size_t count, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(count, '\0');
  for (size_t i = 0; i + 8 <= count; i += 8) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, 8);
  }
  return bytes;
}

TEST(Blocks, what_is_written_is_read_from_any_place_and_its_checksums_are_of_the_bytes) {
  Scratch scratch;
  const Fd directory = open_path(scratch.path());
  const uint64_t sizes[] = {
      1, 4095, kBlockBytes - 1, kBlockBytes, kBlockBytes + 1, 3 * kBlockBytes + 12345};
  for (const uint64_t size : sizes) {
    const std::string bytes = random_bytes(size, static_cast<uint32_t>(size));
    const std::string name = std::to_string(size);
    auto record = write_blocks(directory, name, bytes, 1);
    ASSERT_TRUE(record.ok()) << record.failure().text();
    EXPECT_EQ(test::read_file(scratch / name), bytes);
    ASSERT_EQ(record->blocks.size(), block_count(size));
    for (uint64_t b = 0; b < record->blocks.size(); b++) {
      const auto block = std::string_view(bytes).substr(b * kBlockBytes, kBlockBytes);
      EXPECT_EQ(record->blocks[b], hash64(bytes_of(block)));
    }
    auto buffer = BlockBuffer::create();
    const BlockFiles files{directory, "dir", *buffer, [] {}};
    auto reader = BlockReader::open(files, *record);
    ASSERT_TRUE(reader.ok()) << reader.failure().text();
    std::mt19937_64 random(2);
    for (int round = 0; round < 40; round++) {
      const uint64_t from = random() % size,
                     count = random() % std::min<uint64_t>(size - from + 1, 5'000'000);
      std::string part(count, '\0');
      ASSERT_TRUE(reader->read(from, std::as_writable_bytes(std::span(part))).ok());
      ASSERT_EQ(part, bytes.substr(from, count));
    }
    EXPECT_FALSE(
        reader->read(size, std::as_writable_bytes(std::span(std::string(1, 'x').data(), 1))).ok());
  }
}

TEST(Blocks, a_file_that_exists_is_not_written_over) {
  Scratch scratch;
  const Fd directory = open_path(scratch.path());
  test::write_file(scratch / "old", "precious");
  ASSERT_EQ(symlink("elsewhere", (scratch / "link").c_str()), 0);
  for (const char* name : {"old", "link"}) {
    const auto record = write_blocks(directory, name, "new", 1);
    EXPECT_EQ(record.failure().code(), ZERO_ERR_CKPT_IO);
    EXPECT_NE(record.failure().text().find("EEXIST"), std::string::npos) << record.failure().text();
  }
  EXPECT_EQ(test::read_file(scratch / "old"), "precious");
  EXPECT_NE(access((scratch / "elsewhere").c_str(), F_OK), 0);
}

TEST(Blocks, short_and_interrupted_transfers_are_completed) {
  Scratch scratch;
  const Fd directory = open_path(scratch.path());
  const std::string bytes = random_bytes(kBlockBytes + 777, 3);
  auto sound = write_blocks(directory, "sound", bytes, 1);
  ASSERT_TRUE(sound.ok());
  for (const bool interrupted : {false, true}) {
    Fault fault{.kind = interrupted ? Fault::error : Fault::short_transfer, .error_number = EINTR};
    fault.for_ever = !interrupted;
    int64_t calls = 1;
    for (int64_t at = 0; at < calls; at++) {
      fault.at = at;
      const FailingCalls failing(fault);
      const std::string name = (interrupted ? "i" : "s") + std::to_string(at);
      auto record = write_blocks(directory, name, bytes, 1);
      ASSERT_TRUE(record.ok()) << record.failure().text();
      EXPECT_EQ(record->blocks, sound->blocks);
      EXPECT_EQ(test::read_file(scratch / name), bytes);
      auto buffer = BlockBuffer::create();
      const BlockFiles files{directory, "dir", *buffer, [] {}};
      auto reader = BlockReader::open(files, *record);
      ASSERT_TRUE(reader.ok()) << reader.failure().text();
      std::string back(bytes.size(), '\0');
      ASSERT_TRUE(reader->read(0, std::as_writable_bytes(std::span(back))).ok());
      EXPECT_EQ(back, bytes);
      calls = interrupted ? failing.calls() : 1;
      EXPECT_GT(calls, interrupted ? 5 : 0);
    }
  }
}

TEST(Blocks, a_failed_sync_is_never_repeated_on_that_file) {
  Scratch scratch;
  const Fd directory = open_path(scratch.path());
  const FailingCalls failing({.kind = Fault::error, .operation = "fsync"});
  const auto record = write_blocks(directory, "file", "bytes", 1);
  EXPECT_EQ(record.failure().text(), "'dir/file': fsync: Input/output error (EIO)");
  EXPECT_FALSE(failing.synced_again());
}

TEST(Blocks, filesystems_without_reservation_are_written_all_the_same) {
  Scratch scratch;
  const Fd directory = open_path(scratch.path());
  for (const int error : {EOPNOTSUPP, ENOSYS}) {
    const FailingCalls failing(
        {.kind = Fault::error, .error_number = error, .operation = "fallocate"});
    EXPECT_TRUE(write_blocks(directory, "ok" + std::to_string(error), "bytes", 1).ok());
    EXPECT_EQ(failing.hits(), 1);
  }
  const FailingCalls failing(
      {.kind = Fault::error, .error_number = ENOSPC, .operation = "fallocate"});
  const auto record = write_blocks(directory, "full", "bytes", 1);
  EXPECT_EQ(record.failure().text(),
            "'dir/full': reserve 5 bytes: No space left on device (ENOSPC)");
}

TEST(Blocks, damage_and_other_sizes_are_found_and_named) {
  Scratch scratch;
  const Fd directory = open_path(scratch.path());
  const std::string bytes = random_bytes(2 * kBlockBytes + 99, 4);
  auto record = write_blocks(directory, "file", bytes, 1);
  ASSERT_TRUE(record.ok());
  auto buffer = BlockBuffer::create();
  const BlockFiles files{directory, "dir", *buffer, [] {}};
  const auto verify_all = [&]() -> Status {
    BlockReader reader = ZERO_TRY(BlockReader::open(files, *record));
    for (uint64_t b = 0; b < record->blocks.size(); b++) ZERO_TRY(reader.verify(b));
    return {};
  };
  ASSERT_TRUE(verify_all().ok());
  for (const size_t at :
       {size_t{0}, size_t{kBlockBytes - 1}, size_t{kBlockBytes}, bytes.size() - 1}) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    test::write_file(scratch / "file", damaged);
    const Status status = verify_all();
    EXPECT_EQ(status.code(), ZERO_ERR_CKPT_INVALID);
    const size_t block = at / kBlockBytes * kBlockBytes;
    EXPECT_NE(status.text().find("'dir/file': bytes " + std::to_string(block) + " to "),
              std::string::npos)
        << status.text();
  }
  for (const std::string& other : {bytes.substr(0, bytes.size() - 1), bytes + "x", std::string()}) {
    test::write_file(scratch / "file", other);
    const Status status = verify_all();
    EXPECT_EQ(status.code(), ZERO_ERR_CKPT_INVALID);
    EXPECT_NE(status.text().find("the manifest says " + std::to_string(bytes.size())),
              std::string::npos);
  }
}

TEST(Blocks, a_file_that_shrinks_while_it_is_read_is_damaged_not_a_crash) {
  Scratch scratch;
  const Fd directory = open_path(scratch.path());
  auto record = write_blocks(directory, "file", random_bytes(kBlockBytes + 99, 5), 1);
  auto buffer = BlockBuffer::create();
  const BlockFiles files{directory, "dir", *buffer, [] {}};
  auto reader = BlockReader::open(files, *record);
  ASSERT_TRUE(reader.ok());
  ASSERT_EQ(truncate((scratch / "file").c_str(), 1000), 0);
  const Status status = reader->verify(1);
  EXPECT_EQ(status.code(), ZERO_ERR_CKPT_INVALID);
  EXPECT_NE(status.text().find("ends at byte 4194304"), std::string::npos) << status.text();
}

TEST(Blocks, no_failure_leaks_a_descriptor) {
  Scratch scratch;
  const Fd directory = open_path(scratch.path());
  const std::string bytes = random_bytes(5000, 6);
  ASSERT_TRUE(make_directories(scratch / "listed/child").ok());
  const Fd listed = open_path(scratch / "listed");
  const int before = test::open_descriptors();
  int64_t calls = 1;
  for (int64_t at = 0; at < calls; at++) {
    const FailingCalls failing({.kind = Fault::error, .at = at});
    const auto record = write_blocks(directory, "file" + std::to_string(at), bytes, 1);
    (void)list_directory(listed, "dir");
    (void)open_input(directory, "file0", "dir/file0");
    (void)make_directories(scratch / ("d" + std::to_string(at)) + "/e");
    calls = std::max(calls, failing.calls());
    EXPECT_EQ(test::open_descriptors(), before) << "call " << at;
  }
  EXPECT_GT(calls, 15);
}

TEST(File, a_write_past_the_size_limit_is_an_error_and_no_signal) {
  Scratch scratch;
  const Fd file(open((scratch / "long").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  ssize_t first, second;
  int error;
  {
    const FileSizeSignal held;
    const std::string bytes(5000, 'x');
    first = write(file.get(), bytes.data(), bytes.size());
    second = write(file.get(), bytes.data(), bytes.size());
    error = errno;
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(first, 4096);
  EXPECT_EQ(second, -1);
  EXPECT_EQ(error, EFBIG);
}

}  // namespace
}  // namespace zero
