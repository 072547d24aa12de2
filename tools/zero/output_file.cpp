// SPDX-License-Identifier: Apache-2.0
#include "output_file.h"

#include <cerrno>

#include "base/hash.h"
#include "base/refusals.h"
#include "base/secret.h"
#include "ending.h"
#include "state/file_names.h"

namespace zero::tool {
namespace {

Status check_place(const Directory& parent, const std::string& name, bool replace) {
  const std::string path = parent.path_of(name);
  struct stat info;
  if (is_checkpoint_file(name) && stat_entry(parent, kManifestName, info) == 0)
    return wrong_state("'", path,
                       "' is the name of a file of the checkpoint there: write elsewhere");
  if (stat_entry(parent, name, info) != 0)
    return errno == ENOENT ? Status() : io_error(path, "stat", errno);
  if (!S_ISREG(info.st_mode))
    return wrong_state("'", path, "' is not a regular file: give another path");
  if (!replace) return wrong_state("'", path, "' exists: remove it, or give --replace");
  return {};
}

}  // namespace

OutputFile::OutputFile(Directory parent, std::string name, bool replace, uint64_t drawn)
    : parent_(std::move(parent)),
      name_(std::move(name)),
      replace_(replace),
      temporary_(text(".zero-", hex(drawn), ".tmp")) {}

Result<std::unique_ptr<OutputFile>> OutputFile::create(const std::string& path, bool replace,
                                                       uint64_t bytes) {
  const size_t slash = path.rfind('/');
  const std::string name = path.substr(slash == path.npos ? 0 : slash + 1);
  if (name.empty() || name == "." || name == "..")
    return bad_argument("'", path, "' does not end with a file name");
  const std::string folder = slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  Directory parent = ZERO_TRY(open_directory(start_of_paths(), folder, Links::followed));
  ZERO_TRY(check_place(parent, name, replace));
  uint64_t drawn = 0;  // processes of two containers may have the same ID
  ZERO_TRY(draw_random(std::as_writable_bytes(std::span(&drawn, 1))));
  std::unique_ptr<OutputFile> file(new OutputFile(std::move(parent), name, replace, drawn));
  file->block_ = ZERO_TRY(allocate_block());
  file->files_.emplace(BlockFiles{file->parent_, file->block_.data(), unhindered});
  remove_on_signals({file->parent_.path_of(file->temporary_)}, "");
  file->writer_ = ZERO_TRY(
      BlockWriter::create(*file->files_, file->temporary_, bytes).within(text("'", path, "'")));
  return file;
}

OutputFile::~OutputFile() {
  if (!published_) os().unlinkat(parent_.fd.get(), temporary_.c_str(), 0);
}

Status OutputFile::publish() {
  ZERO_TRY(writer_->finish());
  const int fd = parent_.fd.get();
  const int renamed = replace_ ? os().renameat2(fd, temporary_.c_str(), fd, name_.c_str(), 0)
                               : rename_to_new(fd, temporary_, name_);
  const std::string path = parent_.path_of(name_);
  if (renamed != 0 && errno == EEXIST)
    return wrong_state("'", path, "' was created in the meantime: remove it, or give --replace");
  if (renamed != 0) return io_error(path, "rename", errno);
  published_ = true;
  return sync(parent_);
}

}  // namespace zero::tool
