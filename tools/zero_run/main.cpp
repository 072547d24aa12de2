// SPDX-License-Identifier: Apache-2.0
// zero-run starts the ranks of one host, and ends them together.
#include "job.h"
#include "options.h"
#include "process.h"

int main(int, char** arguments) {
  zero_run::open_standard_streams();
  return zero_run::Job(zero_run::parse_options(arguments)).run();
}
