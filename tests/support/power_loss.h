// SPDX-License-Identifier: Apache-2.0
// A model of what a disk may hold after a power loss. The file system keeps what was synced, and
// any part of the rest that POSIX allows.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zero::test {

/// Records the file calls of this process below `root` after its construction. Files that exist by
/// then are on stable storage. Only one may exist. Safe for ranks that are threads.
///
/// The model keeps less than any real file system. A directory entry is safe only after a later
/// sync of the directory, and file contents are safe only after a sync of the file. The rest may be
/// lost. Each entry is chosen separately, but the calls on one name keep their order. Of a file,
/// nothing, a part, garbage or all may be kept. A rename is atomic: both names change, or neither.
class PowerLoss {
 public:
  explicit PowerLoss(const std::string& root);
  ~PowerLoss();
  PowerLoss(const PowerLoss&) = delete;
  PowerLoss& operator=(const PowerLoss&) = delete;

  /// Returns the number of recorded calls that change or sync something.
  size_t calls() const;

  /// Maps paths below the root to file contents. A directory has no contents.
  using Image = std::map<std::string, std::optional<std::string>>;
  /// Returns a number below `ways`. 0 keeps nothing, the highest number keeps all.
  using Choose = std::function<size_t(size_t ways)>;
  /// Returns what is there if the power fails after the first `calls` calls.
  Image image(size_t calls, const Choose& choose) const;

  static void write(const Image& image, const std::string& to);
};

/// Enumerates all choices in order. The first combination keeps nothing.
class Choices {
 public:
  size_t operator()(size_t ways);
  /// Returns false after the last combination.
  bool next();

 private:
  struct Choice {
    size_t chosen, ways;
  };
  std::vector<Choice> made_;
  size_t at_ = 0;
};

}  // namespace zero::test
