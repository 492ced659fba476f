// SPDX-License-Identifier: Apache-2.0
#include "session/model/loss.hpp"

#include "session/cards/target.hpp"
#include "session/model/caller_loss.hpp"

namespace eng {

Loss make_loss(const Config& config, Registry& registry, const std::string& described, bool training) {
  const Section& section = config.section("loss");
  const std::string& plugin = section.string("plugin");
  Loss out;
  if (plugin == "cross_entropy") {
    out.z_loss = section.number("z_loss");
    return out;
  }
  if (!training) return out;
  if (caller_loss(config)) {
    if (section.number("z_loss") > 0)
      throw Error(Exit::usage, "loss.z_loss is a term of the cross-entropy, and loss.plugin = \"caller\" replaces it",
                  "remove z_loss, and let the caller add the term");
    return make_caller_loss();
  }
  if (!described.empty()) need_kernels(registry, ENG_LOSS_KIND, plugin, described);
  return make_loss(plugin, registry.table<eng_loss>(ENG_LOSS_KIND, plugin), section);
}

}  // namespace eng
