// SPDX-License-Identifier: Apache-2.0
// Plans drawn at random over everything that must not change a number, and training with them.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/plan/plan.hpp"
#include "fleet.hpp"
#include "session/planning/setup.hpp"
#include "session/train/results.hpp"

namespace equality {

// Settings that fix the numbers of a run.
struct Group {
  // llama, llama-tied, llama-heads, qwen2, qwen3, gemma3, mistral, opt, opt-still (without dropout), mamba, mamba2,
  // hybrid, moe, odd, odd-tied, odd-plain
  std::string model = "llama";
  uint32_t world = 2;
  int64_t accumulate = 1;
  bool reduce_per_step = false;
  std::string precision = "fp32";  // its plugin; and more keys of its section
  std::string optimizer = "plugin = 'adamw'\nlearning_rate = 1e-2\nweight_decay = 0.1\n";  // its section
  std::string freeze = "";                                                                 // patterns, quoted
  double z_loss = 0;                                                                       // of llama, opt and mamba
  double grad_clip = 0.5;
  int steps = 3;                           // 0: initial values
  std::map<int, Overflow> overflows = {};  // by step, from 0
  bool packed = false;                     // several documents lie in a sample: llama, opt, mamba, mamba2, hybrid, moe
  std::string transforms = {};             // [[transforms]]
  uint32_t tensor = 1, context = 1, pipeline = 1;  // [parallel]: their product divides `world`
  uint32_t virtual_stages = 1;                     // [parallel]
  std::string cuts = {};                           // of stages: names, quoted
  bool sequence = false;                           // [parallel], with tensor
  int64_t length = 6;                              // tokens of a sequence
  uint32_t same_rows() const { return tensor * context; }
};

inline constexpr const char* every_strategy[] = {"none", "zero1", "zero2", "zero3", "two_level"};

// Settings that must not change them.
struct Draw {
  std::string strategy = "none";  // none, zero1, zero2, zero3, hpz, mics, two_level
  uint64_t bucket = uint64_t{64} << 20;
  int64_t prefetch = 1;
  bool overlap = true;
  double live_limit = 0;       // times the least that the plan allows; 0: none
  std::string recompute = {};  // a key of [recompute] and its value; "": none
  std::string offload = {};    // the keys of [offload]
  bool observe = false;        // the observer stats, with all that it has
  int64_t pad_vocabulary = 1;  // of the device
  std::string zero = {};       // more keys of [zero]; those of compression change the numbers
};

std::string describe(const Group& group);
std::string describe(const Draw& draw);
Group draw_group(Random& random);
Draw draw(Random& random, const Group& group);
std::string draw_offload(Random& random);

// The plans of all ranks, verified one by one and together.
struct Planned {
  std::vector<eng::Plan> plans;
  std::vector<std::vector<float>> table;  // what each update reads: learning rate, then the optimizer's numbers
  uint64_t live_limit = 0;                // bytes; 0: none
};
Planned plan(const Group& group, const Draw& draw);

// The results of training, by name: norms, loss scales and losses of all steps, then every tensor, put together from
// its ranks.
struct Result {
  std::vector<std::pair<std::string, std::vector<float>>> tensors;
  std::string complaint;  // the run did not come to its end, or ranks hold different values of the same element
  std::vector<eng::Named> observed;  // in the last step
  std::vector<uint64_t> sent;        // bytes, per rank, by the steps
  int again = 0;                     // steps whose early updates were made again
  uint64_t most_live = 0;            // bytes of leases and fresh gradients at a time, on the rank that had most
};
Result train(const Group& group, const Planned& planned, const Schedule& schedule, const Fault& fault = {});
// "" if they are equal bit for bit, else the first value that is not.
std::string difference(const Result& a, const Result& b);

// The types that an op works on in one phase of a program: its first input and its first output.
using Types = std::set<std::pair<int32_t, int32_t>>;
Types types(const eng::Plan& plan, const char* op, eng::Phase phase, const char* program = "train");

}  // namespace equality
