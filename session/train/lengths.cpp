// SPDX-License-Identifier: Apache-2.0
#include "session/train/lengths.hpp"

#include <algorithm>
#include <map>

#include "session/checkpoint/convert.hpp"
#include "session/huggingface/adapter.hpp"
#include "session/planning/bookkeeping.hpp"
#include "session/planning/shares.hpp"
#include "session/train/trainer.hpp"

namespace eng {

// Names that any rank was given: one that holds no part of a parameter was not.
static std::set<std::string> given_to_any(Trainer& trainer, const std::vector<Adapter>& adapters,
                                          const std::set<std::string>& given) {
  std::string mine;  // a character for each path
  for (const Adapter& a : adapters) mine += given.count(a.m()) ? '1' : '0';
  std::set<std::string> out;
  const std::vector<std::string> all = trainer.single_rank() ? std::vector{mine} : trainer.peers().exchange(mine);
  for (const std::string& one : all)
    for (size_t k = 0; k < adapters.size() && k < one.size(); ++k)
      if (one[k] == '1') out.insert(adapters[k].m());
  return out;
}

// The types in which compute reads parameters. It decodes packed weights into them, and rounds masters to them.
static std::map<std::string, int32_t> types_as_computed(const Model& model) {
  std::map<std::string, int32_t> out;
  for (const Block& block : model.blocks) {
    const Template& t = model.templates.at(block.tmpl);
    for (size_t k = 0; k < block.params.size(); ++k)
      out[model.params[block.params[k]].name] = t.graph.value(t.params[k]).desc.dtype;
  }
  return out;
}

bool begin_lengths(Trainer& trainer, const std::set<std::string>& given) {
  const std::vector<TensorShare> shares = parameters(trainer.setup().plan);
  const std::string ending = Adapter().m();
  if (std::none_of(shares.begin(), shares.end(), [&](const TensorShare& t) { return t.name.ends_with(ending); }))
    return false;
  std::map<std::string, const TensorShare*> by_name;
  for (const TensorShare& t : shares) by_name[t.name] = &t;
  std::vector<Adapter> adapters = adapters_of(trainer.config(), {shares.begin(), shares.end()});
  std::erase_if(adapters, [](const Adapter& a) { return !a.dora; });
  const std::set<std::string> known = given_to_any(trainer, adapters, given);
  const std::map<std::string, int32_t> computed = types_as_computed(trainer.setup().model);
  const auto values = [&](const TensorShare& t, uint64_t first, uint64_t n) {
    std::vector<char> held(n * dtype_size(t.dtype));
    trainer.gather(t, first, n, held.data());
    std::vector<float> out(n);
    convert(t.dtype, held.data(), ENG_F32, out.data(), n);
    if (const int32_t narrow = computed.at(t.name); dtype_size(narrow) < dtype_size(t.dtype)) {
      convert(ENG_F32, out.data(), narrow, held.data(), n);
      convert(narrow, held.data(), ENG_F32, out.data(), n);
    }
    return out;
  };
  const auto all = [&](const std::string& name) {
    const TensorShare& t = *by_name.at(name);
    return values(t, 0, element_count(t.shape, t.name));
  };
  std::vector<double> scratch;
  for (const Adapter& adapter : adapters) {
    if (known.count(adapter.m())) continue;
    const TensorShare &weight = *by_name.at(adapter.weight), &m = *by_name.at(adapter.m());
    const auto rows = static_cast<uint64_t>(weight.shape[0]), columns = static_cast<uint64_t>(weight.shape[1]);
    const LowRankPath path{
        static_cast<uint64_t>(adapter.rank), columns, adapter.scale(), all(adapter.a()), all(adapter.b()), 1};
    const uint64_t tile = std::max<uint64_t>(1, lengths_tile / columns);  // rows; the plan has no room for more
    std::vector<float> lengths;
    for (uint64_t first = 0, n = 0; first < rows; first += n) {
      n = std::min(tile, rows - first);
      const std::vector<float> w = values(weight, first * columns, n * columns);
      for (uint64_t i = 0; i < n; ++i)
        lengths.push_back(static_cast<float>(path.length(first + i, w.data() + i * columns, scratch)));
    }
    std::vector<char> held(rows * dtype_size(m.dtype));
    convert(ENG_F32, lengths.data(), m.dtype, held.data(), rows);
    trainer.fill()(m, 0, rows, held.data());
  }
  return true;
}

}  // namespace eng
