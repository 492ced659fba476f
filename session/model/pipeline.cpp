// SPDX-License-Identifier: Apache-2.0
#include "session/model/pipeline.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "session/model/caller_loss.hpp"

namespace eng {
namespace {

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
  const auto own = static_cast<uint32_t>(model.reference_blocks);
  if (given.size() + 1 != stages)
    throw Error(Exit::usage,
                fmt::format("parallel.cuts has {} block{}, and {} stages begin with {}", given.size(),
                            given.size() == 1 ? "" : "s", stages, stages - 1),
                "name the first block of every stage but the first; parallel.virtual_stages = V are V stages of each "
                "rank");
  std::vector<uint32_t> out;
  for (const std::string& name : given) {
    const auto at =
        std::find_if(model.blocks.begin(), model.blocks.end(), [&](const Block& b) { return b.name == name; });
    const auto block = static_cast<uint32_t>(at - model.blocks.begin());
    if (at == model.blocks.end() || block <= (out.empty() ? own : out.back()))
      throw Error(Exit::usage,
                  fmt::format("parallel.cuts: `{}` is no block that comes after {}", name,
                              model.blocks[out.empty() ? own : out.back()].name),
                  fmt::format("blocks are {} to {}: engine plan --activations lists them", model.blocks[own].name,
                              model.blocks.back().name));
    out.push_back(block);
  }
  return out;
}

}  // namespace

void check_pipeline(const Config& config, bool reads_more) {
  const Section& parallel = config.section("parallel");
  const int64_t stages = parallel.integer("pipeline"), parts = parallel.integer("virtual_stages");
  if (stages == 1 && parts > 1)
    throw Error(Exit::usage, fmt::format("parallel.virtual_stages = {} needs stages of ranks", parts),
                "set parallel.pipeline to 2 or more, or remove parallel.virtual_stages");
  if (stages == 1) return;
  const auto refuse = [&](const std::string& what, const char* help = "remove one of the two") {
    throw Error(Exit::usage, fmt::format("parallel.pipeline = {} does not work with {}", stages, what), help);
  };
  if (reads_more) refuse("jobs, or where logits, gradients or activations are read");
  if (caller_loss(config)) refuse("loss.plugin = \"caller\"");
  if (const int64_t n = config.section("train").integer("accumulate"); n > most_micro_batches)
    refuse(fmt::format("{} micro-batches in a step: every one is planned by itself, and {} are the most", n,
                       most_micro_batches),
           "raise train.micro_batch, or lower train.accumulate");
}

std::vector<uint32_t> cut_points(const Model& model, uint32_t stages, const std::vector<std::string>& given) {
  const size_t before = model.reference_blocks, blocks = model.blocks.size() - before;
  if (blocks < stages)
    throw Error(Exit::usage,
                fmt::format("parallel.pipeline x virtual_stages = {}, but model {} has {} blocks", stages, model.plugin,
                            blocks),
                fmt::format("set both so that their product is {} or less", blocks));
  if (before && before != blocks)
    throw Error(Exit::usage,
                fmt::format("parallel.pipeline: the reference has {} blocks, and model {} has {}, so that they cannot "
                            "be cut alike",
                            before, model.plugin, blocks),
                "remove [reference], or set parallel.pipeline = 1");
  if (!given.empty()) return named(model, stages, given);
  std::vector<double> costs = flops_of(model);
  for (size_t b = 0; b < before; ++b) costs[before + b] += costs[b];
  costs.erase(costs.begin(), costs.begin() + static_cast<std::ptrdiff_t>(before));
  const double most =
      largest(costs, cheapest(costs, stages, [](double before, double part) { return std::max(before, part); }));
  std::vector<uint32_t> out = cheapest(costs, stages, [&](double before, double part) {
    return part <= most * (1 + 1e-9) ? before + part * part : HUGE_VAL;
  });
  out.erase(out.begin());
  for (uint32_t& first : out) first += static_cast<uint32_t>(before);
  return out;
}

std::vector<double> stage_flops(const Model& model, const std::vector<uint32_t>& firsts) {
  const std::vector<double> costs = flops_of(model);
  std::vector<double> out(firsts.size() + 1, 0);
  for (uint32_t b = 0; b < costs.size(); ++b)
    out[static_cast<size_t>(std::upper_bound(firsts.begin(), firsts.end(), b) - firsts.begin())] += costs[b];
  return out;
}

std::vector<uint32_t> stage_firsts(const Model& model, const Ranks& ranks, const std::vector<std::string>& given) {
  const uint32_t parts = ranks.virtual_stages - ranks.reference_stages;
  const std::vector<uint32_t> own = cut_points(model, ranks.pipeline * parts, given);
  if (!ranks.reference_stages) return own;
  std::vector<uint32_t> out;
  const auto offset = static_cast<uint32_t>(model.reference_blocks);
  for (const uint32_t first : own) out.push_back(first - offset);
  out.push_back(offset);
  out.insert(out.end(), own.begin(), own.end());
  return out;
}

void cut_stages(Model& model, const Ranks& ranks, const std::vector<std::string>& given) {
  if (ranks.pipeline == 1) return;
  const uint32_t stages = ranks.pipeline * ranks.virtual_stages, before = ranks.pipeline * ranks.reference_stages;
  const std::vector<uint32_t> firsts = stage_firsts(model, ranks, given);
  const auto stage_of = [&](uint32_t b) { return std::upper_bound(firsts.begin(), firsts.end(), b) - firsts.begin(); };
  std::map<uint32_t, uint32_t> user;  // parameter -> the first block with it
  for (uint32_t b = 0; b < model.blocks.size(); ++b)
    for (const uint32_t p : model.blocks[b].params) {
      if (model.params[p].frozen) continue;  // every stage that reads it keeps it, and nothing is summed
      const uint32_t other = user.try_emplace(p, b).first->second;
      const auto from = stage_of(other) - before, to = stage_of(b) - before;
      if (from != to && (from != 0 || to + 1 != stages - before))
        throw Error(Exit::usage,
                    fmt::format("parallel.pipeline = {}: {} and {} share {}, and are in stages {} and {} of {}",
                                ranks.pipeline, model.blocks[other].name, model.blocks[b].name, model.params[p].name,
                                from + 1, to + 1, stages - before),
                    "only the first and the last stage can share parameters: set parallel.cuts to other blocks");
    }
  for (const uint32_t first : firsts) model.blocks[first - 1].recomputed = false;
  for (uint32_t s = ranks.stage(); s < stages; s += ranks.pipeline)
    model.parts.push_back({s ? firsts[s - 1] : 0, s + 1 < stages ? firsts[s] : model.all().end});
  for (const uint32_t p : of_two_stages(model)) model.params[p].two_stages = true;
}

std::set<uint32_t> of_two_stages(const Model& model) {
  std::map<uint32_t, Span> users;  // parameter -> from its first block to its last one
  for (uint32_t b = 0; b < model.blocks.size(); ++b)
    for (const uint32_t p : model.blocks[b].params) users.try_emplace(p, Span{b, b + 1}).first->second.end = b + 1;
  std::set<uint32_t> out;
  for (const auto& [p, all] : users)
    for (const Span& part : model.parts)
      if (!model.params[p].frozen && all.first < part.end && all.end > part.first &&
          (all.first < part.first || all.end > part.end))
        out.insert(p);
  return out;
}

std::string blocks_text(const Model& model) {
  std::string out;
  for (const Span& part : model.parts)
    out += fmt::format("{}{} to {}",
                       out.empty()                    ? ""
                       : &part == &model.parts.back() ? " and "
                                                      : ", ",
                       model.blocks[part.first].name, model.blocks[part.end - 1].name);
  return out;
}

std::string pipeline_line(const Model& model, const Ranks& ranks, uint32_t micro_batches) {
  if (ranks.pipeline == 1) return "";
  const std::vector<double> flops = flops_of(model);
  const double all = std::accumulate(flops.begin(), flops.end(), 0.0);
  double mine = 0;
  for (const Span& part : model.parts)
    mine += std::accumulate(flops.begin() + part.first, flops.begin() + part.end, 0.0);
  const Pipeline pipeline = pipeline_of(ranks, micro_batches);
  const uint32_t own = pipeline.parts - pipeline.reference;
  const std::string several = own > 1 ? fmt::format(", {} virtual stages of each rank", own) : "";
  return fmt::format(
      "stage {} of {}{}: {}, {:.1f} % of the FLOPs; stages of equal times wait {:.1f} % of a step of {} micro-batches",
      ranks.stage() + 1, pipeline.ranks, several, blocks_text(model), all > 0 ? 100 * mine / all : 0,
      100 * equal_bubble(pipeline), micro_batches);
}

}  // namespace eng
