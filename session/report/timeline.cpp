// SPDX-License-Identifier: Apache-2.0
#include "session/report/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>

#include "session/json.hpp"

namespace eng {
namespace {

constexpr size_t named_ops = 4;  // of each lane
constexpr char idle = '.';

Lane lane_of(const Plan& plan, const Topology& topology, const Action& action) {
  const Call& call = plan.calls[action.call];
  if (call.op->collective)
    return topology.groups[static_cast<size_t>(call.attrs.i("group", 1)) - 1].far ? Lane::network : Lane::link;
  switch (action.queue) {
    case Queue::h2d:
      return Lane::to_device;
    case Queue::d2h:
      return Lane::to_host;
    case Queue::read:
      return Lane::reads;
    case Queue::write:
      return Lane::writes;
    case Queue::host:
      return Lane::host;
    default:
      return call.on_host ? Lane::host : Lane::compute;
  }
}

// A phase's letter in the chart, and its word in the legend.
std::pair<char, const char*> mark_of(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return {'F', "forward"};
    case Phase::backward:
      return {'B', "backward"};
    case Phase::loss:
      return {'L', "loss"};
    case Phase::gather:
      return {'G', "gather"};
    case Phase::reduce:
      return {'R', "reduce"};
    case Phase::publish:
      return {'P', "publish"};
    case Phase::norm:
      return {'N', "norm"};
    case Phase::update:
      return {'U', "update"};
    default:
      return {'O', "other"};
  }
}

std::string time_text(double s) {
  return s >= 1      ? fmt::format("{:.3g} s", s)
         : s >= 1e-3 ? fmt::format("{:.3g} ms", 1e3 * s)
                     : fmt::format("{:.3g} us", 1e6 * s);
}

// Calls `f` with every slice of the step and its start.
template <class F>
void each_slice(const Timeline& timeline, F f) {
  for (const Stretch& stretch : timeline.stretches)
    for (uint32_t k = 0; k < stretch.repeat; ++k)
      for (const Slice& slice : stretch.slices) f(slice, slice.start + k * stretch.seconds);
}

// The seconds of each letter in each column of each lane.
class TimeColumns {
 public:
  TimeColumns(const Timeline& timeline, const Plan& plan, size_t number)
      : width_(timeline.seconds / static_cast<double>(number)) {
    for (auto& lane : busy_) lane.resize(number);
    each_slice(timeline,
               [&](const Slice& s, double start) { add(s, start, mark_of(plan.labels[s.label].phase).first); });
  }
  double width() const { return width_; }
  // Capital letters where the lane is busy for at least half of the time of a column, small ones where it is for less.
  std::string row(Lane lane) const {
    std::string out;
    for (const auto& column : busy_[static_cast<size_t>(lane)]) {
      double all = 0, most = 0;
      char mark = idle;
      for (const auto& [letter, seconds] : column) {
        all += seconds;
        if (seconds > most) most = seconds, mark = letter;
      }
      out += all >= width_ / 2 ? mark : all >= width_ / 20 ? static_cast<char>(std::tolower(mark)) : idle;
    }
    return out;
  }

 private:
  void add(const Slice& s, double start, char letter) {
    auto& lane = busy_[static_cast<size_t>(s.lane)];
    const double end = start + s.seconds;
    const auto last = static_cast<double>(lane.size() - 1);
    for (auto c = static_cast<size_t>(std::min(start / width_, last)); c < lane.size(); ++c) {
      const double from = std::max(start, static_cast<double>(c) * width_),
                   to = std::min(end, static_cast<double>(c + 1) * width_);
      if (to > from) lane[c][letter] += to - from;
      if (end <= static_cast<double>(c + 1) * width_) break;
    }
  }
  const double width_;
  std::array<std::vector<std::map<char, double>>, lane_count> busy_;
};

// Seconds of a step that a lane is busy, by phase and by op.
struct Work {
  double seconds = 0;
  std::map<Phase, double> phases;
  std::map<std::string, double> ops;
};

std::array<Work, lane_count> work_of(const Timeline& timeline, const Plan& plan) {
  std::array<Work, lane_count> out;
  for (const Stretch& stretch : timeline.stretches)
    for (const Slice& s : stretch.slices) {
      Work& work = out[static_cast<size_t>(s.lane)];
      const double seconds = s.seconds * stretch.repeat;
      work.seconds += seconds;
      work.phases[plan.labels[s.label].phase] += seconds;
      work.ops[plan.calls[s.call].op->id] += seconds;
    }
  return out;
}

std::string ops_text(const Work& work) {
  std::vector<std::pair<double, std::string>> ops;
  for (const auto& [id, seconds] : work.ops) ops.emplace_back(seconds, id);
  std::sort(ops.rbegin(), ops.rend());
  std::string out;
  for (size_t k = 0; k < std::min(ops.size(), named_ops); ++k)
    out += fmt::format("{}{} {}", k ? ", " : "", ops[k].second, time_text(ops[k].first));
  if (ops.size() > named_ops) {
    double rest = 0;
    for (size_t k = named_ops; k < ops.size(); ++k) rest += ops[k].first;
    out += fmt::format(", {} more {}", ops.size() - named_ops, time_text(rest));
  }
  return out;
}

// The segments at their starts: "|first   |rest x 7      |update".
std::string segments_row(const Timeline& timeline, double width, size_t columns) {
  std::string out(columns, ' ');
  for (const Stretch& s : timeline.stretches) {
    const auto at = std::min(static_cast<size_t>(std::lround(s.start / width)), columns - 1);
    const std::string text = "|" + s.name + (s.repeat > 1 ? fmt::format(" x {}", s.repeat) : "");
    out.replace(at, std::string::npos, text.substr(0, columns - at));
    out.resize(columns, ' ');
  }
  return out;
}

// The times at the start, at the quarters and at the end.
std::string scale_row(double seconds, size_t columns) {
  std::string out(columns, ' ');
  for (size_t k = 0; k < 4; ++k) {
    const std::string text = "|" + (k ? time_text(seconds * static_cast<double>(k) / 4) : std::string("0"));
    out.replace(k * columns / 4, text.size(), text);
  }
  return out + "|" + time_text(seconds);
}

std::string line_of(std::string line) {
  return line.erase(line.find_last_not_of(' ') + 1) + "\n";
}

Json slice_event(const std::string& name, size_t row, double start, double seconds) {
  return Json::ordered(
      {{"ph", "X"}, {"name", name}, {"pid", 0}, {"tid", row}, {"ts", 1e6 * start}, {"dur", 1e6 * seconds}});
}

Json named_row(const char* what, const std::string& name, size_t row) {
  return Json::ordered(
      {{"ph", "M"}, {"name", what}, {"pid", 0}, {"tid", row}, {"args", Json::ordered({{"name", name}})}});
}

}  // namespace

const char* to_string(Lane lane) {
  static const char* names[] = {"compute", "link", "network", "to device", "to host", "host", "reads", "writes"};
  return names[static_cast<size_t>(lane)];
}

Timeline timeline_of(const Plan& plan, const Machine& machine) {
  const Topology topology(plan.ranks, machine.ranks_per_node);
  Timeline out;
  for (const Segment& segment : plan.program("train").segments) {
    const Simulated played = simulate(plan, segment, machine);
    Stretch stretch{segment.name, out.seconds, played.seconds, segment.repeat, {}};
    stretch.slices.reserve(segment.actions.size());
    for (size_t a = 0; a < segment.actions.size(); ++a) {
      const Action& action = segment.actions[a];
      const Timed& at = played.actions[a];
      stretch.slices.push_back(
          {out.seconds + at.start, at.seconds, lane_of(plan, topology, action), action.call, action.label});
    }
    out.seconds += played.seconds * segment.repeat;
    out.stretches.push_back(std::move(stretch));
  }
  return out;
}

std::string timeline_text(const Timeline& timeline, const Plan& plan, size_t columns) {
  if (!(timeline.seconds > 0)) return "timeline: no action takes any time\n";
  const TimeColumns drawn(timeline, plan, columns);
  const std::array<Work, lane_count> work = work_of(timeline, plan);
  std::string out = fmt::format("timeline of a step: {} estimated, {} a column\n", time_text(timeline.seconds),
                                time_text(drawn.width()));
  out += line_of(fmt::format("  {:<11}{}", "", segments_row(timeline, drawn.width(), columns)));
  std::map<char, const char*> marks;
  for (size_t k = 0; k < lane_count; ++k) {
    if (!(work[k].seconds > 0)) continue;
    if (const std::string row = drawn.row(static_cast<Lane>(k)); row.find_first_not_of(idle) != std::string::npos)
      out += fmt::format("  {:<11}{}\n", to_string(static_cast<Lane>(k)), row);
    for (const auto& [phase, seconds] : work[k].phases) marks.insert(mark_of(phase));
  }
  out += fmt::format("  {:<11}{}\n  {:<11}", "", scale_row(timeline.seconds, columns), "");
  for (const auto& [letter, word] : marks) out += fmt::format("{} {}  ", letter, word);
  out += "small letters: busy for less than half of the column\n";
  for (size_t k = 0; k < lane_count; ++k)
    if (const Work& one = work[k]; one.seconds > 0)
      out += fmt::format("  {:<11}{} of the step ({:.0f} %): {}\n", to_string(static_cast<Lane>(k)),
                         time_text(one.seconds), 100 * one.seconds / timeline.seconds, ops_text(one));
  return out;
}

std::string timeline_trace(const Timeline& timeline, const Plan& plan, size_t most) {
  std::string out = R"({"displayTimeUnit":"ms","traceEvents":[)";  // the events one by one: there may be many
  const auto add = [&](const Json& one) { out += (out.ends_with('[') ? "" : ",") + one.dump(); };
  add(named_row("process_name", fmt::format("rank {}, estimated", plan.ranks.world.rank), 0));
  std::array<bool, lane_count> used{};
  size_t drawn = 0;
  for (const Stretch& stretch : timeline.stretches)
    for (uint32_t k = 0; k < stretch.repeat; ++k) {
      const std::string name =
          stretch.repeat > 1 ? fmt::format("{} {} of {}", stretch.name, k + 1, stretch.repeat) : stretch.name;
      add(slice_event(name, lane_count, stretch.start + k * stretch.seconds, stretch.seconds));
      if (k && drawn + stretch.slices.size() > most) continue;
      drawn += stretch.slices.size();
      for (const Slice& s : stretch.slices) {
        if (!(s.seconds > 0)) continue;
        used[static_cast<size_t>(s.lane)] = true;
        Json one = slice_event(plan.calls[s.call].op->id, static_cast<size_t>(s.lane), s.start + k * stretch.seconds,
                               s.seconds);
        one["args"] = Json::ordered({{"block", plan.labels[s.label].text()}});
        add(one);
      }
    }
  for (size_t row = 0; row < lane_count; ++row)
    if (used[row]) add(named_row("thread_name", to_string(static_cast<Lane>(row)), row));
  add(named_row("thread_name", "segments", lane_count));
  return out + "]}\n";
}

}  // namespace eng
