// SPDX-License-Identifier: Apache-2.0
// Damaged and inconsistent checkpoints: any fault of any file is refused with its name, before
// anything changes.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/text.h"
#include "state/file.h"
#include "state/load.h"
#include "state/manifest.h"
#include "support/failing_calls.h"
#include "support/nightly.h"
#include "support/place.h"
#include "support/statuses.h"
#include "support/trials.h"

namespace zero::test {
namespace {

namespace fs = std::filesystem;

/// A small checkpoint, and a model that must not receive anything from it.
class Damage : public testing::Test {
 protected:
  void SetUp() override {
    auto saver = solo_model(tiny_model());
    ASSERT_EQ(told(saver->step()), "");
    ASSERT_EQ(told(saver->save(directory_)), "");
    saved_ = saver->state();
    ASSERT_EQ(told(saver->step()), "");
    ASSERT_EQ(told(saver->save(scratch_ / "other")), "");
    model_ = solo_model(tiny_model());
    before_ = model_->state();
  }
  void expect_refused(const std::string& says, const std::string& what,
                      Code code = ZERO_ERR_CKPT_INVALID) {
    count_trial();
    const Status status = model_->load(directory_);
    ASSERT_EQ(status.code(), code) << what << ": " << told(status);
    ASSERT_TRUE(contains(status.text(), says)) << what;
    ASSERT_FALSE(model_->optim().not_loaded) << what;
    ASSERT_TRUE(model_->state() == before_) << what;
  }
  void expect_sound() {
    auto fresh = solo_model(tiny_model());
    ASSERT_EQ(told(fresh->load(directory_)), "");
    ASSERT_TRUE(fresh->state() == saved_);
  }
  std::vector<std::string> files() const { return names_in(directory_); }
  Manifest manifest() const {
    return ZeroTry(parse_manifest(read_file(directory_ + "/zero.json")));
  }
  void put_manifest(const Manifest& changed) {
    write_file(directory_ + "/zero.json", write_manifest(changed));
  }

  static Manifest ZeroTry(Result<Manifest> result) {
    EXPECT_TRUE(result.ok());
    return std::move(*result);
  }

  Scratch scratch_;
  const std::string directory_ = scratch_ / "checkpoint";
  std::unique_ptr<Model> model_;
  std::string before_, saved_;
};

/// Returns the distance of the tested positions in a file: all in nightly runs, otherwise every
/// third.
size_t places_apart() { return nightly_run() ? 1 : 3; }

TEST_F(Damage, every_flipped_byte_of_every_file_is_refused_with_its_name) {
  ASSERT_EQ(files().size(), 5u);
  for (const std::string& name : files()) {
    const std::string path = directory_ + "/" + name, sound = read_file(path);
    for (size_t i = 0; i < sound.size(); i += places_apart()) {
      std::string bytes = sound;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << i % 8));
      write_file(path, bytes);
      ASSERT_NO_FATAL_FAILURE(expect_refused(name, text(name, " byte ", i)));
    }
    write_file(path, sound);
  }
  expect_sound();
}

TEST_F(Damage, every_truncation_of_every_file_is_refused_with_its_name) {
  for (const std::string& name : files()) {
    const std::string path = directory_ + "/" + name, sound = read_file(path);
    for (size_t bytes = sound.size(); bytes-- > 0; bytes -= std::min(bytes, places_apart() - 1)) {
      ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(bytes)), 0);
      ASSERT_NO_FATAL_FAILURE(expect_refused(name, text(name, " cut at ", bytes)));
    }
    write_file(path, sound + "x");
    ASSERT_NO_FATAL_FAILURE(expect_refused(name, name + " longer"));
    write_file(path, sound);
  }
  expect_sound();
}

TEST_F(Damage, files_that_are_missing_links_pipes_or_directories_are_refused) {
  for (const std::string& name : files()) {
    const std::string path = directory_ + "/" + name, aside = scratch_ / "aside";
    fs::rename(path, aside);
    // Without its manifest a directory is not a checkpoint.
    ASSERT_NO_FATAL_FAILURE(
        expect_refused(name == "zero.json" ? directory_ : name, name + " missing"));
    fs::create_symlink(aside, path);
    ASSERT_NO_FATAL_FAILURE(expect_refused(name, name + " a link"));
    fs::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    ASSERT_NO_FATAL_FAILURE(expect_refused(name, name + " a pipe"));
    fs::remove(path);
    fs::create_directory(path);
    ASSERT_NO_FATAL_FAILURE(expect_refused(name, name + " a directory"));
    fs::remove(path);
    fs::rename(aside, path);
  }
  expect_sound();
}

TEST_F(Damage, files_of_two_saves_do_not_mix) {
  for (const std::string& name : files()) {
    if (name == kIndexName) continue;  // the same in both
    const std::string path = directory_ + "/" + name, sound = read_file(path);
    write_file(path, read_file(scratch_ / "other/" + name));
    ASSERT_NO_FATAL_FAILURE(expect_refused(name == "zero.json" ? "safetensors" : name, name));
    write_file(path, sound);
  }
  expect_sound();
}

TEST_F(Damage, a_foreign_file_with_a_matching_checksum_is_refused_by_its_save_id) {
  // As if somebody had adapted the manifest to a file of another save.
  const std::string name = "optim-00001-of-00001.safetensors";
  Manifest changed = manifest();
  const Manifest other = ZeroTry(parse_manifest(read_file(scratch_ / "other/zero.json")));
  changed.files = other.files;
  fs::copy_file(scratch_ / "other/" + name, directory_ + "/" + name,
                fs::copy_options::overwrite_existing);
  fs::copy_file(scratch_ / "other/model-00001-of-00001.safetensors",
                directory_ + "/model-00001-of-00001.safetensors",
                fs::copy_options::overwrite_existing);
  put_manifest(changed);
  expect_refused("it belongs to another save", "other save");
}

TEST_F(Damage, files_that_are_not_listed_are_ignored) {
  write_file(directory_ + "/config.json", "{}");
  write_file(directory_ + "/optim-00002-of-00002.safetensors", "garbage");
  expect_sound();
}

struct Lie {
  const char* what;
  void (*tell)(Manifest&);
  const char* says;
  Code code = ZERO_ERR_CKPT_INVALID;
};

const Lie kLies[] = {
    {"a path", [](Manifest& m) { m.files[0].name = "../other/model-00001-of-00001.safetensors"; },
     "not a valid name"},
    {"an absolute path", [](Manifest& m) { m.files[0].name = "/dev/zero"; }, "not a valid name"},
    {"a hidden name", [](Manifest& m) { m.files[0].name = ".model.safetensors"; },
     "not a valid name"},
    {"an own name", [](Manifest& m) { m.files[0].name = "zero.json"; }, "not a valid name"},
    {"a missing file",
     [](Manifest& m) { m.files.push_back(m.files[0]), m.files.back().name = "more.safetensors"; },
     "missing"},
    {"a file twice", [](Manifest& m) { m.files.push_back(m.files[0]); }, "listed twice"},
    {"swapped files", [](Manifest& m) { std::swap(m.files[0].name, m.files[1].name); },
     "the manifest says"},
    {"another size", [](Manifest& m) { m.files[0].bytes++; }, "the manifest says"},
    {"a huge size", [](Manifest& m) { m.files[0].bytes = INT64_MAX; }, "checksums for"},
    {"another checksum", [](Manifest& m) { m.files[1].blocks[0]++; }, "do not match the checksum"},
    {"another save", [](Manifest& m) { m.save_id[1]++; }, "belongs to another save"},
    {"another key", [](Manifest& m) { m.params[0].slots[0].slices[0].key = "x"; }, "has a tensor"},
    {"a key that another slot has",
     [](Manifest& m) {
       std::swap(m.params[0].slots[0].slices[0].key, m.params[1].slots[0].slices[0].key);
     },
     "a different shape"},
    {"a tensor that is not there",
     [](Manifest& m) {
       m.params[1].slots.push_back({"max_exp_avg_sq", {{1, "b.max_exp_avg_sq", 0, 7}}});
     },
     "has no tensor 'b.max_exp_avg_sq'"},
    {"a tensor less", [](Manifest& m) { m.params[1].slots.pop_back(); },
     "has a tensor 'b.exp_avg_sq'"},
    {"another file", [](Manifest& m) { m.params[0].file = 1; }, "'w'"},
    {"the index", [](Manifest& m) { m.params[0].file = 2; }, "cannot hold tensors"},
    {"no such file", [](Manifest& m) { m.params[0].file = 3; }, "cannot hold tensors"},
    {"a hole", [](Manifest& m) { m.params[0].slots[0].slices[0].start = 1; },
     "no slice holds element 0"},
    {"an overlap",
     [](Manifest& m) {
       m.params[0].slots[0].slices = {{1, "w.exp_avg", 0, 15}, {1, "x", 14, 1}};
     },
     "two slices hold element 14"},
    {"half", [](Manifest& m) { m.params[0].slots[0].slices[0].count = 7; },
     "no slice holds element 7"},
    {"another shape of as many",
     [](Manifest& m) { std::swap(m.params[0].shape[0], m.params[0].shape[1]); }, "has shape [5, 3]",
     ZERO_ERR_CKPT_MISMATCH},
    {"a huge count", [](Manifest& m) { m.params[0].shape = {INT64_MAX / 16}; },
     "no slice holds element 15"},
    {"a setting out of range", [](Manifest& m) { m.groups[0].settings[1].second = 1.5; },
     "setting 'beta1' is 1.5; it must be"},
    {"an infinite setting", [](Manifest& m) { m.groups[0].settings[0].second = HUGE_VAL; },
     "setting 'lr' is inf"},
    {"a setting of the future", [](Manifest& m) { m.groups[0].settings.emplace_back("warp", 9); },
     "a setting 'warp'", ZERO_ERR_CKPT_MISMATCH},
    {"another rule", [](Manifest& m) { m.rule = "sgd"; },
     "the checkpoint is for optimizer 'sgd', but this optimizer is adamw", ZERO_ERR_CKPT_MISMATCH},
    {"a state of another rule", [](Manifest& m) { m.params[0].slots[0].name = "momentum_buffer"; },
     "has state 'momentum_buffer' in the checkpoint, which adamw does not have",
     ZERO_ERR_CKPT_MISMATCH},
    {"a buffer less", [](Manifest& m) { m.buffers.pop_back(); },
     "buffer 'mean' is not in the checkpoint", ZERO_ERR_CKPT_MISMATCH},
    {"a buffer that is not there",
     [](Manifest& m) { m.buffers.push_back(m.buffers[1]), m.buffers.back().name = "x"; },
     "buffer 'x' of the checkpoint is not registered", ZERO_ERR_CKPT_MISMATCH},
    {"a buffer in another file", [](Manifest& m) { m.buffers[0].file = 1; }, "'seen'"},
    {"a buffer in the index", [](Manifest& m) { m.buffers[0].file = 2; }, "cannot hold tensors"},
    {"a buffer of another dtype", [](Manifest& m) { m.buffers[0].dtype = "F64"; },
     "buffer 'seen' is F64 in the checkpoint, but is registered as I64", ZERO_ERR_CKPT_MISMATCH},
    {"a buffer of another shape", [](Manifest& m) { m.buffers[1].shape.push_back(1); },
     "buffer 'mean' has shape [3, 1] in the checkpoint, but is registered with [3]",
     ZERO_ERR_CKPT_MISMATCH},
    {"a huge buffer", [](Manifest& m) { m.buffers[1].shape = {INT64_MAX / 4}; },
     "product overflows"},
    {"a buffer with a parameter's name", [](Manifest& m) { m.buffers[0].name = "w"; },
     "is also a parameter"},
    {"more steps than there can be", [](Manifest& m) { m.step = INT64_MAX; },
     "'step': is 9223372036854775807, but must be at most 2^53"},
    {"more skipped steps", [](Manifest& m) { m.skipped = (int64_t{1} << 53) + 1; },
     "'skipped': is 9007199254740993, but must be at most 2^53"},
    {"more steps of a parameter", [](Manifest& m) { m.params[1].step = INT64_MAX; },
     "'params'[1].'step': is 9223372036854775807, but must be at most 2^53"},
    {"extras of a rank that did not save", [](Manifest& m) { m.extras[0].rank = 1; },
     "extras of rank 1: the world is 1"},
    {"extras in no file", [](Manifest& m) { m.extras[0].file = 4; }, "file 4 cannot hold extras"},
    {"extras in a file of tensors", [](Manifest& m) { m.extras[0].file = 0; },
     "file 0 cannot hold extras"},
    {"extras in the index", [](Manifest& m) { m.extras[0].file = 2; }, "index.json"},
    {"extras twice", [](Manifest& m) { m.extras.push_back(m.extras[0]); }, "appear twice"},
    {"a file of extras of two ranks",
     [](Manifest& m) {
       m.world = 2;
       m.extras.push_back({1, m.extras[0].file});
     },
     "appear twice"},
    {"a huge file of extras",
     [](Manifest& m) { m.files[3].bytes = (1 << 25) + 1, m.files[3].blocks.resize(9); },
     "has 33554433 bytes; at most 33554432"},
    {"more extras than a load takes",
     [](Manifest& m) {
       m.world = 40;
       for (int32_t rank = 1; rank < m.world; rank++) {
         m.extras.push_back({rank, static_cast<int32_t>(m.files.size())});
         m.files.push_back({shard_name(kExtra, rank, m.world), 1u << 25, std::vector<uint64_t>(8)});
       }
     },
     "bytes; at most 1073741824"},
    {"one group more", [](Manifest& m) { m.groups.push_back(m.groups[0]); },
     "has 2 groups, but this optimizer has 1", ZERO_ERR_CKPT_MISMATCH},
};

TEST_F(Damage, a_manifest_that_lies_is_refused_although_its_checksum_is_right) {
  const Manifest sound = manifest();
  for (const Lie& lie : kLies) {
    Manifest changed = sound;
    lie.tell(changed);
    put_manifest(changed);
    ASSERT_NO_FATAL_FAILURE(expect_refused(lie.says, lie.what, lie.code));
  }
  put_manifest(sound);
  expect_sound();
}

TEST_F(Damage, a_missing_setting_has_its_default) {
  Manifest changed = manifest();
  changed.groups[0].settings.erase(changed.groups[0].settings.begin() + 3);  // eps
  put_manifest(changed);
  expect_sound();
}

/// A valid checkpoint with a different header in one of its files.
TEST_F(Damage, a_header_that_lies_is_refused_although_all_checksums_are_right) {
  const struct {
    size_t file;
    const char *from, *to, *says;
  } lies[] = {{1, "\"dtype\":\"F32\"", "\"dtype\":\"I32\"", "has dtype 'I32'"},
              {1, "\"shape\":[7]", "\"shape\":[8]", "do not span"},
              {1, "\"shape\":[3,5]", "\"shape\":[5,3]", "a different shape"},
              {1, "\"shape\":[3,5]", "\"shape\":[15] ", "a different shape"},
              {1, "zero.format\":\"1\"", "zero.format\":\"2\"", "zero.format"},
              {1, "zero.save_id", "zero.save_ie", "has no zero.save_id"},
              {1, "w.exp_avg\"", "v.exp_avg\"", "has a tensor 'v.exp_avg'"},
              {1, "[0,28]", "[4,32]", "after a gap"},
              {1, "\"b.exp_avg\"", "\"b.exp_av \"", "has a tensor 'b.exp_av '"},
              {0, "\"dtype\":\"I64\"", "\"dtype\":\"F64\"", "tensor 'seen' has dtype 'F64'"},
              {0, "\"shape\":[3]", "\"shape\":[4]", "do not span"},
              {0, "\"seen\"", "\"sewn\"", "has no tensor 'seen'"},
              {0, "\"mean\"", "\"lean\"", "has a tensor 'lean'"},
              {3, "\"U8\"", "\"I8\"", "extra 'position' has dtype 'I8', not U8"},
              {3, "[13]", "[12]", "do not span"},
              {3, "zero.save_id", "zero.save_ie", "has no zero.save_id"}};
  const Manifest honest = manifest();
  for (const auto& lie : lies) {
    const std::string name = honest.files[lie.file].name, path = directory_ + "/" + name;
    const std::string sound = read_file(path);
    std::string bytes = sound;
    const size_t at = bytes.find(lie.from);
    ASSERT_NE(at, std::string::npos) << lie.from;
    bytes.replace(at, std::string_view(lie.from).size(), lie.to);
    ASSERT_EQ(bytes.size(), sound.size()) << lie.from;
    write_file(path, bytes);
    Manifest changed = honest;
    changed.files[lie.file].blocks = {hash64(bytes_of(bytes))};
    put_manifest(changed);
    ASSERT_NO_FATAL_FAILURE(expect_refused(lie.says, lie.from));
    ASSERT_NO_FATAL_FAILURE(expect_refused(name, lie.from));
    const Directory opened = made(open_directory(start_of_paths(), directory_, Links::followed));
    const HostMemory block = made(allocate_block());
    EXPECT_TRUE(
        contains(verify_files({opened, block.data(), unhindered}, changed, 0, 1).text(), lie.says));
    write_file(path, sound);
  }
}

TEST_F(Damage, a_manifest_that_conceals_buffers_is_refused_where_none_are_registered) {
  Manifest changed = manifest();
  changed.buffers.clear();
  put_manifest(changed);
  ModelSpec spec = tiny_model();
  spec.buffers.clear();
  model_ = solo_model(spec);
  before_ = model_->state();
  expect_refused("has a tensor 'mean', which the manifest does not list", "concealed");
}

TEST_F(Damage, a_manifest_that_is_too_long_is_refused_before_it_is_read) {
  fs::resize_file(directory_ + "/zero.json", kLongestManifest + 1);
  FailingCalls calls;
  expect_refused(text("has ", kLongestManifest + 1, " bytes; at most ", kLongestManifest), "");
  for (const FileCall& call : calls.log())
    EXPECT_FALSE(call.operation == "pread" && call.name == "zero.json");
}

TEST_F(Damage, what_is_no_checkpoint_is_invalid) {
  fs::create_directories(scratch_ / "empty");
  write_file(scratch_ / "file", "x");
  for (const std::string name : {"nothing", "empty", "file", "file/x"}) {
    const Status status = model_->load(scratch_ / name);
    expect_failure(status, ZERO_ERR_CKPT_INVALID, scratch_ / name);
  }
}

}  // namespace
}  // namespace zero::test
