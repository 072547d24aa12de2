// SPDX-License-Identifier: Apache-2.0
// Finds the commands and options that the words of a command line name, and those that a misspelt
// word may mean.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace zero::tool {

using Words = std::vector<std::string>;

/// Returns the word of `known` that is nearest to `given`, or "" if none is near.
std::string nearest(std::string_view given, const Words& known);

/// Returns a name such as "zero trace merge".
std::string name_of(const CLI::App& app);
std::vector<const CLI::App*> commands_of(const CLI::App& app);
/// Returns the option whose name is the word up to its "=", or nullptr.
const CLI::Option* find_option(const CLI::App& app, std::string_view word);

/// The command that words name. `mistake` says what is wrong with the first word that should be a
/// command or an option and is not, or is "".
struct Place {
  const CLI::App* command;
  std::string mistake;
};
Place follow(const CLI::App& app, const Words& words);

}  // namespace zero::tool
