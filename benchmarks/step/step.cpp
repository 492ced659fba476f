// SPDX-License-Identifier: Apache-2.0
// Times whole training steps against the same step's matrix products alone, interleaved in one run, and
// prints one JSON object. engine-bench-step CONFIG [rounds] [plugin folders and KEY=VALUE ...]
//
// With "serve" in the place of rounds it prints what it holds as one JSON line. Then it answers each line of its input:
// "step" or "products" runs that once and prints the seconds, "waited" prints for how long of the last step the
// computation waited for other queues, "trace" runs a step and prints it and its actions. So a driver can interleave
// several processes.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>

#include "core/base/error.hpp"
#include "core/execute/executor.hpp"
#include "core/memory/layout.hpp"
#include "core/plan/emitter.hpp"
#include "engine/ops.h"
#include "session/config/schemas.hpp"
#include "session/json.hpp"
#include "session/model/recompute.hpp"
#include "session/planning/setup.hpp"
#include "session/plugins/search.hpp"
#include "session/report/report.hpp"
#include "session/train/trace_events.hpp"

namespace {

using namespace eng;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool is(const Call& call, const char* op) {
  return std::strcmp(call.op->id, op) == 0;
}

// A plan of one program: every matrix product of the train program, once per time it runs there, with the
// three products of each chunk of the fused loss made explicit, its logits in the format of the weights.
struct Products {
  Plan plan;
  double flops = 0;
};

Products products(const Setup& setup) {
  Products out;
  out.plan.arenas.push_back({"cpu", "device", 0, 0, 0});
  out.plan.labels.push_back({Phase::step, "products"});
  const Kernels& kernels = *setup.kernels;
  Emitter emit(out.plan, [&](const Call& call) { return kernels.workspace(call); });
  emit.begin_program("products");
  emit.begin_segment("products", 1);
  auto tensor = [&](const eng_desc& d) { return d.dtype ? emit.persistent("t", Line::activations, d, true) : View{}; };
  // One set of operands per distinct call: the products of 8 equal layers stream over the same few megabytes,
  // as they would over their own.
  std::map<uint32_t, std::pair<std::vector<View>, std::vector<View>>> operands;
  auto add = [&](uint32_t call, const Op& op, const std::vector<eng_desc>& in, const std::vector<eng_desc>& result,
                 const Attrs& attrs) {
    auto [it, fresh] = operands.try_emplace(call);
    if (fresh) {
      for (const auto& d : in) it->second.first.push_back(tensor(d));
      for (size_t k = 0; k < result.size(); ++k) {
        bool in_place = in.size() > 2 && in[2].dtype && is(Call{&op, {}, {}, {}, 0, 0}, ENG_OP_MATMUL);
        it->second.second.push_back(in_place ? reshape(it->second.first[2], result[k]) : tensor(result[k]));
      }
    }
    emit.action(op, it->second.first, it->second.second, attrs);
    out.flops += op.flops(in, result, attrs);
  };
  uint32_t extra = 1u << 20;
  for (const Segment& segment : setup.plan.program("train").segments)
    for (uint32_t r = 0; r < segment.repeat; ++r)
      for (const Action& action : segment.actions) {
        const Call& call = setup.plan.calls[action.call];
        if (is(call, ENG_OP_LINEAR) || is(call, ENG_OP_LINEAR_RELU) || is(call, ENG_OP_MATMUL) ||
            is(call, ENG_OP_MATMUL_RELU_GRAD))
          add(action.call, *call.op, call.in, call.out, call.attrs);
        if (!is(call, ENG_OP_CROSS_ENTROPY_GRAD)) continue;
        int64_t tokens = call.in[0].dims[0] * call.in[0].dims[1], h = call.in[0].dims[2], v = call.in[1].dims[0];
        // The kernel's scratch is the logits of one chunk and little else.
        int64_t chunk_tokens = std::clamp<int64_t>(static_cast<int64_t>(call.workspace) / (v * 4), 1, tokens);
        for (int64_t first = 0; first < tokens; first += chunk_tokens) {
          int64_t n = std::min(chunk_tokens, tokens - first);
          const auto type = call.in[0].dtype;
          eng_desc x = make_desc(type, {n, h}), w = make_desc(type, {v, h}), logits = make_desc(type, {n, v});
          eng_desc dw = make_desc(call.out.size() > 2 ? call.out[2].dtype : type, {v, h});
          add(extra + 0, op(ENG_OP_LINEAR), {x, w, {}}, {logits}, {});
          add(extra + 1, op(ENG_OP_MATMUL), {logits, w, {}}, {x}, {{{"ta", 0, 0}, {"tb", 0, 0}}});
          if (first == 0)
            add(extra + 2, op(ENG_OP_MATMUL), {logits, x, {}}, {dw}, {{{"ta", 1, 0}, {"tb", 0, 0}}});
          else
            add(extra + 3, op(ENG_OP_MATMUL), {logits, x, dw}, {dw}, {{{"ta", 1, 0}, {"tb", 0, 0}}});
        }
      }
  place_buffers(out.plan);
  return out;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// Bytes outside of the device, by tier.
Json tier_bytes(const Plan& plan) {
  Json out = Json::object();
  for (uint32_t a = plan.first_tier; a < plan.arenas.size(); ++a) out[plan.arenas[a].device] = plan.arenas[a].total();
  return out;
}

// A step as its seconds, and its actions as [queue, reached, begin, end, bytes]: seconds since the first was reached,
// and the bytes that it writes.
Json traced(const Plan& plan, const Trace& trace, double seconds) {
  const std::vector<Trace::Event> events = trace.events();
  auto start = Trace::Clock::time_point::max();
  for (const Trace::Event& e : events) start = std::min(start, e.reached);
  const auto at = [&](Trace::Clock::time_point t) { return std::chrono::duration<double>(t - start).count(); };
  Json actions = Json::array();
  for (const Trace::Event& e : events) {
    uint64_t written = 0;
    for (const eng_desc& desc : plan.calls[e.call].out) written += bytes(desc);
    actions.push_back(Json::array({to_string(e.queue), at(e.reached), at(e.begin), at(e.end), written}));
  }
  return Json::ordered({{"seconds", seconds}, {"actions", std::move(actions)}});
}

int measure(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "engine-bench-step CONFIG [rounds|serve] [plugin folders and KEY=VALUE ...]\n");
    return 2;
  }
  const bool serves = argc > 2 && std::strcmp(argv[2], "serve") == 0;
  int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  PluginSearch search;
  std::vector<std::string> overrides;
  for (int k = 3; k < argc; ++k) {
    if (std::strchr(argv[k], '='))
      overrides.emplace_back(argv[k]);
    else
      search.extra.push_back(argv[k]);
  }
  auto registry = find_plugins(search);
  Config config = Config::load(argv[1], overrides, schemas_of(*registry));
  Setup setup = make_setup(config, *registry);
  const std::string name = setup.target.info.name;
  if (name.starts_with("software ") || name.starts_with("emulated "))
    throw Error(Exit::usage, fmt::format("{} imitates a device: its times say nothing of one", name));
  Device device(*registry, setup.kernels->device(), config.section("device"));
  Host host = make_host(setup.offload, config.section("offload"), *registry, setup.host.get(), 0);
  Executor step(setup.plan, device, *setup.kernels, nullptr, true, &host);
  step.run("init");
  int64_t tokens = count(setup.plan.field("tokens").desc);
  std::mt19937 random(1);
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  for (auto& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(setup.model.info.vocabulary));
  step.upload(setup.plan.field("tokens"), ids.data());
  step.upload(setup.plan.field("labels"), ids.data());
  float inputs[8] = {1.0f / static_cast<float>(tokens)};
  step.upload(setup.plan.inputs, inputs);
  std::vector<float> table(static_cast<size_t>(count(setup.plan.table.desc)), 1e-4f);
  step.upload(setup.plan.table, table.data());
  auto train = [&] {
    const double start = now();
    step.run("train");
    const float* scalars = step.host<float>(setup.plan.results);
    if (setup.plan.assumed.buffer) {
      std::array<float, ENG_S_COUNT> assumed;
      step.download(assumed.data(), setup.plan.assumed);
      if (assumed_wrongly(assumed.data(), scalars)) step.run(update_again);
    }
    const double seconds = now() - start;
    if (scalars[ENG_S_OK] == 0.0f)
      throw Error(Exit::numerics, "the update of a step was skipped: its time says nothing");
    return seconds;
  };
  train();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  Json out = Json::ordered({{"parameters", setup.plan.parameters},
                            {"tokens", tokens},
                            {"precision", setup.precision.name},
                            {"peak_rss_bytes", static_cast<int64_t>(usage.ru_maxrss) * 1024},
                            {"arena_bytes", setup.plan.arenas[0].total()},
                            {"tier_bytes", tier_bytes(setup.plan)},
                            {"kept_activation_bytes", kept(setup.model).bytes}});

  Products alone = products(setup);
  Executor gemm(alone.plan, device, *setup.kernels);
  auto multiply = [&] {
    const double start = now();
    gemm.run("products");
    return now() - start;
  };
  multiply();
  if (serves) {
    out["gemm_flops"] = alone.flops;
    fmt::print("{}\n", out.dump()), std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line); std::fflush(stdout)) {
      if (line == "trace") {
        Trace trace(1, 1, executed_actions(setup.plan.program("train")));
        step.record(trace.of(1));
        const double seconds = train();
        step.record(nullptr);
        fmt::print("{}\n", traced(setup.plan, trace, seconds).dump());
      } else {
        fmt::print("{:.6f}\n", line == "products" ? multiply()
                               : line == "waited" ? step.waited(true) + step.waited(false)
                                                  : train());
      }
    }
    return 0;
  }
  std::vector<double> steps, gemms, ratios;
  for (int r = 0; r < rounds; ++r) {
    gemms.push_back(multiply()), steps.push_back(train());
    ratios.push_back(gemms.back() / steps.back());
  }
  out["rounds"] = rounds;
  out["step_seconds"] = median(steps);
  out["gemm_seconds"] = median(gemms);
  out["gemm_gflops"] = alone.flops / median(gemms) / 1e9;
  out["step_to_gemm_rate"] = median(ratios);
  out["tokens_per_second"] = static_cast<double>(tokens) / median(steps);
  fmt::print("{}\n", out.dump());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return measure(argc, argv);
  } catch (const eng::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return static_cast<int>(e.exit());
  }
}
