// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <cmath>

namespace bench {

Spread spread(const Series& series) {
  std::vector<double> sorted(series.seconds, series.seconds + series.rounds);
  if (sorted.empty()) return {NAN, NAN, NAN};
  std::sort(sorted.begin(), sorted.end());
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, sorted.size() - 1);
    return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
  };
  return {at(0.5), at(0.1), at(0.9)};
}

void print_head() {
  std::printf("%-8s %5s %-12s %9s %9s %9s %8s %8s %7s %9s %6s  %s\n", "workload", "ranks", "case",
              "median ms", "p10", "p90", "B/param", "counted", "GB/s", "floor ms", "floor%",
              "measured against");
}

void print_row(const Row& row) {
  const double gigabytes =
      row.modelled * static_cast<double>(row.elements) / row.seconds.median * 1e-9;
  char counted[16] = "-";
  if (row.counted > 0) std::snprintf(counted, sizeof counted, "%.1f", row.counted);
  char others[96] = "";
  if (row.read_rate > 0)
    std::snprintf(others, sizeof others, ", copy %.1f, five in three out %.1f, read only %.1f",
                  row.copy_rate * 1e-9, row.mix_rate * 1e-9, row.read_rate * 1e-9);
  std::printf("%-8s %5d %-12s %9.3f %9.3f %9.3f %8.1f %8s %7.1f %9.3f %5.0f%%  %s %.1f GB/s%s\n",
              row.workload.c_str(), row.ranks, row.name.c_str(), row.seconds.median * 1e3,
              row.seconds.p10 * 1e3, row.seconds.p90 * 1e3, row.modelled, counted, gigabytes,
              row.floor() * 1e3, row.of_floor() * 100, row.reference.c_str(),
              row.reference_rate * 1e-9, others);
  std::fflush(stdout);
}

bool write_json(const std::string& path, const std::string& library, const std::vector<Row>& rows,
                const Planning& planning) {
  std::FILE* file = path == "-" ? stdout : std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  std::fprintf(file, "{\n  \"library\": \"%s\",\n  \"rows\": [", library.c_str());
  const char* comma = "";
  for (const Row& row : rows) {
    std::fprintf(
        file,
        "%s\n    {\"workload\": \"%s\", \"ranks\": %d, \"case\": \"%s\", \"elements\": %lld, "
        "\"rounds\": %d, \"median_s\": %.9g, \"p10_s\": %.9g, \"p90_s\": %.9g, "
        "\"modelled_bytes_per_param\": %.6g, \"counted_bytes_per_param\": %.6g, "
        "\"reference\": \"%s\", \"reference_bytes_per_s\": %.6g, "
        "\"copy_bytes_per_s\": %.6g, \"mix_bytes_per_s\": %.6g, "
        "\"read_bytes_per_s\": %.6g, "
        "\"floor_s\": %.9g, \"of_floor\": %.4g}",
        comma, row.workload.c_str(), row.ranks, row.name.c_str(),
        static_cast<long long>(row.elements), row.rounds, row.seconds.median, row.seconds.p10,
        row.seconds.p90, row.modelled, row.counted, row.reference.c_str(), row.reference_rate,
        row.copy_rate, row.mix_rate, row.read_rate, row.floor(), row.of_floor());
    comma = ",";
  }
  std::fprintf(
      file, "\n  ],\n  \"planning\": {\"params\": %lld, \"ranks\": %lld, \"median_s\": %.6g}\n}\n",
      static_cast<long long>(planning.params), static_cast<long long>(planning.ranks),
      planning.median_seconds);
  return file == stdout || std::fclose(file) == 0;
}

}  // namespace bench
