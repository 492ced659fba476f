// SPDX-License-Identifier: Apache-2.0
// The functions that a running job calls: eng_job_api.
#pragma once

#include <exception>
#include <functional>

#include "session/job/passes.hpp"
#include "session/planning/shown.hpp"

namespace eng {

// The parts of a run that calls of a job reach beside the passes. All of it is called on the thread of the job, on
// every rank.
struct JobEnds {
  std::function<bool()> stop;   // the user asked this rank to stop
  std::function<void()> begin;  // before each call that all ranks make together
  std::function<void()> save;
  std::function<void(const std::string& phase, uint64_t done, uint64_t all, const std::string& note)> progress;
  std::function<void(const std::string& name, const void* data, uint64_t size)> file;  // of rank 0
  std::function<std::string()> facts;
  std::function<std::string(uint32_t part, const std::string& name)> earlier;  // throws JobFault
};

class JobHost final : public eng_job_host {
 public:
  JobHost(const Setup& setup, const MadeJob& made, const Data& data, Passes& passes, const Peers& peers, JobEnds ends);
  JobHost(const JobHost&) = delete;
  JobHost& operator=(const JobHost&) = delete;

  // Calls the job's `run`. True: it is complete; false: it was asked to stop. Throws Error, with the job's name where
  // the job is at fault.
  bool run();

 private:
  struct Api;
  enum class Call : uint64_t { gradient = 1, losses, program, read, write, save, file, position_losses, earlier };
  // All ranks come to the same call with the same arguments, and know whether one was asked to stop.
  void meet(Call call, std::initializer_list<uint64_t> arguments);
  template <class Work>
  eng_status answer(eng_error* sink, const Work& work) noexcept;

  const MadeJob& made_;
  const Data& data_;
  Passes& passes_;
  const Peers peers_;
  const JobEnds ends_;
  const Shown shown_;
  std::string facts_, earlier_;
  bool stopped_ = false;        // every later call says so
  std::exception_ptr failure_;  // the same
};

}  // namespace eng
