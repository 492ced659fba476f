// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "../common/plugin.hpp"
#include "strategy.hpp"

// clang-format off
#define ZERO_STRATEGY(name, summary, fit) \
  "\n" \
  "[[provides]]\n" \
  "kind = '" ENG_ZERO_DRAFT "'\n" \
  "name = '" name "'\n" \
  "summary = '" summary "'\n" fit \
  "\n" \
  "[provides.options.fast]\n" \
  "type = 'bool'\n" \
  "default = false\n" \
  "help = \"sum gradients with the communicator's own reductions; the strategies then no longer give equal bits\"\n" \
  "\n" \
  "[provides.options.sum]\n" \
  "type = 'string'\n" \
  "default = 'exact'\n" \
  "choices = ['exact', 'bf16', 'int8']\n" \
  "help = \"the form in which summands move between ranks, with groups between groups: as they are, or narrower. What " \
  "is rounded off is added to the next sum\"\n"

#define ZERO_GATHER \
  "\n" \
  "[provides.options.gather]\n" \
  "type = 'string'\n" \
  "default = 'exact'\n" \
  "choices = ['exact', 'int8']\n" \
  "help = \"the form in which weights are gathered: as they are, or in 8 bits with a scale for every 64\"\n"

#define ZERO_GROUP \
  "\n" \
  "[provides.options.group]\n" \
  "type = 'int'\n" \
  "default = 0\n" \
  "min = 0\n" \
  "help = \"ranks of a group, neighbours such as those of a node; 0: the largest of 8, 4 and 2 that divides the ranks\"\n"

ENG_DESCRIPTION(
  "[plugin]\n"
  "id = 'eng.zero'\n"
  "name = 'ZeRO'\n"
  "version = '0.1.0'\n"
  "license = 'Apache-2.0'\n"
  "summary = 'strategies of many ranks: the states of which each rank keeps a part'\n"
  ZERO_STRATEGY("none", "replicated data parallel: every rank has all weights, masters and optimizer state",
    "fit = { order = 0, lossy = ['sum=bf16', 'sum=int8'] }\n")
  ZERO_STRATEGY("zero1",
    "each rank keeps a part of the masters, optimizer state and summed gradients; the same program as zero2", "")
  ZERO_STRATEGY("zero2",
    "each rank keeps a part of the masters, optimizer state and summed gradients; zero1 is the same program",
    "fit = { order = 20, same_as = ['zero1'], lossy = ['sum=bf16', 'sum=int8'] }\n")
  ZERO_STRATEGY("zero3", "each rank keeps a part of everything, weights too; weights are gathered for each use",
    "fit = { order = 30, lossy = ['sum=bf16', 'sum=int8', 'gather=int8'] }\n") ZERO_GATHER
  ZERO_STRATEGY("hpz",
    "as zero3, but each group of ranks keeps all weights, so that they are gathered within a group (hpZ of ZeRO++)",
    "fit = { order = 24, group = 'group', lossy = ['sum=bf16', 'sum=int8', 'gather=int8'] }\n") ZERO_GATHER ZERO_GROUP
  ZERO_STRATEGY("mics",
    "as zero3 within each group of ranks, which keeps everything; only sums of gradients cross groups (MiCS)",
    "fit = { order = 26, group = 'group', lossy = ['sum=bf16', 'sum=int8', 'gather=int8'] }\n") ZERO_GATHER ZERO_GROUP)
// clang-format on

namespace {

const char* describe() {
  return eng_description;
}

const void* get_interface(const char* kind, const char* name) {
  return std::strcmp(kind, ENG_ZERO_KIND) == 0 ? zero::find(name) : nullptr;
}

const eng_plugin plugin = common::plain_plugin(describe, get_interface);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
