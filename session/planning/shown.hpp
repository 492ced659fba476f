// SPDX-License-Identifier: Apache-2.0
// The parameters of a model and the sites of a plan, as a job sees them.
#pragma once

#include <memory>

#include "core/plan/hooks.hpp"

namespace eng {

// Borrows all three.
class Shown {
 public:
  Shown(const Model& model, const Plan& plan, const Job& job);
  Shown(const Shown&) = delete;
  Shown& operator=(const Shown&) = delete;

  std::vector<const eng_parameter*> parameters;  // without frozen ones
  std::vector<const eng_job_site*> sites;

 private:
  std::vector<eng_parameter> all_;
  std::vector<std::unique_ptr<ShownSite>> sites_;
};

// The job's use of the host's memory while it runs, for this plan.
uint64_t host_bytes_of(const Job& job, const Model& model, const Plan& plan);

}  // namespace eng
