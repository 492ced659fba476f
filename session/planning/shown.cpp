// SPDX-License-Identifier: Apache-2.0
#include "session/planning/shown.hpp"

namespace eng {

Shown::Shown(const Model& model, const Plan& plan, const Job& job) {
  all_.resize(model.params.size());
  const auto blocks = static_cast<uint32_t>(model.blocks.size());
  for (uint32_t b = blocks; b-- > 0;)
    for (uint32_t p : model.blocks[b].params)
      all_[p] = {sizeof(eng_parameter),
                 model.params[p].flags,
                 model.params[p].name.c_str(),
                 &model.params[p].desc,
                 job.asked.groups.front()->options.get(),
                 b,
                 blocks,
                 p,
                 0};
  for (uint32_t p = 0; p < all_.size(); ++p)
    if (!model.params[p].frozen) parameters.push_back(&all_[p]);
  for (uint32_t k = 0; k < plan.sites.size(); ++k) {
    sites_.push_back(std::make_unique<ShownSite>(model, plan.sites[k], k));
    sites.push_back(&sites_.back()->shown);
  }
}

uint64_t host_bytes_of(const Job& job, const Model& model, const Plan& plan) {
  const Shown shown(model, plan, job);
  uint64_t bytes = 0;
  Sink sink;
  sink.check(
      job.table.host_bytes(job.self.get(), shown.parameters.data(), static_cast<uint32_t>(shown.parameters.size()),
                           shown.sites.data(), static_cast<uint32_t>(shown.sites.size()), &bytes, sink.get()),
      Exit::environment, job.asked.who());
  return bytes;
}

}  // namespace eng
