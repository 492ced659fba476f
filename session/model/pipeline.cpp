// SPDX-License-Identifier: Apache-2.0
#include "session/model/pipeline.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "session/model/caller_loss.hpp"

namespace eng {
namespace {

// More make plans of minutes: every micro-batch has actions of its own.
constexpr int64_t most_micro_batches = 256;

// The FLOPs of a micro-batch, forward and backward.
double flops_of(const Template& t) {
  double sum = 0;
  for (size_t n = 0; n < t.graph.nodes.size(); ++n) {
    const Node& node = t.graph.nodes[n];
    if (!node.op->flops || (n < t.forward && t.skip[n])) continue;
    std::vector<eng_desc> in, out;
    for (Id i : node.in) in.push_back(i ? t.graph.value(i).desc : eng_desc{});
    for (Id o : node.out) out.push_back(o ? t.graph.value(o).desc : eng_desc{});
    sum += node.op->flops(in, out, node.attrs);
  }
  return sum;
}

std::vector<double> flops_of(const Model& model) {
  std::map<uint32_t, double> of;
  for (const auto& [number, t] : model.templates) of[number] = flops_of(t);
  std::vector<double> out;
  for (const Block& block : model.blocks) out.push_back(of.at(block.tmpl));
  return out;
}

// Cuts a row of costs into `parts` parts, none of them empty, with the least sum of `price` of a part. The first of
// each part.
template <class Price>
std::vector<uint32_t> cheapest(const std::vector<double>& costs, uint32_t parts, Price price) {
  const auto n = static_cast<uint32_t>(costs.size());
  std::vector<double> before(n + 1, 0);
  std::partial_sum(costs.begin(), costs.end(), before.begin() + 1);
  // By the number of parts and of the costs in them: the least sum, and where the last part begins.
  std::vector<std::vector<double>> least(parts + 1, std::vector<double>(n + 1, HUGE_VAL));
  std::vector<std::vector<uint32_t>> first(parts + 1, std::vector<uint32_t>(n + 1, 0));
  least[0][0] = 0;
  for (uint32_t k = 1; k <= parts; ++k)
    for (uint32_t end = k; end <= n; ++end)
      for (uint32_t begin = k - 1; begin < end; ++begin) {
        const double sum = price(least[k - 1][begin], before[end] - before[begin]);
        if (sum < least[k][end]) least[k][end] = sum, first[k][end] = begin;
      }
  std::vector<uint32_t> out(parts);
  for (uint32_t k = parts, end = n; k > 0; end = first[k--][end]) out[k - 1] = first[k][end];
  return out;
}

double largest(const std::vector<double>& costs, const std::vector<uint32_t>& firsts) {
  double most = 0;
  for (size_t s = 0; s < firsts.size(); ++s) {
    const auto end = s + 1 < firsts.size() ? costs.begin() + firsts[s + 1] : costs.end();
    most = std::max(most, std::accumulate(costs.begin() + firsts[s], end, 0.0));
  }
  return most;
}

std::vector<uint32_t> named(const Model& model, uint32_t stages, const std::vector<std::string>& given) {
  if (given.size() + 1 != stages)
    throw Error(Exit::usage,
                fmt::format("parallel.cuts has {} block{}, and {} stages begin with {}", given.size(),
                            given.size() == 1 ? "" : "s", stages, stages - 1),
                "name the first block of every stage but the first");
  std::vector<uint32_t> out;
  for (const std::string& name : given) {
    const auto at =
        std::find_if(model.blocks.begin(), model.blocks.end(), [&](const Block& b) { return b.name == name; });
    const auto block = static_cast<uint32_t>(at - model.blocks.begin());
    if (at == model.blocks.end() || block <= (out.empty() ? 0 : out.back()))
      throw Error(Exit::usage,
                  fmt::format("parallel.cuts: `{}` is no block that comes after {}", name,
                              model.blocks[out.empty() ? 0 : out.back()].name),
                  fmt::format("blocks are {} to {}: engine plan --activations lists them", model.blocks[0].name,
                              model.blocks.back().name));
    out.push_back(block);
  }
  return out;
}

}  // namespace

void check_pipeline(const Config& config, bool reads_more) {
  const int64_t stages = config.section("parallel").integer("pipeline");
  const auto refuse = [&](const std::string& what, const char* help = "remove one of the two") {
    throw Error(Exit::usage, fmt::format("parallel.pipeline = {} does not work with {}", stages, what), help);
  };
  if (reads_more) refuse("jobs, or where logits, gradients or activations are read");
  if (!config.section("observers").as<Tables>("list").empty()) refuse("[[observers]] yet");
  if (config.section("reference").has("from")) refuse("[reference] yet");
  if (caller_loss(config)) refuse("loss.plugin = \"caller\"");
  const Section& offload = config.section("offload");
  for (const char* key : {"activations", "gradients", "parameters"})
    if (offload.has(key) && offload.string(key) != "none")
      refuse(fmt::format("offload.{} = \"{}\" yet", key, offload.string(key)));
  for (const char* key : {"update_late", "update_early"})
    if (offload.boolean(key)) refuse(fmt::format("offload.{} yet", key));
  if (const int64_t n = config.section("train").integer("accumulate"); n > most_micro_batches)
    refuse(fmt::format("{} micro-batches in a step: every one is planned by itself, and {} are the most", n,
                       most_micro_batches),
           "raise train.micro_batch, or lower train.accumulate");
}

std::vector<uint32_t> cut_points(const Model& model, uint32_t stages, const std::vector<std::string>& given) {
  if (model.blocks.size() < stages)
    throw Error(
        Exit::usage,
        fmt::format("parallel.pipeline = {}, but model {} has {} blocks", stages, model.plugin, model.blocks.size()),
        fmt::format("set parallel.pipeline = {} or less", model.blocks.size()));
  if (!given.empty()) return named(model, stages, given);
  const std::vector<double> costs = flops_of(model);
  const double most =
      largest(costs, cheapest(costs, stages, [](double before, double part) { return std::max(before, part); }));
  std::vector<uint32_t> out = cheapest(costs, stages, [&](double before, double part) {
    return part <= most * (1 + 1e-9) ? before + part * part : HUGE_VAL;
  });
  out.erase(out.begin());
  return out;
}

void cut_stages(Model& model, const Ranks& ranks, const std::vector<std::string>& given) {
  if (ranks.pipeline == 1) return;
  const std::vector<uint32_t> firsts = cut_points(model, ranks.pipeline, given);
  const auto stage_of = [&](uint32_t b) { return std::upper_bound(firsts.begin(), firsts.end(), b) - firsts.begin(); };
  std::map<uint32_t, uint32_t> user;  // parameter -> the first block with it
  for (uint32_t b = 0; b < model.blocks.size(); ++b)
    for (const uint32_t p : model.blocks[b].params) {
      const uint32_t before = user.try_emplace(p, b).first->second;
      const auto from = stage_of(before), to = stage_of(b);
      if (from != to && (from != 0 || to + 1 != ranks.pipeline))
        throw Error(
            Exit::usage,
            fmt::format("parallel.pipeline = {}: {} and {} share {}, and are in stages {} and {}", ranks.pipeline,
                        model.blocks[before].name, model.blocks[b].name, model.params[p].name, from, to),
            "only the first and the last stage can share parameters: set parallel.cuts to other blocks");
    }
  for (const uint32_t first : firsts) model.blocks[first - 1].recomputed = false;
  const uint32_t stage = ranks.stage();
  model.first = stage ? firsts[stage - 1] : 0;
  if (stage < firsts.size()) model.behind = firsts[stage];
}

std::vector<StageTurn> turns_of(uint32_t stage, uint32_t stages, uint32_t micro_batches) {
  const bool first = stage == 0, last = stage + 1 == stages;
  const uint32_t ahead = std::min(micro_batches, stages - 1 - stage);  // forwards before the first backward
  std::vector<StageTurn> out;
  const auto forward = [&](uint32_t k) {
    if (!first) out.push_back({StageTurn::receive, k});
    out.push_back({StageTurn::forward, k});
  };
  const auto backward = [&](uint32_t k) {
    out.push_back({StageTurn::backward, k});
    if (!first) out.push_back({StageTurn::send_back, k});
  };
  for (uint32_t k = 0; k < ahead; ++k) {
    forward(k);
    out.push_back({StageTurn::send, k});
  }
  for (uint32_t k = 0; k < micro_batches; ++k) {
    const bool more = k + ahead < micro_batches;
    if (more) forward(k + ahead);
    if (!last) out.push_back({StageTurn::receive_back, k});
    if (!last && more) out.push_back({StageTurn::send, k + ahead});
    backward(k);
  }
  return out;
}

double pipeline_seconds(const std::vector<StageTime>& times, uint32_t micro_batches, double exchange) {
  const auto stages = static_cast<uint32_t>(times.size());
  std::vector<std::vector<StageTurn>> turns;
  for (uint32_t s = 0; s < stages; ++s) turns.push_back(turns_of(s, stages, micro_batches));
  std::vector<size_t> at(stages, 0);
  std::vector<double> clock(stages, 0);
  const auto next = [&](uint32_t s) -> const StageTurn* {
    return at[s] < turns[s].size() ? &turns[s][at[s]] : nullptr;
  };
  const auto is = [&](uint32_t s, StageTurn::What what, uint32_t micro) {
    return next(s) && *next(s) == StageTurn{what, micro};
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t s = 0; s < stages; ++s)
      while (const StageTurn* turn = next(s)) {
        if (turn->what == StageTurn::forward || turn->what == StageTurn::backward) {
          clock[s] += turn->what == StageTurn::forward ? times[s].forward : times[s].backward;
          ++at[s], moved = true;
          continue;
        }
        // The lower of two stages meets the other one; the other one waits for that.
        const bool meets = (turn->what == StageTurn::send && is(s + 1, StageTurn::receive, turn->micro)) ||
                           (turn->what == StageTurn::receive_back && is(s + 1, StageTurn::send_back, turn->micro));
        if (!meets) break;
        clock[s] = clock[s + 1] = std::max(clock[s], clock[s + 1]) + exchange;
        ++at[s], ++at[s + 1], moved = true;
      }
  }
  for (uint32_t s = 0; s < stages; ++s)
    if (next(s)) throw Error(Exit::bug, fmt::format("stage {} of {} waits for ever", s, stages));
  return *std::max_element(clock.begin(), clock.end());
}

std::string pipeline_line(const Model& model, const Ranks& ranks, uint32_t micro_batches) {
  if (ranks.pipeline == 1) return "";
  const std::vector<double> flops = flops_of(model);
  const double all = std::accumulate(flops.begin(), flops.end(), 0.0);
  const double mine = std::accumulate(flops.begin() + model.first, flops.begin() + model.end(), 0.0);
  const uint32_t stages = ranks.pipeline;
  return fmt::format(
      "stage {} of {}: {} to {}, {:.1f} % of the FLOPs; stages of equal times wait {:.1f} % of a step of {} "
      "micro-batches",
      ranks.stage() + 1, stages, model.blocks[model.first].name, model.blocks[model.end() - 1].name,
      all > 0 ? 100 * mine / all : 0, 100.0 * (stages - 1) / (micro_batches + stages - 1), micro_batches);
}

}  // namespace eng
