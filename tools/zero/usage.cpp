// SPDX-License-Identifier: Apache-2.0
#include "usage.h"

#include <algorithm>

#include "base/text.h"
#include "state/json.h"

namespace zero::tool {
namespace {

constexpr size_t kLongestWord = 64;  // longer ones are not compared

/// Returns how many letters must be added, removed, changed or swapped with the next one.
size_t distance(std::string_view one, std::string_view other) {
  std::vector<std::vector<size_t>> d(one.size() + 1, std::vector<size_t>(other.size() + 1));
  for (size_t i = 0; i <= one.size(); i++) {
    for (size_t j = 0; j <= other.size(); j++) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      const size_t change = one[i - 1] == other[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      if (i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[one.size()][other.size()];
}

Words names_of(const CLI::App& app) {
  Words names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  return names;
}

Words long_options_of(const CLI::App& app) {
  Words names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string not_there(const char* what, std::string_view given, const Words& known) {
  const std::string meant = nearest(given, known);
  return text("there is no ", what, ' ', shown(given),
              meant.empty() ? "" : text(" (did you mean '", meant, "'?)"));
}

bool is_option(std::string_view word) { return word.size() > 2 && word.starts_with("--"); }

}  // namespace

std::string nearest(std::string_view given, const Words& known) {
  std::string best;
  size_t least = (given.size() + 2) / 3 + 1;  // one mistake for every three letters
  if (given.size() > kLongestWord) return best;
  for (const std::string& word : known) {
    // An unfinished word is as near as a word with one mistake.
    const bool begun = given.size() > 1 && given != "--" && word.starts_with(given);
    const size_t far = begun ? 1 : distance(given, word);
    if (far >= least) continue;
    least = far;
    best = word;
  }
  return best;
}

std::string name_of(const CLI::App& app) {
  const CLI::App* const parent = app.get_parent();
  return parent == nullptr ? app.get_name() : name_of(*parent) + ' ' + app.get_name();
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

const CLI::Option* find_option(const CLI::App& app, std::string_view word) {
  const std::string name(word.substr(0, word.find('=')));
  return name.starts_with('-') ? app.get_option_no_throw(name) : nullptr;
}

Place follow(const CLI::App& app, const Words& words) {
  const CLI::App* at = &app;
  for (const std::string& word : words) {
    if (word == "--") break;
    const std::string name = word.substr(0, word.find('='));
    if (is_option(name) && find_option(*at, name) == nullptr)
      return {at, not_there("option", name, long_options_of(*at))};
    const auto commands = commands_of(*at);
    if (word.starts_with('-') || commands.empty()) continue;
    const auto found = std::ranges::find(commands, word, &CLI::App::get_name);
    if (found == commands.end()) return {at, not_there("command", word, names_of(*at))};
    at = *found;
  }
  return {at, ""};
}

}  // namespace zero::tool
