// SPDX-License-Identifier: Apache-2.0
// Passes each input of a file to a target if there is no libFuzzer. Each line is an input, in which
// a backslash precedes special bytes. scripts/nightly.py writes these files.
#include <fstream>
#include <iostream>
#include <string>

#include "fuzz/input.h"

namespace {

std::string input_of(const std::string& line) {
  std::string input;
  for (size_t i = 0; i < line.size(); i++) {
    if (line[i] != '\\') {
      input += line[i];
      continue;
    }
    switch (line.at(++i)) {
      case 'x':
        input += static_cast<char>(std::stoi(line.substr(i + 1, 2), nullptr, 16));
        i += 2;
        break;
      case 'n':
        input += '\n';
        break;
      case 'r':
        input += '\r';
        break;
      case 't':
        input += '\t';
        break;
      default:
        input += line[i];
    }
  }
  return input;
}

}  // namespace

int main(int, char** argv) {
  std::ifstream corpus(argv[1]);
  int inputs = 0;
  for (std::string line; std::getline(corpus, line); inputs++) {
    const std::string input = input_of(line);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
  std::cout << inputs << " inputs\n";
  return inputs == 0;
}
