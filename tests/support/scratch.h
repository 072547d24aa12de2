// SPDX-License-Identifier: Apache-2.0
// A temporary directory of a test, one-line file access, and the contents of directories.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace zero::test {

class Scratch {
 public:
  /// Uses a file system in memory if possible, because tests sync thousands of times.
  Scratch() {
    const bool fast = access("/dev/shm", W_OK) == 0;
    std::string name = std::string(fast ? "/dev/shm" : "/tmp") + "/zero-test-XXXXXX";
    path_ = mkdtemp(name.data()) ? name : std::string();
    owner_ = getpid();
  }
  /// Leaves the directory in place in a forked child.
  ~Scratch() {
    std::error_code ignored;
    if (getpid() == owner_ && !path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
  pid_t owner_ = 0;
};

/// Returns the number of entries of a directory.
inline int64_t entries_of(const std::string& directory) {
  return std::distance(std::filesystem::directory_iterator(directory), {});
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace zero::test
