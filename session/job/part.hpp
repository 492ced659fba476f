// SPDX-License-Identifier: Apache-2.0
// An analysis that does one part of a job, and its messages.
#pragma once

#include <functional>

#include "session/job/analysis.hpp"

namespace eng {

// One part of an analysis in parts.
struct AsPart {
  JobPart part;
  std::vector<std::string> resting;  // tensors of other groups
  std::function<std::string(uint32_t part, const std::string& name)> earlier;
};

// Messages of a part, as those of the whole.
class PartListener final : public AnalysisListener {
 public:
  PartListener(AnalysisListener& next,
               std::function<void(const std::string&, uint64_t, uint64_t, const std::string&)> told)
      : next_(next), told_(std::move(told)) {}
  void note(const std::string&) override {}  // the whole has said so
  void passed_over(const CheckpointRow& checkpoint) override { next_.passed_over(checkpoint); }
  void reading(const std::filesystem::path& weights, uint64_t done, uint64_t all) override {
    next_.reading(weights, done, all);
  }
  void started(const AnalysisStart&) override {}
  void progress(const std::string& phase, uint64_t done, uint64_t all, const std::string& note) override {
    told_(phase, done, all, note);
  }

 private:
  AnalysisListener& next_;
  const std::function<void(const std::string&, uint64_t, uint64_t, const std::string&)> told_;
};

}  // namespace eng
