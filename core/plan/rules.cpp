// SPDX-License-Identifier: Apache-2.0
#include "core/plan/rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

namespace eng {
namespace {

[[noreturn]] void wrong(const Optimizer& optimizer, const std::string& what) {
  throw Error(Exit::environment, optimizer.who() + " " + what);
}

}  // namespace

Rules::Rules(const PlanRequest& request) : model_(request.model), rules_(request.model.params.size()) {
  const auto blocks = static_cast<uint32_t>(model_.blocks.size());
  for (uint32_t b = blocks; b-- > 0;)
    for (uint32_t p : model_.blocks[b].params) {
      const Parameter& param = model_.params[p];
      rules_[p].shown = {sizeof(eng_parameter), param.flags, param.name.c_str(), &param.desc, nullptr, b, blocks, p, 0};
    }
  const bool update = request.train && request.optimizer;
  if (update) {
    ask_states(*request.optimizer);
    group(*request.optimizer);
  }
  std::map<std::string, uint32_t> sorts;
  for (uint32_t p = 0; p < rules_.size(); ++p) {
    Rule& rule = rules_[p];
    if (!rule.shown.struct_size) throw fault("parameter {} belongs to no block", model_.params[p].name);
    rule.whole = update && request.optimizer->table.granularity == 0;
    std::string sort = request.train && frozen(p) ? "frozen" : "";
    for (size_t s = 0; update && s < states_.size(); ++s) {
      rule.states.push_back(shape(*request.optimizer, s, p, rule.whole));
      if (request.job && rule.whole)
        wrong(*request.optimizer,
              fmt::format("gives state {} a shape, or wants parameters whole: states of a job are of "
                          "elements, of blocks or none",
                          states_[s].name));
      if (sort != "frozen") sort += fmt::format(" {}/{}", rule.states[s].kind, rule.states[s].per);
    }
    if (sort != "frozen" && rule.whole) sort += " whole";
    const auto joined = [](const StateOf& s) { return s.kind == ENG_STATE_BLOCKS || s.kind == ENG_STATE_SHAPED; };
    if (model_.params[p].cut.count > 1) {
      sort += " divided";
      if (!model_.params[p].frozen && (rule.whole || std::any_of(rule.states.begin(), rule.states.end(), joined)))
        throw Error(Exit::usage,
                    fmt::format("{} needs {} whole or in blocks, but parallel.tensor divides it",
                                request.optimizer->who(), model_.params[p].name),
                    "choose an optimizer that works element by element, such as adamw, or parallel.tensor = 1");
    }
    rule.sort = sorts.try_emplace(sort, static_cast<uint32_t>(sorts.size())).first->second;
  }
}

void Rules::ask_states(const Optimizer& optimizer) {
  eng_state_rule list[16] = {};
  uint32_t n = 0;
  call_plugin(Exit::environment, optimizer.who(), optimizer.table.states, optimizer.self.get(), list,
              uint32_t{std::size(list)}, &n);
  if (n > std::size(list)) wrong(optimizer, fmt::format("has {} states, the limit is {}", n, std::size(list)));
  given_.assign(list, list + n);
  std::set<std::string> names{"parameter", "gradient", "policy"};
  for (const eng_state_rule& s : given_) {
    const std::string name = state_name(optimizer.who(), s.name);
    if (!names.insert(name).second)
      wrong(optimizer, "gives a state the name " + name + ", which another state or the engine uses");
    if (s.dtype < ENG_F32 || s.dtype > ENG_U8)
      wrong(optimizer, fmt::format("gives state {} the dtype {}, which does not exist", name, s.dtype));
    states_.push_back({name, s.dtype});
  }
}

// A parameter belongs to the first group that matches it; group 0 is for all others.
void Rules::group(const Optimizer& optimizer) {
  std::vector<char> taken(rules_.size(), 0);
  for (size_t g = 1; g < optimizer.groups.size(); ++g)
    for (const std::string& pattern : optimizer.groups[g]->match)
      for (uint32_t p : select(model_, pattern, fmt::format("group {} of optimizer.groups", g)))
        if (!std::exchange(taken[p], 1)) rules_[p].group = static_cast<uint32_t>(g);
  for (Rule& rule : rules_) rule.shown.options = optimizer.groups[rule.group]->options.get();
}

StateOf Rules::shape(const Optimizer& optimizer, size_t state, uint32_t parameter, bool& whole) const {
  const eng_state_rule& rule = given_[state];
  const eng_desc& own = model_.params[parameter].desc;
  eng_state_shape io{};
  io.struct_size = sizeof(io);
  io.kind = ENG_STATE_ELEMENTS;
  const std::string what =
      fmt::format("{}, state {} of {}", optimizer.who(), states_[state].name, model_.params[parameter].name);
  if (rule.shape) call_plugin(Exit::environment, what, rule.shape, optimizer.self.get(), &rules_[parameter].shown, &io);
  whole = whole || io.whole || io.kind == ENG_STATE_SHAPED;
  StateOf out{io.kind, 1, own};
  if (io.kind == ENG_STATE_BLOCKS) {
    if (!io.block || chunk % io.block)
      throw fault("{}: blocks of {} elements, which must be a divisor of {}", what, io.block, chunk);
    out.per = io.block;
    out.desc = make_desc(own.dtype, {(count(own) + io.block - 1) / io.block});
  } else if (io.kind == ENG_STATE_SHAPED) {
    out.desc.ndim = io.ndim;
    std::copy(std::begin(io.dims), std::end(io.dims), out.desc.dims);
  } else if (io.kind != ENG_STATE_ELEMENTS && io.kind != ENG_STATE_NONE) {
    throw fault("{}: kind {} of states does not exist", what, io.kind);
  }
  out.desc.dtype = states_[state].dtype;
  if (const std::string bad = io.kind == ENG_STATE_NONE ? "" : wrong_with(out.desc); !bad.empty())
    throw fault("{} {}", what, bad);
  return out;
}

}  // namespace eng
