// SPDX-License-Identifier: Apache-2.0
// Implements zero merge: writes all tensors into one file that does not depend on the world size.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "base/refusals.h"
#include "checkpoint.h"
#include "commands.h"
#include "description.h"
#include "output.h"
#include "output_file.h"
#include "parts.h"
#include "sizes.h"

namespace zero::tool {
namespace {

Metadata metadata_of(const Manifest& manifest, bool with_state) {
  Metadata metadata{{"format", "pt"}};
  if (with_state) metadata.emplace_back(kDescriptionKey, describe(manifest).dump());
  return metadata;
}

Status write_stdout(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size()) return {};
  return io_error("standard output", "write", errno);
}

Status write(const PartsFile& file, const Read& read, const Request& request) {
  ProgressBar bar(file.bytes());
  uint64_t done = 0;
  const auto shown_on = [&](const Append& append) {
    return file.write(read, [&](std::span<const std::byte> bytes) {
      bar.show(done += bytes.size());
      return append(bytes);
    });
  };
  if (request.other == kStandard) {
    if (isatty(STDOUT_FILENO) == 1)
      return bad_argument("binary data is not for a terminal: redirect it to a file or a program");
    return shown_on(write_stdout);
  }
  const auto output = ZERO_TRY(OutputFile::create(request.other, request.replace, file.bytes()));
  ZERO_TRY(shown_on([&](std::span<const std::byte> bytes) { return output->append(bytes); }));
  return output->publish();
}

}  // namespace

Result<bool> merge(const Request& request) {
  const Checkpoint checkpoint = ZERO_TRY(Checkpoint::open(request.checkpoint));
  const Manifest& manifest = checkpoint.manifest();
  const std::vector<WholeTensor> tensors = tensors_of(manifest, request.with_state);
  std::vector<Part> parts;
  for (const WholeTensor& tensor : tensors)
    parts.push_back({tensor.name(), &tensor, 0, tensor.count});
  const PartsFile file =
      ZERO_TRY(PartsFile::of(metadata_of(manifest, request.with_state), std::move(parts)));
  TensorReader reader(checkpoint);
  const Status written = write(file, reader.as_read(), request);
  if (!written.ok()) ZERO_TRY(checkpoint.check_in_place());
  ZERO_TRY(written);
  if (request.other == kStandard) return true;
  if (request.json)
    print_json(Json{{"checkpoint", checkpoint.path()},
                    {"file", request.other},
                    {"tensors", tensors.size()},
                    {"bytes", file.bytes()}});
  else
    print_line(text(printable(request.other), ": ", counted(tensors.size(), "tensor"), ", ",
                    bytes_text(static_cast<double>(file.bytes()))));
  return true;
}

}  // namespace zero::tool
