// SPDX-License-Identifier: Apache-2.0
// Draws bytes as lines over numbers of ranks, as an SVG image.
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

/// Returns the image. Worlds are equally spaced, in the given order. Equal lines are drawn side by
/// side.
std::string plot(const std::string& title, const std::vector<int32_t>& worlds,
                 const std::vector<PlotLine>& lines);

}  // namespace zero::tool
