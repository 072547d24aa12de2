// SPDX-License-Identifier: Apache-2.0
// What commands print: JSON, or words in columns.
#pragma once

#include <sys/ioctl.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace zero::tool {

using Json = nlohmann::ordered_json;

/// Returns a number, or its word if it is not finite, because JSON has none for that.
Json json_of(double value);

void print_json(const Json& document);
/// Prints it tame.
void print_line(std::string_view line);

/// Returns that of the terminal, or 80 columns and 24 rows if it does not tell.
winsize terminal_size(int fd);

/// Rows in columns that are as wide as their longest cell. A row of one cell is a line of its own.
using Rows = std::vector<std::vector<std::string>>;
std::vector<std::string> table_lines(const Rows& rows);
void print_table(const Rows& rows);

/// Returns the words with a question mark for each character that a terminal obeys.
std::string tame(std::string words);
/// Returns a name from a file, quoted if it has characters that a terminal obeys.
std::string printable(std::string_view name);
/// Returns "1.5" for one digit.
std::string fixed(double number, int digits);
/// Returns "1.39 ms".
std::string seconds_text(double microseconds);
/// Returns "[50257, 768]".
std::string shape_text(const std::vector<int64_t>& shape);
/// Returns "1 tensor", "2 tensors".
std::string counted(uint64_t count, const char* what);

}  // namespace zero::tool
