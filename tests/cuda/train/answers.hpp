// SPDX-License-Identifier: Apache-2.0
// Runs that train on answers which people prefer, on the cuda device and on the cpu device.
#pragma once

#include "tests/cli/harness.hpp"

namespace cli {

// Pairs of answers, with weights, and single ones.
inline void write_answers(const Scratch& scratch) {
  std::string pairs, single;
  for (int k = 0; k < 8; ++k) {
    const std::string number = std::to_string(k * 7);
    pairs += "{\"prompt\": \"Is it " + number +
             "?\", \"chosen\": \" Yes.\", \"rejected\": \" Go away!\", \"loss_weight\": " + std::to_string(k % 3) +
             "}\n";
    single += "{\"prompt\": \"Is it " + number +
              "?\", \"completion\": \" Yes.\", \"label\": " + (k % 3 ? "true" : "false") + "}\n";
  }
  scratch.write("pairs.jsonl", pairs), scratch.write("single.jsonl", single);
}
// DPO, for a model with an adapter; ORPO; KTO, for a model with an adapter.
inline const Args preferences = {"loss.plugin=preference", "reference.from=base", "data.plugin=pairs",
                                 "data.paths=[\"pairs.jsonl\"]", "data.validation=0.0"};
inline const Args odds = {"loss.plugin=preference", "loss.kind=orpo", "data.plugin=pairs",
                          "data.paths=[\"pairs.jsonl\"]", "data.validation=0.0"};
inline const Args alone = {"loss.plugin=preference", "loss.kind=kto",      "reference.from=base",
                           "data.plugin=pairs",      "data.unpaired=true", "data.paths=[\"single.jsonl\"]",
                           "data.validation=0.0"};

}  // namespace cli
