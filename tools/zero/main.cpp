// SPDX-License-Identifier: Apache-2.0
// zero inspects and converts checkpoints, and examines ranks and their hosts.
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "base/text.h"
#include "command_line.h"
#include "complete.h"
#include "output.h"
#include "usage.h"
#include "warnings.h"

namespace {

using namespace zero;
using namespace zero::tool;

constexpr int kBad = 1, kUsage = 2;

/// Runs a command, and returns zero's exit status.
int run(const std::string& name, RunCommand command, const Request& request) {
  const auto fail = [&](const char* why) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), tame(why).c_str());
    return kBad;
  };
  try {
    const Result<bool> fine = command(request);
    if (!fine.ok()) return fail(fine.failure().text().c_str());
    if (std::fflush(stdout) != 0) return fail("the output could not be written");
    return *fine ? 0 : kBad;
  } catch (const std::bad_alloc&) {
    return fail("out of memory");
  } catch (const std::system_error& error) {
    return fail(error.what());  // no thread could be started
  }
}

int refuse(const std::string& why, const std::string& name) {
  std::fprintf(stderr, "%s: %s; see %s --help\n", name.c_str(), tame(why).c_str(), name.c_str());
  return kUsage;
}

/// Turns "help trace merge" into "trace merge --help".
Words without_help(Words words) {
  if (words.empty() || words[0] != kHelp) return words;
  if (words.size() > 1 && words[1].starts_with('-')) return words;
  words.erase(words.begin());
  words.push_back("--help");
  return words;
}

int parse_and_run(const Words& given) {
  CLI::App app("", "zero");
  Request request;
  define(app, request);
  if (!given.empty() && given[0] == kComplete) {
    complete(app, {given.begin() + 1, given.end()});
    return 0;
  }
  const Words words = without_help(given);
  const auto [command, mistake] = follow(app, words);
  if (!mistake.empty()) return refuse(mistake, name_of(*command));
  try {
    app.parse(Words(words.rbegin(), words.rend()));  // CLI11 expects the words in reverse
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    const auto below = commands_of(*command);
    if (command != &app && !below.empty() && error.get_name() == "RequiredError")
      return refuse(text("a command is missing, such as ", name_of(*below[0])), name_of(*command));
    return refuse(error.what(), name_of(*command));
  }
  const RunCommand parsed = parsed_command(app);
  if (parsed == nullptr) return refuse("a command is missing", name_of(app));
  return run(name_of(*command), parsed, request);
}

}  // namespace

int main(int count, char** arguments) {
  print_warnings();
  return parse_and_run({arguments + 1, arguments + count});
}
