// SPDX-License-Identifier: Apache-2.0
// What a disk may hold after its power was lost: a model of a file system that keeps what was
// synced, and of all else any part that POSIX allows it to keep.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace zero::test {

/// Records the file calls of this process below `root`, from its construction on: what was there
/// before is on stable storage. One at a time. Safe for ranks that are threads.
///
/// It keeps more seldom than any real file system: an entry of a directory only once the directory
/// was synced after it, and what a file holds only once the file was. What was not synced may be
/// there or not: each entry for itself, but for each name in the order of the calls, and of each
/// file nothing, a part, garbage or all. A rename is one step: it is there with both names, or not
/// at all.
class PowerLoss {
 public:
  explicit PowerLoss(const std::string& root);
  ~PowerLoss();
  PowerLoss(const PowerLoss&) = delete;
  PowerLoss& operator=(const PowerLoss&) = delete;

  /// Calls recorded so far that change something, or sync it.
  size_t calls() const;

  /// Paths below the root and what files hold; a directory holds nothing.
  using Image = std::map<std::string, std::optional<std::string>>;
  /// Returns a number below `ways`: 0 is nothing, the highest is all.
  using Choose = std::function<size_t(size_t ways)>;
  /// What is there if the power fails behind the first `calls` calls.
  Image image(size_t calls, const Choose& choose) const;

  static void write(const Image& image, const std::string& to);
};

/// The same for each choice that there is, in order. Begins with nothing of all.
class Choices {
 public:
  size_t operator()(size_t ways);
  /// False once there is no other.
  bool next();

 private:
  struct Choice {
    size_t chosen, ways;
  };
  std::vector<Choice> made_;
  size_t at_ = 0;
};

}  // namespace zero::test
