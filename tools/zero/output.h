// SPDX-License-Identifier: Apache-2.0
// Prints JSON, or words in columns, for all commands.
#pragma once

#include <sys/ioctl.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace zero::tool {

using Json = nlohmann::ordered_json;

/// Returns a number, or a word if it is not finite, because JSON has no such numbers.
Json json_of(double value);

void print_json(const Json& document);
/// Prints the line after tame().
void print_line(std::string_view line);

/// Returns the size of the terminal, or 80 columns and 24 rows if that is unknown.
winsize terminal_size(int fd);

/// Rows in columns, each as wide as its longest cell. A row of one cell is a whole line.
using Rows = std::vector<std::vector<std::string>>;
std::vector<std::string> table_lines(const Rows& rows);
void print_table(const Rows& rows);

/// Returns the words with a question mark in place of each character that controls a terminal.
std::string tame(std::string words);
/// Returns a name from a file, quoted if it has characters that control a terminal.
std::string printable(std::string_view name);
/// Returns a text such as "1.5", for one digit.
std::string fixed(double number, int digits);
/// Returns a text such as "1.39 ms".
std::string seconds_text(double microseconds);
/// Returns a text such as "[50257, 768]".
std::string shape_text(const std::vector<int64_t>& shape);
/// Returns a text such as "1 tensor" or "2 tensors".
std::string counted(uint64_t count, const char* what);

}  // namespace zero::tool
