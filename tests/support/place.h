// SPDX-License-Identifier: Apache-2.0
// Folders with a checkpoint, for tests of what a save does there.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "support/model.h"
#include "support/scratch.h"

namespace zero::test {

inline ModelSpec small_model() {
  ModelSpec spec;
  spec.groups = {{{"w", {33, 40}}, {"b", {1}}}, {{"none", {0}}, {"cut", {2500}}}};
  spec.buffers = {{"mean", {40}}, {"seen", {}, DType::i64}};
  spec.extras = true;
  return spec;
}

/// The smallest model, so that tests can try every byte of its checkpoint.
inline ModelSpec tiny_model() {
  ModelSpec spec;
  spec.groups = {{{"w", {3, 5}}, {"b", {7}}}};
  spec.buffers = {{"seen", {}, DType::i64}, {"mean", {3}}};
  spec.extras = true;
  return spec;
}

inline std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

inline int temporary_in(const std::string& directory) {
  int count = 0;
  for (const std::string& name : names_in(directory)) count += name.rfind(".tmp-", 0) == 0;
  return count;
}

/// The most entries that a killed save or prune leaves: a directory, and the lock on the
/// checkpoint's name.
inline constexpr int kMostTemporary = 2;

/// Returns the state of the newest checkpoint in `directory`, or the reason why it cannot be
/// loaded.
inline std::string loaded(const std::string& directory, const ModelSpec& spec) {
  auto model = solo_model(spec);
  const Status status = model->load(directory);
  return status.ok() ? model->state() : told(status);
}

/// Returns true if all ranks have arrived.
inline bool barrier(Model& model) {
  auto call = model.optim().comm->begin(Operation::barrier);
  return call.ok() && call->vote("test", Status()).ok();
}

/// A folder with the checkpoint "old" after one step.
class Place {
 public:
  explicit Place(ModelSpec spec) : spec_(std::move(spec)) {
    auto model = solo_model(spec_);
    EXPECT_EQ(told(model->step()), "");
    EXPECT_EQ(told(model->save(scratch_ / "template/old")), "");
    old_state_ = model->state();
  }
  /// Returns a fresh copy of the folder.
  std::string folder() {
    const std::string path = scratch_ / std::to_string(count_++);
    std::filesystem::copy(scratch_ / "template", path, std::filesystem::copy_options::recursive);
    return path;
  }
  std::unique_ptr<Model> solo() {
    auto model = solo_model(spec_);
    EXPECT_EQ(told(model->step()), "");
    EXPECT_EQ(told(model->step()), "");
    return model;
  }
  /// Checks what must hold in the folder of a save, however it ended. Returns the state of the
  /// newest checkpoint.
  std::string check_after(const std::string& folder, const std::string& new_state,
                          const std::string& what) {
    const std::string found = loaded(folder, spec_);
    EXPECT_TRUE(found == old_state_ || found == new_state) << what << ": " << found.substr(0, 300);
    EXPECT_LE(temporary_in(folder), kMostTemporary) << what;
    // The next save removes what is left, whatever this save published.
    auto next = solo();
    EXPECT_EQ(told(next->save(folder + "/next")), "") << what;
    EXPECT_EQ(temporary_in(folder), 0) << what;
    std::filesystem::remove_all(folder);
    return found;
  }
  const std::string& old_state() const { return old_state_; }
  const ModelSpec& spec() const { return spec_; }

 private:
  Scratch scratch_;
  ModelSpec spec_;
  std::string old_state_;
  int count_ = 0;
};

}  // namespace zero::test
