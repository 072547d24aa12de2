// SPDX-License-Identifier: Apache-2.0
// Implements zero reshard: writes the checkpoint as another number of ranks would have saved it.
#include "base/refusals.h"
#include "checkpoint.h"
#include "commands.h"
#include "output.h"
#include "parts.h"
#include "shares.h"
#include "state/extras.h"

namespace zero::tool {
namespace {

Result<std::map<int32_t, Extras>> extras_of(const Checkpoint& checkpoint, int32_t world) {
  std::map<int32_t, Extras> extras;
  const HostMemory block = ZERO_TRY(allocate_block());
  const BlockFiles files{checkpoint.directory(), block.data(), unhindered};
  for (const ManifestExtras& of : checkpoint.manifest().extras)
    if (of.rank < world)
      extras[of.rank] = ZERO_TRY(read_extras_of(files, checkpoint.manifest(), of));
  return extras;
}

Status write(const Checkpoint& checkpoint, Manifest& manifest, const Request& request) {
  const int32_t world = manifest.world;
  const auto to =
      ZERO_TRY(OutputDirectory::create(request.other, request.replace, file_names(world)));
  TensorReader reader(checkpoint);
  return write_checkpoint(*to, manifest, tensors_of(checkpoint.manifest(), true), reader.as_read(),
                          ZERO_TRY(extras_of(checkpoint, world)));
}

}  // namespace

Result<bool> reshard(const Request& request) {
  const Checkpoint checkpoint = ZERO_TRY(Checkpoint::open(request.checkpoint));
  Manifest manifest = checkpoint.manifest();
  ZERO_TRY(share_out(manifest, request.worlds[0]));
  const Status written = write(checkpoint, manifest, request);
  if (!written.ok()) ZERO_TRY(checkpoint.check_in_place());
  ZERO_TRY(written);
  const size_t left_out = checkpoint.manifest().extras.size() - manifest.extras.size();
  if (request.json) {
    print_json(Json{{"checkpoint", checkpoint.path()},
                    {"directory", request.other},
                    {"world", manifest.world},
                    {"ranks_without_their_extras", left_out}});
    return true;
  }
  print_line(
      text(printable(request.other), ": ", counted(static_cast<uint64_t>(manifest.world), "rank")));
  if (left_out > 0)
    print_line(text("extras of ", counted(left_out, "rank"),
                    " are left out, because there are no ranks of those numbers"));
  return true;
}

}  // namespace zero::tool
