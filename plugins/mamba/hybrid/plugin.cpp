// SPDX-License-Identifier: Apache-2.0
// Hybrids of Mamba, attention and experts, in a file of their own: their ops are those of two other plugins, which a
// run of Mamba, or of a mixture of experts, does not need.
#include "../../common/plugin.hpp"

#include "description.hpp"
#include "description_jamba.hpp"
#include "engine/plugin.h"
#include "families.hpp"

// clang-format off
ENG_DESCRIPTION(R"([plugin]
id = 'eng.hybrids'
name = 'Hybrids'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'Bamba, Granite 4, Nemotron-H, Falcon-H1 and Jamba language models: mixers of Mamba, attention, and experts'
uses = ['eng.mamba.causal_conv1d/1', 'eng.mamba.selective_scan/1', 'eng.mamba.split/1', 'eng.mamba.ssd/1', 'eng.mamba.gated_norm/1', 'eng.mamba.init_a_log/1', 'eng.mamba.init_dt_bias/1', 'eng.mamba.init_log_uniform/1', 'eng.moe.route/1', 'eng.moe.route_sigmoid/1', 'eng.moe.linear/1', 'eng.moe.gated/1', 'eng.moe.combine/1', 'eng.moe.balance/1']

)" HYBRID_BAMBA HYBRID_GRANITE HYBRID_NEMOTRON HYBRID_FALCON_H1 HYBRID_JAMBA)
// clang-format on

namespace {

const char* describe() {
  return eng_description;
}

const void* get_interface(const char* kind, const char* name) {
  return model::interface_of<hybrid::Bamba, hybrid::FalconH1, hybrid::GraniteMoeHybrid, hybrid::Jamba,
                             hybrid::NemotronH>(kind, name);
}

const eng_plugin plugin = common::plain_plugin(describe, get_interface);

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
