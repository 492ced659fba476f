// SPDX-License-Identifier: Apache-2.0
#include "session/report/trace.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <map>

#include "core/base/error.hpp"
#include "session/file.hpp"
#include "session/json.hpp"
#include "session/report/report.hpp"

namespace eng {
namespace {

using Clock = Trace::Clock;

constexpr size_t most_actions = 10'000'000;
constexpr size_t steps_row = queue_count;  // below the queues

double microseconds(Clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

Json slice(const std::string& name, size_t row, uint32_t rank, Clock::time_point begin, Clock::time_point end) {
  return Json::ordered({{"ph", "X"},
                        {"name", name},
                        {"pid", rank},
                        {"tid", row},
                        {"ts", microseconds(begin.time_since_epoch())},
                        {"dur", microseconds(end - begin)}});
}

Json row_name(const char* what, const std::string& name, size_t row, uint32_t rank) {
  return Json::ordered(
      {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", row}, {"args", Json::ordered({{"name", name}})}});
}

}  // namespace

TraceFile::TraceFile(const std::string& steps, int64_t done, const Plan& plan) : plan_(plan) {
  if (steps.empty()) return;
  int64_t first = done + 2, last = done + 4;
  if (steps != "auto") {
    const char* const stop = steps.data() + steps.size();
    auto [at, error] = std::from_chars(steps.data(), stop, first);
    last = first;
    if (error == std::errc() && at != stop && *at == '-') {
      const auto second = std::from_chars(at + 1, stop, last);
      at = second.ptr, error = second.ec;
    }
    if (error != std::errc() || at != stop || first < 1 || last < first)
      throw Error(Exit::usage, "--trace=" + steps + " names no steps",
                  "write it like --trace, --trace=7 or --trace=2-4");
  }
  const size_t actions = executed_actions(plan.program("train")), most = most_actions / actions;
  if (static_cast<uint64_t>(last - first) >= most)
    throw Error(Exit::usage, fmt::format("--trace={} is {} steps of {} actions each", steps, last - first + 1, actions),
                fmt::format("up to {} of them can be traced", most));
  trace_ = std::make_unique<Trace>(first, last, actions);
}

void TraceFile::step(int64_t done) const {
  if (trace_ && done == trace_->last()) write();
}

void TraceFile::finish(int64_t done) const {
  if (trace_ && done < trace_->last()) write();
}

void TraceFile::write() const {
  write_atomic(run_ / fmt::format("trace-rank-{:05}.json", plan_.ranks.world.rank), trace_text(*trace_, plan_));
}

std::string trace_text(const Trace& trace, const Plan& plan) {
  const uint32_t rank = plan.ranks.world.rank;
  std::string out = R"({"displayTimeUnit":"ms","traceEvents":[)";  // the events one by one: there may be millions
  const auto add = [&](const Json& event) { out += (out.ends_with('[') ? "" : ",") + event.dump(); };
  add(row_name("process_name", fmt::format("rank {}", rank), 0, rank));
  struct Span {
    Clock::time_point begin = Clock::time_point::max(), end = Clock::time_point::min();
  };
  std::map<int64_t, Span> steps;
  std::array<bool, queue_count> used{};
  for (const Trace::Event& e : trace.events()) {
    const auto row = static_cast<size_t>(e.queue);
    used[row] = true;
    if (e.begin - e.reached > std::chrono::microseconds(1)) add(slice("wait", row, rank, e.reached, e.begin));
    Json one = slice(plan.calls[e.call].op->id, row, rank, e.begin, e.end);
    one["args"] = Json::ordered({{"block", plan.labels[e.label].text()}, {"step", e.step}});
    add(one);
    Span& span = steps[e.step];
    span.begin = std::min(span.begin, e.reached), span.end = std::max(span.end, e.end);
  }
  for (size_t row = 0; row < queue_count; ++row)
    if (used[row]) add(row_name("thread_name", to_string(static_cast<Queue>(row)), row, rank));
  add(row_name("thread_name", "steps", steps_row, rank));
  for (const auto& [step, span] : steps)
    add(slice(fmt::format("step {}", step), steps_row, rank, span.begin, span.end));
  return out + "]}\n";
}

}  // namespace eng
