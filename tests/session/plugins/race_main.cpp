// SPDX-License-Identifier: Apache-2.0
// plugin-race [TRIES]: exit status 77 (skipped) without root, who alone can act as two users.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "race.hpp"

int main(int argc, char** argv) {
  if (geteuid() != 0) {
    std::printf("skipped: a race of two users needs root; run it as root, or in a container\n");
    return 77;
  }
  const std::string wrong = race::run(argc > 1 ? std::atoi(argv[1]) : 300, [](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  });
  if (!wrong.empty()) std::printf("WRONG: %s\n", wrong.c_str());
  return wrong.empty() ? 0 : 1;
}
