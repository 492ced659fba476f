// SPDX-License-Identifier: Apache-2.0
// Sites: where copies of outputs of ops in the forward are kept, or the ops of a job read them.
#pragma once

#include "core/plan/emitter.hpp"

namespace eng {

// A site as a job sees it. Borrows the model.
struct ShownSite {
  ShownSite(const Model& model, const Site& site, uint32_t number);
  ShownSite(const ShownSite&) = delete;
  ShownSite& operator=(const ShownSite&) = delete;
  std::vector<eng_attr> attrs;
  eng_job_site shown{};
};

class Hooks {
 public:
  // Makes the tensors of the activations that are kept. Asks the job of the request, if there is one, about every
  // output of the forward, and makes the tensors of its sites.
  Hooks(const PlanRequest& request, Plan& plan, Emitter& emitter);
  // A node of a block was emitted: copies of its outputs, or the job's ops on them, follow.
  void after(uint32_t block, size_t node, const std::vector<View>& outputs);

 private:
  void add(Site site, const std::vector<std::string>& names, const char* role, Line line, const eng_desc& desc);
  eng_desc ask_site(const Site& site) const;
  std::string who(const Site& site) const;
  const PlanRequest& r_;
  Plan& plan_;
  Emitter& emit_;
};

}  // namespace eng
