// SPDX-License-Identifier: Apache-2.0
// Bytes as lines over numbers of ranks, as an SVG image.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace zero::tool {

constexpr size_t kMostColors = 8;

struct PlotLine {
  std::string name;
  std::vector<double> bytes;  // for each world
  size_t color;               // below kMostColors; lines may share one
  bool dashed;
};

/// Returns the image. Worlds stand at equal distances, in the order given. Lines that are equal are
/// drawn beside each other.
std::string plot(const std::string& title, const std::vector<int32_t>& worlds,
                 const std::vector<PlotLine>& lines);

}  // namespace zero::tool
