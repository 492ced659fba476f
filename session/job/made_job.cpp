// SPDX-License-Identifier: Apache-2.0
#include "session/job/made_job.hpp"

#include <algorithm>
#include <iterator>
#include <span>

#include "core/base/text.hpp"

namespace eng {
namespace {

constexpr uint32_t most_programs = 64, most_states = 16, most_values = 64;

Error broken(const Job& job, const std::string& what) {
  return Error(Exit::environment, job.asked.who() + " " + what);
}

std::vector<std::string> names_of_states(const Job& job) {
  eng_state_rule list[most_states] = {};
  uint32_t n = 0;
  Sink sink;
  sink.check(job.table.states(job.self.get(), list, most_states, &n, sink.get()), Exit::environment, job.asked.who());
  if (n > most_states) throw broken(job, fmt::format("has {} states, the limit is {}", n, most_states));
  std::vector<std::string> out;
  for (const eng_state_rule& rule : std::span(list, n)) {
    const std::string name = rule.name ? rule.name : "";
    if (name == "site" || name == "value")
      throw broken(job, fmt::format("gives a state the name {}, which the engine uses", name));
    out.push_back(name);
  }
  return out;
}

void ask_values(MadeJob& made) {
  Job& job = made.job;
  eng_job_value list[most_values] = {};
  uint32_t n = 0;
  Sink sink;
  sink.check(job.table.values(job.self.get(), list, most_values, &n, sink.get()), Exit::environment, job.asked.who());
  if (n > most_values) throw broken(job, fmt::format("has {} values, the limit is {}", n, most_values));
  for (const eng_job_value& value : std::span(list, n)) {
    const std::string name = value.name ? value.name : "";
    try {
      check_name("the name of a value", name);
    } catch (const std::exception& e) {
      throw broken(job, std::string("gives values: ") + e.what());
    }
    if (const std::string bad = wrong_with(value.shape); !bad.empty())
      throw broken(job, fmt::format("gives value {} a shape that {}", name, bad));
    if (std::any_of(job.values.begin(), job.values.end(), [&](const auto& o) { return o.name == name; }))
      throw broken(job, "gives two values the name " + name);
    if (value.flags & ~ENG_JOB_KEPT) throw broken(job, fmt::format("gives value {} flags that do not exist", name));
    job.values.push_back({name, value.shape});
    made.kept.push_back((value.flags & ENG_JOB_KEPT) != 0);
  }
}

}  // namespace

bool MadeJob::keeps(const Tensor& tensor) const {
  for (size_t k = 0; k < states.size(); ++k)
    if (tensor.role == states[k]) return job.info.kept >> k & 1U;
  for (size_t v = 0; v < kept.size(); ++v)
    if (tensor.role == "value" && tensor.name == job.value_name(v)) return kept[v];
  return false;
}

MadeJob make_job(const Config& config, Registry& registry, JobPart part) {
  const Section& section = config.section("job");
  if (!section.has("plugin"))
    throw Error(Exit::usage, "[job] names no plugin", "add  [job] plugin = \"curvature\", or give --job NAME");
  const std::string name = section.string("plugin");
  MadeJob out;
  Job& job = out.job;
  job.name = job.asked.name = name, job.asked.kind = "job";
  job.table = registry.table<eng_job>(ENG_JOB_KIND, name);
  const Options options(section);
  Sink sink;
  void* self = nullptr;
  sink.check(job.table.create(options.get(), &self, sink.get()), Exit::usage, "[job] " + name);
  job.self = job.asked.self = std::shared_ptr<void>(self, [destroy = job.table.destroy](void* p) { destroy(p); });
  if (part.count && !job.table.part)
    throw Error(Exit::usage, fmt::format("[job] {} cannot be done in groups of tensors", name), "remove job.groups");
  if (part.count) sink.check(job.table.part(self, part.index, part.count, sink.get()), Exit::usage, "[job] " + name);
  job.info.struct_size = sizeof job.info;
  sink.check(job.table.describe(self, &job.info, sink.get()), Exit::usage, "[job] " + name);
  if (job.info.programs > most_programs)
    throw broken(job, fmt::format("has {} programs, the limit is {}", job.info.programs, most_programs));
  job.asked.table.states = job.table.states;
  job.asked.table.update = job.table.emit;
  job.asked.table.granularity = 1;
  job.asked.groups.push_back(std::make_shared<Optimizer::Group>(section));
  out.states = names_of_states(job);
  ask_values(out);
  return out;
}

std::vector<TensorShare> kept_tensors(const Plan& plan, const MadeJob& made) {
  auto out = saved_tensors(plan);
  std::erase_if(out, [&](const TensorShare& t) { return !made.keeps(plan.tensors[t.id]); });
  return out;
}

void count_job(Setup& setup, const MadeJob& made, bool asynchronous) {
  const std::vector<TensorShare> kept = kept_tensors(setup.plan, made);
  setup.stored = kept.size();
  setup.kept = 0;
  for (const TensorShare& t : kept) setup.kept += bytes(setup.plan.tensors[t.id].desc);
  if (asynchronous) setup.snapshot = snapshot_bytes(kept);
}

void take_batch(Config& config, const MadeJob& made, uint32_t ranks) {
  Section& train = config.section("train");
  const eng_job_info& info = made.job.info;
  const std::string by = "[job] " + made.job.name;
  if (info.micro_batch) train.set("micro_batch", int64_t{info.micro_batch}, by);
  const int64_t turn = train.integer("micro_batch") * ranks, windows = info.windows ? info.windows : turn;
  if (windows % turn)
    throw Error(Exit::usage,
                fmt::format("{}: a gradient of {} windows cannot be divided into micro-batches of {} on {} rank{}", by,
                            windows, train.integer("micro_batch"), ranks, ranks == 1 ? "" : "s"),
                fmt::format("the windows of a gradient must be a multiple of {}", turn));
  train.set("accumulate", windows / turn, by);
}

}  // namespace eng
