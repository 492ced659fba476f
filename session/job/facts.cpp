// SPDX-License-Identifier: Apache-2.0
#include "session/job/facts.hpp"

#include "session/json.hpp"
#include "session/planning/bookkeeping.hpp"
#include "session/planning/fits.hpp"
#include "session/run/run_dir.hpp"
#include "session/version.hpp"

namespace eng {
namespace {

Json json_of(const Value& value) {
  return std::visit(
      [](const auto& v) -> Json {
        using Held = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<Held, std::monostate>) {
          return nullptr;
        } else if constexpr (std::is_same_v<Held, std::vector<double>>) {
          Json out = Json::array();
          for (double one : v) out.push_back(one);
          return out;
        } else if constexpr (std::is_same_v<Held, Tables>) {
          Json out = Json::array();
          for (const Table& table : v) {
            Json one = Json::ordered({});
            for (const auto& [key, inner] : table.values) one[key] = json_of(inner);
            out.push_back(std::move(one));
          }
          return out;
        } else {
          return v;
        }
      },
      value);
}

}  // namespace

uint64_t device_bytes(const Setup& setup) {
  uint64_t out = setup.target.info.device_overhead_bytes;
  for (const Arena& arena : setup.plan.arenas)
    if (arena.kind == "device") out += arena.total();
  return out;
}

std::string facts_json(const FactsOf& facts) {
  const AnalysisStart& start = facts.start;
  const Config& config = start.config;
  const Section& train = config.section("train");
  const eng_data_info& data = start.data.info();
  const Plan& plan = start.setup.plan;
  Peak planned = peak_of(plan, beside(start.setup));
  uint64_t in_device = device_bytes(start.setup);
  Json parts = Json::array();
  for (const PlannedPart& part : facts.parts ? facts.parts->planned : std::vector<PlannedPart>()) {
    planned.device = std::max(planned.device, part.peak.device), planned.host = std::max(planned.host, part.peak.host);
    in_device = std::max(in_device, part.measured_device);
    parts.push_back(part_json(part));
  }
  const uint64_t resident = peak_resident_bytes();
  Json options = Json::ordered({});
  for (const auto& [key, setting] : config.section("job").settings()) options[key] = json_of(setting.value);
  int64_t trained = 0;
  for (const Parameter& p : start.setup.model.params) trained += p.frozen ? 0 : count(p.desc);
  const Json all = Json::ordered(
      {{"version", version},
       {"commit", commit},
       {"began", facts.began},
       {"now", utc_now(true)},
       {"attempt", facts.attempt},
       {"config_hash", facts.config_hash},
       {"job", Json::ordered({{"plugin", start.made.job.name}, {"options", std::move(options)}})},
       {"model", Json::ordered({{"plugin", start.setup.model.plugin},
                                {"parameters", plan.parameters},
                                {"trained_parameters", trained},
                                {"layers", start.setup.model.info.layers},
                                {"vocabulary", start.setup.model.info.vocabulary},
                                {"hash", facts.model_hash},
                                {"from", facts.weights.empty() ? Json() : Json(facts.weights)}})},
       {"data", Json::ordered({{"plugin", data_plugins(config)},
                               {"hash", data.content_hash},
                               {"training_windows", data.train_samples},
                               {"held_out_windows", data.validation_samples},
                               {"tokens_per_window", start.data.length()}})},
       {"micro_batch", train.integer("micro_batch")},
       {"windows_per_gradient", train.integer("micro_batch") * train.integer("accumulate") * facts.ranks},
       {"seed", train.integer("seed")},
       {"device", Json::ordered({{"plugin", start.setup.target.device}, {"name", start.setup.target.info.name}})},
       {"precision", start.setup.precision.name},
       {"ranks", facts.ranks},
       {"zero", start.setup.sharding ? Json(start.setup.sharding->name) : Json()},
       {"parts", std::move(parts)},
       {"memory",
        Json::ordered(
            {{"planned", Json::ordered({{"device_peak_bytes", planned.device}, {"host_peak_bytes", planned.host}})},
             {"measured", Json::ordered({{"device_peak_bytes", in_device}, {"host_peak_bytes", resident}})}})}});
  return all.dump(2, true);
}

}  // namespace eng
