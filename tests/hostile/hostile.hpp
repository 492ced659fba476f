// SPDX-License-Identifier: Apache-2.0
// One fault of the hostile plugin, and what the command says to it.
#pragma once

#include "../cli/harness.hpp"

namespace hostile {

using namespace cli;

// The part of the test that is asked to do it.
enum Who {
  in_run,
  in_source,
  in_strategy,
  on_device,
  between_ranks,
  in_generate,
  in_tokenizer,
  in_inspect,
  on_tier,
  in_schedule
};

struct Case {
  Who who;
  const char* fault;
  int exit;           // 0: it is none
  const char* said;   // a part of it
  bool named = true;  // and who it was
};

// Runs the command once for each case, each in a folder of its own, and checks the exit code, the words, that they say
// who it was, and that nothing is left that looks whole: no run where it had not begun, else one that has failed.
void check(const std::vector<Case>& cases);

// `engine plugins test` finds the fault, unless it is out of its reach: something fails that does not fail without it.
// (Of this plugin some things fail anyway: its device computes nothing.)
void check_found(const Case& c);

}  // namespace hostile
