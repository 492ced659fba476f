// SPDX-License-Identifier: Apache-2.0
#include "session/ranks/restarts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "core/base/error.hpp"

namespace eng {
namespace {

// Signals of a program that does something wrong, and will again.
bool is_crash(int signal) {
  for (const int one : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTRAP, SIGSYS})
    if (signal == one) return true;
  return false;
}

}  // namespace

void check_restarts(const RestartPolicy& p) {
  if (p.min_ranks < 1 || p.min_ranks > p.ranks)
    throw Error(Exit::usage, fmt::format("--min-ranks {} is not between 1 and --ranks {}", p.min_ranks, p.ranks));
  std::vector<uint32_t> works;
  for (uint32_t n = 1; n <= p.ranks; ++n)
    if (p.keeps(n)) works.push_back(n);
  const auto smaller =
      std::any_of(works.begin(), works.end(), [&](uint32_t n) { return n >= p.min_ranks && n < p.ranks; });
  if (smaller || p.min_ranks == p.ranks) return;
  throw Error(
      Exit::usage,
      fmt::format("--min-ranks {}: a step has {} sequences in micro-batches of {}, which {} cannot share evenly",
                  p.min_ranks, p.batch, p.micro,
                  p.min_ranks + 1 == p.ranks ? fmt::format("{} ranks", p.min_ranks)
                                             : fmt::format("{} to {} ranks", p.min_ranks, p.ranks - 1)),
      fmt::format("numbers of ranks that can: {}; with --min-ranks {} all ranks are always started again",
                  fmt::join(works, ", "), p.ranks));
}

Restarts::Restarts(const RestartPolicy& policy) : policy_(policy) {
  for (uint32_t n = 0; n < policy.ranks; ++n) places_.push_back(n);
}

std::string Restarts::after(const Cause& cause, bool started, int64_t step) {
  if (cause.exit == static_cast<int>(Exit::usage)) return "an error of usage stays one";
  const bool own = !cause.lost && !cause.error.empty();
  if (own && !started) return "it failed before its first step, and would again";
  if (own || is_crash(cause.signal) || cause.exit == static_cast<int>(Exit::host_memory)) {
    const Failed now{cause.exit, cause.signal, step, cause.error};
    // The last step that was told may differ by one.
    const auto same = [&](const Failed& f) {
      return f.exit == now.exit && f.signal == now.signal && f.error == now.error && std::abs(f.step - step) <= 1;
    };
    if (std::any_of(before_.begin(), before_.end(), same)) return fmt::format("step {} failed like this before", step);
    before_.push_back(now);
  }
  if (made_ >= policy_.most) return fmt::format("--restarts {}: all of them are used", policy_.most);
  ++made_;
  if (cause.lost && *cause.lost < places_.size()) {
    lost_.push_back(places_[*cause.lost]);
    choose();
  }
  return "";
}

// Takes as many of the places that are left as make the same batch. If that is too few, lost ones are filled again,
// beginning with the one that was lost first.
void Restarts::choose() {
  std::vector<uint32_t> left;
  for (uint32_t n = 0; n < policy_.ranks; ++n)
    if (std::find(lost_.begin(), lost_.end(), n) == lost_.end()) left.push_back(n);
  const auto fitting = [&] {
    auto n = static_cast<uint32_t>(left.size());
    while (n > 0 && !policy_.keeps(n)) --n;
    return n;
  };
  while (fitting() < policy_.min_ranks) {
    left.push_back(lost_.front());
    lost_.erase(lost_.begin());
  }
  left.resize(fitting());
  std::sort(left.begin(), left.end());
  places_ = std::move(left);
}

}  // namespace eng
