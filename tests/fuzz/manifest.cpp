// SPDX-License-Identifier: Apache-2.0
// An untrusted zero.json, unchanged and with a matching checksum.
#include "state/manifest.h"

#include <string>

#include "fuzz/input.h"

using namespace zero;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const std::string& whole : {bytes, bytes + manifest_trailer(bytes)}) {
    const Result<Manifest> parsed = parse_manifest(whole);
    if (!parsed.ok()) {
      fuzz::must_refuse(parsed.failure(), {ZERO_ERR_CKPT_INVALID, ZERO_ERR_UNSUPPORTED});
      continue;
    }
    const Result<Manifest> again = parse_manifest(write_manifest(*parsed));
    fuzz::must(again.ok(), "what was parsed can be written and parsed");
    fuzz::must(*again == *parsed, "what was parsed, written and parsed is the same");
  }
  return 0;
}
