// SPDX-License-Identifier: Apache-2.0
// Files and blocks of a checkpoint: names, links and pipes, damage. fault/save_test makes each of
// their calls fail, return less, and be interrupted.
#include "state/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/file_size_signal.h"
#include "base/hash.h"
#include "base/text.h"
#include "state/blocks.h"
#include "support/failing_calls.h"
#include "support/scratch.h"
#include "support/statuses.h"
#include "support/system_calls.h"

namespace zero {
namespace {

using test::expect_failure;
using test::FailingCalls;
using test::Fault;
using test::made;
using test::Scratch;

Directory open_path(const std::string& path) {
  return made(open_directory(start_of_paths(), path, Links::followed));
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
  for (const auto& [path, parent, name] : good) {
    const auto split = made(split_path(path));
    EXPECT_EQ(split.parent, parent) << path;
    EXPECT_EQ(split.name, name) << path;
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
  ASSERT_TRUE(make_directories(scratch / "a/b/c").ok());  // again, with nothing to do
  test::write_file(scratch / "file", "x");
  EXPECT_EQ(make_directories(scratch / "file/d").failure().code(), ZERO_ERR_CKPT_IO);
}

TEST(File, a_listing_is_sorted_and_whole) {
  Scratch scratch;
  for (int i = 0; i < 300; i++) test::write_file(scratch / std::to_string(i), "");
  const auto names = made(list_directory(open_path(scratch.path())));
  EXPECT_EQ(names.size(), 300u);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
}

TEST(File, links_pipes_and_directories_are_not_opened_as_input) {
  Scratch scratch;
  test::write_file(scratch / "file", "0123456789");
  ASSERT_EQ(symlink("file", (scratch / "link").c_str()), 0);
  ASSERT_EQ(mkfifo((scratch / "pipe").c_str(), 0600), 0);
  ASSERT_EQ(mkdir((scratch / "directory").c_str(), 0700), 0);
  ASSERT_EQ(symlink("/dev/zero", (scratch / "device").c_str()), 0);
  const Directory directory = open_path(scratch.path());
  EXPECT_EQ(open_input(directory, "file", Links::refused)->bytes, 10u);
  const struct {
    const char *name, *says;
  } bad[] = {{"link", "symbolic link"},
             {"device", "symbolic link"},
             {"pipe", "not a regular file"},
             {"directory", "not a regular file"},
             {"nothing", "missing"}};
  for (const auto& [name, says] : bad)
    expect_failure(open_input(directory, name, Links::refused), ZERO_ERR_CKPT_INVALID, says);
  EXPECT_EQ(open_input(directory, "link", Links::followed)->bytes, 10u);
  for (const char* name : {"device", "pipe", "directory"})
    expect_failure(open_input(directory, name, Links::followed), ZERO_ERR_CKPT_INVALID,
                   "not a regular file");
}

TEST(File, an_error_names_file_operation_and_reason) {
  EXPECT_EQ(io_error("run/x", "fsync", ENOSPC).text(),
            "'run/x': fsync: No space left on device (ENOSPC)");
}

/// A directory "dir" with files in blocks.
class Blocks : public ::testing::Test {
 protected:
  /// Appends parts of random sizes.
  Result<FileRecord> write(const std::string& name, const std::string& bytes) {
    std::mt19937 random(1);
    BlockWriter writer = ZERO_TRY(BlockWriter::create(files_, name, bytes.size()));
    for (size_t at = 0; at < bytes.size();) {
      const size_t part = std::min<size_t>(bytes.size() - at, random() % (3 * kBlockBytes));
      ZERO_TRY(writer.append(bytes_of(std::string_view(bytes).substr(at, part))));
      at += part;
    }
    return writer.finish();
  }
  static std::string read(BlockReader& reader, uint64_t from, uint64_t count) {
    std::string part(count, '\0');
    test::expect_ok(reader.read(from, std::as_writable_bytes(std::span(part))));
    return part;
  }
  Status verify_all(const FileRecord& record) {
    BlockReader reader = ZERO_TRY(BlockReader::open(files_, record));
    for (uint64_t b = 0; b < record.blocks.size(); b++) ZERO_TRY(reader.verify(b));
    return {};
  }

  const Scratch scratch_;
  const Directory directory_{{"dir", open_path(scratch_.path()).fd}};
  const HostMemory block_ = made(allocate_block());
  const BlockFiles files_{directory_, block_.data(), unhindered};
};

std::string random_bytes(size_t count, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(count, '\0');
  for (size_t i = 0; i + 8 <= count; i += 8) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, 8);
  }
  return bytes;
}

TEST_F(Blocks, what_is_written_is_read_from_any_place_and_its_checksums_are_of_the_bytes) {
  const uint64_t sizes[] = {
      1, 4095, kBlockBytes - 1, kBlockBytes, kBlockBytes + 1, 3 * kBlockBytes + 12345};
  for (const uint64_t size : sizes) {
    const std::string bytes = random_bytes(size, static_cast<uint32_t>(size));
    const std::string name = std::to_string(size);
    const FileRecord record = made(write(name, bytes));
    EXPECT_EQ(test::read_file(scratch_ / name), bytes);
    ASSERT_EQ(record.blocks.size(), block_count(size));
    for (uint64_t b = 0; b < record.blocks.size(); b++) {
      const auto block = std::string_view(bytes).substr(b * kBlockBytes, kBlockBytes);
      EXPECT_EQ(record.blocks[b], hash64(bytes_of(block)));
    }
    BlockReader reader = BlockReader::open(files_, record).value();
    std::mt19937_64 random(2);
    for (int round = 0; round < 40; round++) {
      const uint64_t from = random() % size,
                     count = random() % std::min<uint64_t>(size - from + 1, 5'000'000);
      ASSERT_EQ(read(reader, from, count), bytes.substr(from, count));
    }
    std::byte beyond;
    EXPECT_FALSE(reader.read(size, {&beyond, 1}).ok());
  }
}

TEST_F(Blocks, a_file_that_exists_is_not_written_over) {
  test::write_file(scratch_ / "old", "precious");
  ASSERT_EQ(symlink("elsewhere", (scratch_ / "link").c_str()), 0);
  for (const char* name : {"old", "link"})
    expect_failure(write(name, "new"), ZERO_ERR_CKPT_IO, "EEXIST");
  EXPECT_EQ(test::read_file(scratch_ / "old"), "precious");
  EXPECT_NE(access((scratch_ / "elsewhere").c_str(), F_OK), 0);
}

TEST_F(Blocks, filesystems_without_reservation_are_written_all_the_same) {
  for (const int error : {EOPNOTSUPP, ENOSYS}) {
    const FailingCalls failing(
        {.kind = Fault::error, .error_number = error, .operation = "fallocate"});
    EXPECT_TRUE(write("ok" + std::to_string(error), "bytes").ok());
    EXPECT_EQ(failing.hits(), 1);
  }
  const FailingCalls failing(
      {.kind = Fault::error, .error_number = ENOSPC, .operation = "fallocate"});
  EXPECT_EQ(write("full", "bytes").failure().text(),
            "'dir/full': reserve 5 bytes: No space left on device (ENOSPC)");
}

TEST_F(Blocks, whole_ones_are_written_past_the_page_cache) {
  static std::vector<std::pair<size_t, bool>> written;  // bytes, and whether they bypass the cache
  written.clear();
  const test::ReplacedCall write_past(
      &SystemCalls::pwrite, [](int fd, const void* data, size_t count, int64_t offset) {
        written.emplace_back(count, (fcntl(fd, F_GETFL) & O_DIRECT) != 0);
        return real_system_calls().pwrite(fd, data, count, offset);
      });
  const std::string bytes = random_bytes(2 * kBlockBytes + 99, 6);
  (void)made(write("large", bytes));
  EXPECT_EQ(test::read_file(scratch_ / "large"), bytes);
  if (!written[0].second) GTEST_SKIP() << "this file system has no O_DIRECT";
  EXPECT_EQ(written[0], std::pair(size_t{kBlockBytes}, true));
  EXPECT_EQ(written[1], written[0]);
  EXPECT_EQ(written.back().first, 99u);
  written.clear();
  (void)made(write("small", bytes.substr(0, kBlockBytes - 1)));
  EXPECT_EQ(written, (std::vector{std::pair(size_t{kBlockBytes - 1}, false)}));
}

TEST_F(Blocks, what_cannot_be_written_past_the_page_cache_goes_through_it) {
  const std::string bytes = random_bytes(3 * kBlockBytes + 99, 7);
  static int writes;
  const auto write_by = [&](const char* name, decltype(SystemCalls::pwrite) write_past) {
    writes = 0;
    const test::ReplacedCall replaced(&SystemCalls::pwrite, write_past);
    (void)made(write(name, bytes));
    EXPECT_EQ(test::read_file(scratch_ / name), bytes) << name;
  };
  {
    const test::ReplacedCall refuses(&SystemCalls::fcntl,
                                     [](int, int, int64_t) { return errno = EINVAL, -1; });
    write_by("no such way", real_system_calls().pwrite);
  }
  write_by("no write", [](int fd, const void* data, size_t count, int64_t offset) {
    if ((fcntl(fd, F_GETFL) & O_DIRECT) != 0) return errno = EOPNOTSUPP, ssize_t{-1};
    return real_system_calls().pwrite(fd, data, count, offset);
  });
  write_by("a short write", [](int fd, const void* data, size_t count, int64_t offset) {
    constexpr int64_t kSector = 512;
    if ((fcntl(fd, F_GETFL) & O_DIRECT) != 0 && offset % kSector != 0)
      return errno = EINVAL, ssize_t{-1};
    return real_system_calls().pwrite(fd, data, ++writes == 2 ? 777 : count, offset);
  });
  const test::ReplacedCall never(&SystemCalls::pwrite, [](int, const void*, size_t, int64_t) {
    return errno = EINVAL, ssize_t{-1};
  });
  expect_failure(write("never", bytes), ZERO_ERR_CKPT_IO, "pwrite: Invalid argument (EINVAL)");
}

TEST_F(Blocks, damage_and_other_sizes_are_found_and_named) {
  const std::string bytes = random_bytes(2 * kBlockBytes + 99, 4);
  const FileRecord record = made(write("file", bytes));
  test::expect_ok(verify_all(record));
  for (const size_t at :
       {size_t{0}, size_t{kBlockBytes - 1}, size_t{kBlockBytes}, bytes.size() - 1}) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    test::write_file(scratch_ / "file", damaged);
    expect_failure(verify_all(record), ZERO_ERR_CKPT_INVALID,
                   text("'dir/file': bytes ", at / kBlockBytes * kBlockBytes, " to "));
  }
  for (const std::string& other : {bytes.substr(0, bytes.size() - 1), bytes + "x", std::string()}) {
    test::write_file(scratch_ / "file", other);
    expect_failure(verify_all(record), ZERO_ERR_CKPT_INVALID,
                   text("but the manifest says ", bytes.size()));
  }
}

TEST_F(Blocks, a_file_that_shrinks_while_it_is_read_is_damaged_not_a_crash) {
  const FileRecord record = made(write("file", random_bytes(kBlockBytes + 99, 5)));
  BlockReader reader = BlockReader::open(files_, record).value();
  ASSERT_EQ(truncate((scratch_ / "file").c_str(), 1000), 0);
  expect_failure(reader.verify(1), ZERO_ERR_CKPT_INVALID, "ends at byte 4194304");
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
