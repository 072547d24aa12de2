// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#include "habits.h"
#include "zero.h"

namespace zero_run {
namespace {

constexpr char kHelp[] =
    "Usage: zero-run -n RANKS [--no-prefix] PROGRAM [ARGUMENT...]\n"
    "Start RANKS copies of PROGRAM on this host as the ranks of one libzero job.\n"
    "\n"
    "  -n, --ranks RANKS  how many, 1 to 1024; -np, --ntasks and --nproc-per-node are the same\n"
    "      --no-prefix    leave out the \"[rank] \" in front of every line of output\n"
    "      --help         print this and exit\n"
    "      --version      print the version and exit\n"
    "\n"
    "Each rank finds ZERO_RANK, ZERO_WORLD_SIZE, ZERO_LOCAL_RANK, ZERO_LOCAL_WORLD_SIZE and "
    "ZERO_JOB\n"
    "in its environment; zero_comm_create_env reads them. Rank 0 gets the standard input.\n"
    "With ZERO_LOG=warning in zero-run's own, libzero prints for whom a rank has been waiting, "
    "with\n"
    "info also which comm it made.\n"
    "\n"
    "What a rank writes appears within 0.2 seconds. If zero-run's own output is a terminal, so is "
    "the\n"
    "rank's; otherwise it is a pipe, in which C programs keep lines back: zero-run -n 4 stdbuf "
    "-oL\n"
    "PROGRAM writes each at once. Python ranks get PYTHONUNBUFFERED=1 unless the variable is set,\n"
    "even to nothing.\n"
    "\n"
    "When a rank fails, the others have 2 seconds to end by themselves, then get SIGTERM, and 5 "
    "seconds\n"
    "later SIGKILL. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to all "
    "ranks.\n"
    "After SIGINT they have 5 seconds to end before it goes on like that; a second one kills "
    "them.\n"
    "\n"
    "Exit status: 0 if all ranks exited with 0; else that of the rank that failed first, 128 + N "
    "if\n"
    "signal N killed it, where a kill counts before an exit. 2: wrong usage; 125: the system "
    "refused\n"
    "something; 126: PROGRAM cannot be executed; 127: PROGRAM was not found.\n";

[[noreturn]] void refuse(const std::string& why) {
  fprintf(stderr, "zero-run: %s; see zero-run --help\n", why.c_str());
  exit(kUsage);
}

[[noreturn]] void decline(const std::string& option, const char* words) {
  fprintf(stderr, "zero-run: %s: %s\n", option.c_str(), words);
  exit(kUsage);
}

[[noreturn]] void answer(const std::string& words) {
  fputs(words.c_str(), stdout);
  exit(fflush(stdout) == 0 ? 0 : kSystem);
}

int parse_ranks(std::string_view text) {
  int ranks = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, ranks);
  if (error != std::errc() || stop != end || ranks < 1 || ranks > kMostRanks) {
    refuse("'" + std::string(text) + "' is not a number of ranks from 1 to " +
           std::to_string(kMostRanks));
  }
  return ranks;
}

/// Takes the option at `next` with its value, and returns where that ends.
char** take_option(char** next, Options& options) {
  const std::string typed = *next;
  const TypedOption option(*next);
  if (asks_for_nothing(option.name)) return next;
  const Habit* habit = find_habit(option.name);
  if (habit == nullptr && !counts_ranks(option.name)) refuse("unknown option '" + typed + "'");
  const char* value = option.has_value ? option.value.data() : *++next;
  if (habit != nullptr) {
    if (value != nullptr && *value != '\0' && habit->harmless == value) return next;
    decline(typed, habit->words);
  }
  if (value == nullptr) refuse(typed + " needs a number of ranks");
  const int ranks = parse_ranks(value);
  if (options.ranks != 0 && options.ranks != ranks) {
    refuse("'" + typed + "' contradicts the " + std::to_string(options.ranks) +
           " ranks given before it");
  }
  options.ranks = ranks;
  return next;
}

std::string version() {
  return "zero-run " + std::to_string(ZERO_VERSION_MAJOR) + '.' +
         std::to_string(ZERO_VERSION_MINOR) + '.' + std::to_string(ZERO_VERSION_PATCH) + '\n';
}

}  // namespace

Options parse_options(char** arguments) {
  Options options;
  char** next = arguments + 1;
  // Options end at the program, which has its own options.
  for (; *next != nullptr && **next == '-'; ++next) {
    const std::string_view option = *next;
    if (option == "--") {
      ++next;
      break;
    }
    if (option == "--help" || option == "-h") answer(kHelp);
    if (option == "--version") answer(version());
    if (option == "--no-prefix") {
      options.prefix = false;
    } else {
      next = take_option(next, options);
    }
  }
  if (options.ranks == 0) refuse("the number of ranks is missing: -n RANKS");
  if (*next == nullptr) refuse("the program is missing");
  options.program = next;
  return options;
}

}  // namespace zero_run
