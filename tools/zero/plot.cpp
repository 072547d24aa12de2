// SPDX-License-Identifier: Apache-2.0
#include "plot.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "sizes.h"

namespace zero::tool {
namespace {

// In pixels.
constexpr double kWidth = 760, kLeft = 84, kRight = 30, kTop = 56, kHeight = 300, kBottom = 72;
constexpr double kLegendRow = 20, kDigit = 8, kMostTicks = 6;
constexpr double kLane = 3;     // between lines that would cover each other
constexpr double kApart = 1.5;  // lines that are closer than this cover each other
// Colors that people with red-green blindness can distinguish as well (Okabe and Ito).
constexpr const char* kColors[kMostColors] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                              "#56b4e9", "#e69f00", "#000000", "#999999"};

std::string escaped(std::string_view words) {
  std::string out;
  for (const char c : words) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

/// Returns the distance of ticks: 1, 2 or 5 times a power of ten.
double step_of(double most) {
  double step = std::pow(10, std::floor(std::log10(most / kMostTicks)));
  for (const double factor : {2.0, 2.5, 2.0}) {
    if (most / step <= kMostTicks) break;
    step *= factor;
  }
  return step;
}

class Image {
 public:
  Image(const std::string& title, const std::vector<int32_t>& worlds,
        const std::vector<PlotLine>& lines)
      : worlds_(worlds), lines_(lines) {
    double most = 1;
    for (const PlotLine& line : lines) most = std::max(most, *std::ranges::max_element(line.bytes));
    unit_ = unit_of(most);
    step_ = step_of(most / unit_.bytes);
    top_ = std::ceil(most / unit_.bytes / step_) * step_;
    choose_lanes();
    const bool is_moved = std::ranges::any_of(lanes_, [](size_t lane) { return lane > 0; });
    const double rows = static_cast<double>(lines.size() + (is_moved ? 1 : 0));
    const double height = kTop + kHeight + kBottom + kLegendRow * rows;
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", kWidth, "\" height=\"", height,
        "\" viewBox=\"0 0 ", kWidth, ' ', height,
        "\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">");
    add("<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>");
    words(kLeft, 28, "start", title);
    if (is_moved)
      words(kLeft, height - kLegendRow + 4, "start", "Equal lines are drawn side by side.");
  }

  std::string draw() {
    axes();
    double row = kTop + kHeight + kBottom;
    for (size_t i = 0; i < lines_.size(); i++) {
      draw(lines_[i], kLane * static_cast<double>(lanes_[i]));
      const std::string stroke = stroke_of(lines_[i]);
      add("<path d=\"M", kLeft, ' ', row, "h28\"", stroke, "/>");
      words(kLeft + 36, row + 4, "start", lines_[i].name);
      row += kLegendRow;
    }
    return out_ + "</svg>\n";
  }

 private:
  template <class... Parts>
  void add(const Parts&... parts) {
    out_ += text(parts...) + '\n';
  }

  void words(double x, double y, const char* anchor, std::string_view said) {
    add("<text x=\"", x, "\" y=\"", y, "\" text-anchor=\"", anchor, "\">", escaped(said),
        "</text>");
  }

  double x_of(size_t world) const {
    const double between = static_cast<double>(std::max<size_t>(worlds_.size() - 1, 1));
    return kLeft + 20 + static_cast<double>(world) * (kWidth - kLeft - kRight - 40) / between;
  }
  double y_of(double in_units) const { return kTop + kHeight * (1 - in_units / top_); }

  std::string tick_text(int tick) const {
    const double number = std::round(tick * step_ * 1000) / 1000;
    return text(number < 1000 ? text(number) : grouped(number, 0), ' ', unit_.name);
  }

  void axes() {
    for (int tick = 0; tick * step_ <= top_ * 1.001; tick++) {
      const double y = y_of(tick * step_);
      add("<path d=\"M", kLeft, ' ', y, 'H', kWidth - kRight, "\" stroke=\"#ddd\"/>");
      words(kLeft - 8, y + 4, "end", tick_text(tick));
    }
    double free = 0;
    for (size_t i = 0; i < worlds_.size(); i++) {
      const std::string number = text(worlds_[i]);
      const double half = kDigit * static_cast<double>(number.size() + 1) / 2;
      if (x_of(i) - half < free) continue;
      words(x_of(i), kTop + kHeight + 20, "middle", number);
      free = x_of(i) + half;
    }
    words((kLeft + kWidth - kRight) / 2, kTop + kHeight + 40, "middle", "ranks");
  }

  static std::string stroke_of(const PlotLine& line) {
    return text(" fill=\"none\" stroke-width=\"2\" stroke=\"", kColors[line.color],
                line.dashed ? "\" stroke-dasharray=\"6 4\"" : "\"");
  }

  /// Returns true if one line would hide the other, at two adjacent worlds or at the only one.
  bool hide_each_other(const PlotLine& one, const PlotLine& other) const {
    size_t near = 0;
    for (size_t i = 0; i < worlds_.size(); i++) {
      const double between = (one.bytes[i] - other.bytes[i]) / unit_.bytes / top_ * kHeight;
      near = std::abs(between) < kApart ? near + 1 : 0;
      if (near == std::min<size_t>(worlds_.size(), 2)) return true;
    }
    return false;
  }

  /// Gives each line the first lane in which it hides no earlier line.
  void choose_lanes() {
    for (size_t i = 0; i < lines_.size(); i++) {
      std::vector<bool> taken(i + 1);
      for (size_t j = 0; j < i; j++)
        if (hide_each_other(lines_[i], lines_[j])) taken[lanes_[j]] = true;
      lanes_.push_back(static_cast<size_t>(std::ranges::find(taken, false) - taken.begin()));
    }
  }

  /// `aside` is how far the line is drawn up and to the right, so that falling and level lines are
  /// drawn next to the line that they would cover.
  void draw(const PlotLine& line, double aside) {
    std::string path;
    for (size_t i = 0; i < line.bytes.size(); i++) {
      const double x = x_of(i) + aside, y = y_of(line.bytes[i] / unit_.bytes) - aside;
      path += text(i == 0 ? "M" : "L", x, ' ', y);
      add("<circle cx=\"", x, "\" cy=\"", y, "\" r=\"3\" fill=\"", kColors[line.color], "\"/>");
    }
    add("<path d=\"", path, "\"", stroke_of(line), "/>");
  }

  const std::vector<int32_t>& worlds_;
  const std::vector<PlotLine>& lines_;
  SizeUnit unit_{};
  double step_ = 1, top_ = 1;
  std::vector<size_t> lanes_;
  std::string out_;
};

}  // namespace

std::string plot(const std::string& title, const std::vector<int32_t>& worlds,
                 const std::vector<PlotLine>& lines) {
  return Image(title, worlds, lines).draw();
}

}  // namespace zero::tool
