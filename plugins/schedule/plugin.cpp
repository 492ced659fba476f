// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "../common/plugin.hpp"
#include "schedule.hpp"

// clang-format off
ENG_DESCRIPTION(R"([plugin]
id = 'eng.schedule'
name = 'Schedules'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'Learning rates: warm-up, stable, decay; inverse square root'

[[provides]]
kind = 'eng.schedule/1'
name = 'wsd'
summary = 'warm-up, stable, decay (Hu et al. 2024; decay of Haegele et al. 2024)'

[provides.options]
warmup_steps = { type = 'int', default = 0, min = 0, max = 1e9, help = 'updates until the full learning rate' }
decay = { type = 'string', default = '1-sqrt', choices = ['linear', '1-sqrt', 'cosine'], help = 'shape of the decay' }
decay_steps = { type = 'int', min = 1, max = 1e9, help = 'updates of the decay at the end of the run; instead of decay_share' }
decay_share = { type = 'float', default = 0.2, min = 0.0, max = 1.0, help = 'the decay as a part of train.steps' }
min_learning_rate = { type = 'float', default = 0.0, min = 0.0, help = 'rate of the last update' }

[[provides]]
kind = 'eng.schedule/1'
name = 'inverse_sqrt'
summary = 'one over the root of the update (Vaswani et al. 2017); needs no number of steps'

[provides.options]
warmup_steps = { type = 'int', default = 0, min = 0, max = 1e9, help = 'updates until the full learning rate' }
timescale = { type = 'int', min = 1, max = 1e9, help = 'T of sqrt(T / (T + updates after the warm-up)); warmup_steps if absent' }
)")
// clang-format on

namespace {

const char* describe() {
  return eng_description;
}

const void* get_interface(const char* kind, const char* name) {
  if (std::strcmp(kind, ENG_SCHEDULE_KIND) != 0) return nullptr;
  if (std::strcmp(name, "wsd") == 0) return &wsd_table;
  return std::strcmp(name, "inverse_sqrt") == 0 ? &inverse_sqrt_table : nullptr;
}

const eng_plugin plugin = common::plain_plugin(describe, get_interface);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
