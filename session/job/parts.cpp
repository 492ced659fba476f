// SPDX-License-Identifier: Apache-2.0
#include "session/job/parts.hpp"

#include <algorithm>

#include "engine/packed.h"
#include "session/planning/estimate.hpp"
#include "session/planning/fits.hpp"

namespace eng {
namespace {

struct Measured {
  std::string name;
  uint64_t elements;
};

// The tensors that a job measures, in the order of the model.
std::vector<Measured> measured(const Model& model) {
  std::vector<Measured> out;
  for (const Parameter& p : model.params)
    if (!p.frozen && !(p.flags & of_reference)) out.push_back({p.name, static_cast<uint64_t>(count(p.desc))});
  return out;
}

// Runs of tensors with at most `most` elements, or one tensor.
std::vector<std::vector<std::string>> runs(const std::vector<Measured>& tensors, uint64_t most) {
  std::vector<std::vector<std::string>> out;
  uint64_t sum = 0;
  for (const Measured& t : tensors) {
    if (out.empty() || sum + t.elements > most) out.emplace_back(), sum = 0;
    out.back().push_back(t.name), sum += t.elements;
  }
  return out;
}

// n runs, the largest as small as can be.
std::vector<std::vector<std::string>> divided(const std::vector<Measured>& tensors, uint64_t n) {
  uint64_t low = 1, high = 0;
  for (const Measured& t : tensors) low = std::max(low, t.elements), high += t.elements;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (runs(tensors, middle).size() <= n)
      high = middle;
    else
      low = middle + 1;
  }
  auto out = runs(tensors, low);
  while (out.size() < n) {  // the longest in two
    const auto longest =
        std::max_element(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
    const auto half = static_cast<std::ptrdiff_t>(longest->size() / 2);
    std::vector<std::string> rest(longest->begin() + half, longest->end());
    longest->resize(static_cast<size_t>(half));
    out.insert(longest + 1, std::move(rest));
  }
  return out;
}

class Divider {
 public:
  Divider(const Config& config, Registry& registry, const World& world, bool refuse)
      : config_(config),
        registry_(registry),
        world_(world),
        refuse_(refuse),
        name_(config.section("job").string("plugin")) {}

  JobParts divide() {
    const int64_t asked = config_.section("job").integer("groups");
    if (asked == 1) return {};
    if (asked == 0 && fits(planned({}, {}))) return {};
    const Setup first = planned({0, 3}, {});
    const eng_unit resting{sizeof(eng_unit), 0, 0, ENG_PARAM_FROZEN, chunk};
    if (eng_packed_bytes(first.precision.dtype(ENG_ROLE_WEIGHT, &resting)))
      throw Error(Exit::usage, "job.groups: precision.frozen would round the tensors of the other groups",
                  "remove one of the two keys");
    const std::vector<Measured> tensors = measured(first.model);
    const auto most = static_cast<int64_t>(tensors.size());
    if (asked > most)
      throw Error(Exit::usage, fmt::format("job.groups = {}: the model has {} tensors to measure", asked, most),
                  fmt::format("give {} or less", most));
    check(first, "its first part");
    check(planned({2, 3}, {}), "its last part");
    for (int64_t n = asked ? asked : 2;; n = std::min(n + 1, most)) {
      JobParts out = in(tensors, divided(tensors, static_cast<uint64_t>(n)), asked || n == most);
      if (out.count()) return out;
    }
  }

 private:
  Setup planned(JobPart part, const std::vector<std::string>& resting) {
    const MadeJob made = make_job(config_, registry_, part);
    Setup out = make_plan_only(config_, registry_, world_, {.job = &made.job, .resting = resting});
    count_job(out, made, config_.section("checkpoint").boolean("asynchronous"));
    count_part(out, part);
    return out;
  }
  void check(const Setup& setup, const std::string& part) const {
    if (refuse_) check_job_fits(setup, name_ + ", " + part + ",");
  }
  PlannedPart about(const std::string& name, const Setup& setup, bool gradients) const {
    PlannedPart out{name, 0, peak_of(setup.plan, beside(setup)), 0, 0};
    for (const Measured& t : measured(setup.model)) out.parameters += t.elements;
    const Machine machine = machine_of(config_.section("comm"), setup.target, setup.storage);
    if (gradients && timed(setup.plan, machine)) out.seconds = step_times(setup.plan, machine).step;
    return out;
  }
  // Empty if a group does not fit; `must`: then it throws.
  JobParts in(const std::vector<Measured>& tensors, std::vector<std::vector<std::string>> groups, bool must) {
    JobParts out;
    out.groups = std::move(groups);
    const auto n = static_cast<uint32_t>(out.groups.size());
    out.planned.resize(n + 2);
    std::vector<uint32_t> order(n);  // the largest first: it fits least
    std::vector<uint64_t> sizes(n);
    for (uint32_t k = 0; k < n; ++k) {
      order[k] = k;
      for (const Measured& t : tensors)
        if (std::find(out.groups[k].begin(), out.groups[k].end(), t.name) != out.groups[k].end())
          sizes[k] += t.elements;
    }
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return sizes[a] > sizes[b]; });
    for (const uint32_t k : order) {
      const std::string name = fmt::format("group {} of {}", k + 1, n);
      const Setup setup = planned({k + 1, n + 2}, out.resting(k + 1));
      if (!must && !fits(setup)) return {};
      check(setup, name);
      out.planned[k + 1] = about(name, setup, true);
    }
    out.planned.front() = about("survey", planned({0, n + 2}, {}), false);
    out.planned.back() = about("join", planned({n + 1, n + 2}, {}), false);
    return out;
  }

  const Config& config_;
  Registry& registry_;
  const World& world_;
  const bool refuse_;
  const std::string name_;
};

}  // namespace

std::vector<std::string> JobParts::resting(uint32_t part) const {
  std::vector<std::string> out;
  if (part == 0 || part > groups.size()) return out;
  for (uint32_t k = 0; k < groups.size(); ++k)
    if (k + 1 != part) out.insert(out.end(), groups[k].begin(), groups[k].end());
  return out;
}

uint32_t JobParts::largest() const {
  const auto most = std::max_element(planned.begin(), planned.end(), [](const PlannedPart& a, const PlannedPart& b) {
    return std::pair(a.peak.rank, a.peak.host) < std::pair(b.peak.rank, b.peak.host);
  });
  return static_cast<uint32_t>(most - planned.begin());
}

JobParts divide_job(const Config& config, Registry& registry, const World& world, bool refuse) {
  return Divider(config, registry, world, refuse).divide();
}

void count_part(Setup& setup, JobPart part) {
  constexpr uint64_t kept = 1'500'000;  // measured: alike for 2 and for 8 groups
  if (part.count) setup.job += kept;
}

std::string parts_text(const JobParts& parts) {
  std::string out = fmt::format("parts: {} groups of tensors, one after the other; the plan below is that of {}\n",
                                parts.groups.size(), parts.planned[parts.largest()].name);
  for (const PlannedPart& part : parts.planned)
    out += fmt::format("  {:<15} {:>16} parameters  {:>12} of the device  {:>12} of the host{}\n", part.name,
                       part.parameters, format_bytes(static_cast<double>(part.peak.device)),
                       format_bytes(static_cast<double>(part.peak.host)),
                       part.seconds > 0 ? fmt::format("  {:.3g} s a gradient", part.seconds) : "");
  return out;
}

Json part_json(const PlannedPart& part) {
  return Json::ordered({{"name", part.name},
                        {"parameters", part.parameters},
                        {"device_peak_bytes", part.peak.device},
                        {"host_peak_bytes", part.peak.host},
                        {"gradient_seconds", part.seconds > 0 ? Json(part.seconds) : Json()}});
}

}  // namespace eng
