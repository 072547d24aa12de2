// SPDX-License-Identifier: Apache-2.0
// Defines the commands of zero and their arguments for CLI11.
#pragma once

#include <CLI/CLI.hpp>

#include "commands.h"
#include "usage.h"

namespace zero::tool {

/// Adds all commands to `app`. They fill `request` when it parses.
void define(CLI::App& app, Request& request);

using RunCommand = Result<bool> (*)(const Request&);
/// Returns the function of the parsed command, or nullptr if there was no command.
RunCommand parsed_command(const CLI::App& app);

/// Returns the words that an option accepts, or nothing if it accepts any word.
Words values_of(const std::string& option);

}  // namespace zero::tool
