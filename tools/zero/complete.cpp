// SPDX-License-Identifier: Apache-2.0
#include "complete.h"

#include <cstdio>
#include <string>
#include <vector>

#include "command_line.h"
#include "commands.h"

namespace zero::tool {
namespace {

/// Prints a word if it begins with `begun`.
void offer(const std::string& begun, const std::string& word, const std::string& help) {
  if (word.starts_with(begun))
    std::printf("%s\t%s\n", word.c_str(), help.substr(0, help.find('\n')).c_str());
}

bool takes_value(const CLI::Option* option) {
  return option != nullptr && option->get_type_size() > 0;
}

/// Offers values of an option, after the part that precedes them: "--rule=adamw,".
void offer_values(const std::string& option, const std::string& begun) {
  const size_t end = begun.find_last_of("=,");
  const std::string before = end == begun.npos ? "" : begun.substr(0, end + 1);
  for (const std::string& value : values_of(option)) offer(begun, before + value, "");
}

}  // namespace

void complete(const CLI::App& app, Words words) {
  // Shells pass "--world=8" as one word or as three.
  if (!words.empty() && words.back() == "=") words.back().clear();
  std::erase(words, "=");
  const std::string begun = words.empty() ? "" : words.back();
  if (!words.empty()) words.pop_back();
  const bool helps = !words.empty() && words[0] == kHelp;
  if (helps) words.erase(words.begin());
  const auto [command, mistake] = follow(app, words);
  if (!mistake.empty()) return;
  const std::string before = words.empty() ? "" : words.back();
  const size_t equals = begun.find('=');
  if (equals != begun.npos) return offer_values(begun.substr(0, equals), begun);
  if (before.find('=') == before.npos && takes_value(find_option(*command, before)))
    return offer_values(before, begun);
  if (begun.starts_with('-')) {
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames())
        offer(begun, "--" + name, option->get_description());
    return;
  }
  for (const CLI::App* one : commands_of(*command))
    offer(begun, one->get_name(), one->get_description());
}

}  // namespace zero::tool
