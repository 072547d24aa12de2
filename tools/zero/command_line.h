// SPDX-License-Identifier: Apache-2.0
// The commands of zero with their arguments, as CLI11 reads and describes them.
#pragma once

#include <CLI/CLI.hpp>

#include "commands.h"
#include "usage.h"

namespace zero::tool {

/// Adds all commands to `app`, which fill `request` when it parses.
void define(CLI::App& app, Request& request);

using RunCommand = Result<bool> (*)(const Request&);
/// Returns what the parsed command does, or nullptr if there was none.
RunCommand parsed_command(const CLI::App& app);

/// Returns the words that an option takes, or none if it takes any.
Words values_of(const std::string& option);

}  // namespace zero::tool
