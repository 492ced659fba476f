// SPDX-License-Identifier: Apache-2.0
// engine run --trace: when every action of some steps ran, as a file for chrome://tracing or ui.perfetto.dev.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "session/train/trace_events.hpp"

namespace eng {

class TraceFile {
 public:
  // `steps`: "auto" (the second to the fourth step of this process), "7", "2-4", or "" for none. `done`: steps
  // completed before. Throws Error(Exit::usage).
  TraceFile(const std::string& steps, int64_t done, const Plan& plan);
  Trace* trace() const { return trace_.get(); }  // nullptr: no trace requested
  void into(const std::filesystem::path& run) { run_ = run; }
  // Writes trace-rank-RRRRR.json when the last step is done, or when the run ends before that.
  void step(int64_t done) const;
  void finish(int64_t done) const;

 private:
  void write() const;
  std::unique_ptr<Trace> trace_;
  const Plan& plan_;
  std::filesystem::path run_;
};

// The traces of ranks on one machine share one clock and can be opened together.
std::string trace_text(const Trace& trace, const Plan& plan);

}  // namespace eng
