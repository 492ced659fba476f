// SPDX-License-Identifier: Apache-2.0
// Runs a plugin's code in a process of its own, under limits: what crashes or hangs there is a verdict here.
#pragma once

#include "tools/engine/plugin_test/verdict.hpp"

namespace eng::plugin_test {

struct Limits {
  double seconds = 120;            // of wall-clock time, and of processor time on each core
  uint64_t file_bytes = 1u << 30;  // the largest file
  uint64_t memory = 16ull << 30;   // address space; not limited under a sanitizer
};

// Forks, and calls `body` with a receiver of verdicts, with stdin empty and stdout and stderr kept aside. `put` gets
// the verdicts; if the process dies or has to be killed, one more: the check that it was in failed, and how. `printed`
// is given what it wrote to stdout and stderr. Only one thread may run.
struct Printed {
  std::string out, err;
};
Printed in_child(const std::string& of, const Limits& limits, const std::function<void(const Receiver&)>& body,
                 const std::function<void(const Verdict&)>& put);

}  // namespace eng::plugin_test
