// SPDX-License-Identifier: Apache-2.0
// An analysis: a job on a model, from its configuration to its files. Prints nothing: an AnalysisListener receives all
// messages.
#pragma once

#include <optional>

#include "session/checkpoint/saver.hpp"
#include "session/job/parts.hpp"
#include "session/run/opening.hpp"

namespace eng {

struct AnalysisRequest {
  // A configuration; a run, whose newest checkpoint has the weights; a Hugging Face directory; or an analysis to
  // resume.
  OpenRequest open;
  std::string job;  // --job NAME; "": as [job] says
  std::filesystem::path
      out;  // the directory itself: new, empty, or an analysis to resume; "": a new one below [run] out
  std::optional<double> max_seconds = {};
  bool (*stop)() = nullptr;
  BuildData build_data = {};  // see OpeningOptions
};

struct AnalysisStart {
  const std::filesystem::path& directory;
  const Config& config;
  const Setup& setup;
  const Data& data;
  const MadeJob& made;
  std::optional<std::filesystem::path> from;  // what it saved before, if it is resumed
};

// Called on the thread of the analysis, on rank 0 only.
class AnalysisListener : public OpeningListener {
 public:
  virtual void started(const AnalysisStart& start) = 0;
  // `phase` has done `done` of `all`; `note` is "" or a line.
  virtual void progress(const std::string& phase, uint64_t done, uint64_t all, const std::string& note) = 0;
};

struct AnalysisEnd {
  Exit exit = Exit::done;               // or Exit::stopped
  std::filesystem::path directory;      // "" on ranks other than the first
  std::vector<std::string> files = {};  // that the job wrote, in their order
};

// Opens a target for a job: as open_config, with a [job] that names a plugin. If neither `job` nor the target does, it
// is the usual one of the plugins that are found without the target's [plugins] path.
Opened open_for_job(OpenRequest request, const std::string& job);
// Does all of it on this rank. All ranks call it. What fails is reported to `member` and written to state.json, then
// thrown.
AnalysisEnd run_analysis(const AnalysisRequest& request, Member& member, AnalysisListener& listener);

}  // namespace eng
