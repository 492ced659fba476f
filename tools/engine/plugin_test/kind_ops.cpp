// SPDX-License-Identifier: Apache-2.0
// eng.ops/1: shapes that are a pure function, and gradient rules against central differences.
#include <cmath>
#include <cstring>

#include "core/autograd/backward.hpp"
#include "engine/op.h"
#include "engine/ops.h"
#include "session/config/toml.hpp"
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {
namespace {

// One use of an op as a program of its own: the op, and the backward that its rule emits.
class Derived {
 public:
  // `wanted`: the inputs whose gradients are asked for; `outputs`: those that have a gradient.
  Derived(const Case& c, const std::vector<bool>& wanted, const std::vector<uint32_t>& outputs, Random& random) {
    std::vector<Id> in;
    for (size_t k = 0; k < c.in.size(); ++k) {
      if (!c.in[k].desc.dtype) {
        in.push_back(0);
        continue;
      }
      const SymbolKind kind = wanted[k] ? SymbolKind::input : SymbolKind::constant;
      in.push_back(block_.graph.add({kind, c.in[k].desc, static_cast<uint32_t>(block_.inputs.size())}));
      values_[in.back()] = c.in[k];
      if (wanted[k]) block_.inputs.push_back(in.back()), number_.push_back(k);
    }
    const std::vector<Id> made = block_.graph.emit(*c.call.op, in, c.call.attrs);
    for (uint32_t output : outputs) block_.outputs.push_back(made.at(output));
    derive_backward(block_, false, false);
    for (Id id = 1; id <= block_.graph.size(); ++id) {
      const Symbol& symbol = block_.graph.value(id);
      if (symbol.kind == SymbolKind::seed) values_[id] = normal(random, symbol.desc);
      if (symbol.kind == SymbolKind::scalars) {
        values_[id] = Array(symbol.desc);
        for (uint32_t s : {ENG_S_INV_TOKENS, ENG_S_LOSS_SCALE, ENG_S_CLIP, ENG_S_OK}) values_[id].put(s, 1);
      }
    }
  }
  // The gradients of the wanted inputs, by input; absent where the rule gives none.
  std::map<size_t, Array> gradients(Machine& machine) {
    run(machine, 0, block_.graph.nodes.size());
    std::map<size_t, Array> out;
    for (size_t k = 0; k < number_.size(); ++k)
      if (const Id id = block_.d_inputs[k]) out[number_[k]] = values_.at(id);
    return out;
  }
  // The sum of the outputs, weighted as the backward is seeded, with input `k` moved by `h` along `way`.
  double loss(Machine& machine, size_t k, const Array& way, double h) {
    const size_t at = static_cast<size_t>(std::find(number_.begin(), number_.end(), k) - number_.begin());
    Array& x = values_.at(block_.inputs[at]);
    const Array before = x;
    for (int64_t e = 0; e < x.size(); ++e) x.put(e, before.at(e) + h * way.at(e));
    run(machine, 0, block_.forward);
    double sum = 0;
    for (size_t o = 0; o < block_.outputs.size(); ++o) {
      const Array &seed = values_.at(block_.seeds[o]), &out = values_.at(block_.outputs[o]);
      for (int64_t e = 0; e < seed.size(); ++e) sum += seed.at(e) * out.at(e);
    }
    x = before;
    return sum;
  }

 private:
  void run(Machine& machine, size_t from, size_t to) {
    for (size_t n = from; n < to; ++n) {
      const Node& node = block_.graph.nodes[n];
      Call call{node.op, {}, {}, node.attrs};
      std::vector<Array> in;
      for (Id id : node.in) in.push_back(id ? values_.at(id) : Array());
      for (const Array& one : in) call.in.push_back(one.desc);
      for (Id id : node.out) call.out.push_back(block_.graph.value(id).desc);
      How how;
      for (const InPlace& pair : node.op->in_place)
        if (pair.must) how.in_place.push_back(pair);
      auto made = machine.run(call, in, how);
      for (size_t o = 0; o < made.size(); ++o) values_[node.out[o]] = std::move(made[o]);
    }
  }
  Template block_;
  std::map<Id, Array> values_;
  std::vector<size_t> number_;  // of each input of the block: the op's
};

double length(const Array& a) {
  double sum = 0;
  for (int64_t k = 0; k < a.size(); ++k) sum += a.at(k) * a.at(k);
  return std::sqrt(sum);
}

// One input of a use against differences along a random direction.
void check_input(Derived& derived, Machine& machine, const Case& c, size_t k, const std::map<size_t, Array>& gradients,
                 const std::string& asked, Random& random) {
  const bool fine = c.in[k].desc.dtype == ENG_F64;
  const Array way = normal(random, c.in[k].desc);
  const double size = length(c.in[k]) / std::sqrt(static_cast<double>(c.in[k].size()));
  const double unit = size > 0 ? size : 1, value = std::fabs(derived.loss(machine, k, way, 0));
  const auto slope = [&](double h) {
    return (derived.loss(machine, k, way, h) - derived.loss(machine, k, way, -h)) / (2 * h);
  };
  const auto found = gradients.find(k);
  double analytic = 0, norm = 0, numeric = 0;
  if (found != gradients.end()) {
    norm = length(found->second);
    for (int64_t e = 0; e < way.size(); ++e) analytic += found->second.at(e) * way.at(e);
  }
  // If a slope jumps between the two points, a shorter step decides.
  for (const double step : fine ? std::vector{1e-4, 1e-6} : std::vector{1e-2, 2e-3}) {
    const double h = step * unit;
    numeric = step == 1e-4 ? (4 * slope(h) - slope(2 * h)) / 3 : slope(h);
    const double limit = fine ? 1e-6 * (norm + std::fabs(numeric)) + 1e-13 * value / h
                              : 2e-2 * (norm + std::fabs(numeric)) + 4e-6 * value / h;
    if (std::fabs(numeric - analytic) <= limit) return;
  }
  if (found == gradients.end())
    throw Broken(
        fmt::format("{}: the rule gives input {} no gradient, although {}, and the output depends on it (slope "
                    "{:.4g} by differences)",
                    text_of(c.call), k, asked, numeric));
  throw Broken(
      fmt::format("{}: the gradient of input {} is wrong where {}: slope {:.6g}, by central differences {:.6g}",
                  text_of(c.call), k, asked, analytic, numeric));
}

// All inputs at once, then each alone.
void check_gradient(const Case& c, Machine& machine, Random& random) {
  std::vector<size_t> floats;
  for (size_t k = 0; k < c.in.size(); ++k)
    if (is_float(c.in[k].desc.dtype)) floats.push_back(k);
  std::vector<uint32_t> all;
  for (uint32_t o = 0; o < c.call.out.size(); ++o)
    if (is_float(c.call.out[o].dtype)) all.push_back(o);
  std::vector<std::vector<uint32_t>> sets;
  for (uint32_t o : all) sets.push_back({o});
  if (all.size() > 1) sets.push_back(all);
  std::string refused;
  size_t tried = 0;
  for (const auto& outputs : sets)
    for (size_t alone = 0; alone <= floats.size() && (floats.size() > 1 || !alone); ++alone) {
      std::vector<bool> wanted(c.in.size(), false);
      for (size_t f = 0; f < floats.size(); ++f) wanted[floats[f]] = !alone || f + 1 == alone;
      const std::string asked =
          alone ? fmt::format("only that of input {} is wanted", floats[alone - 1]) : "those of all inputs are wanted";
      std::optional<Derived> derived;
      try {
        derived.emplace(c, wanted, outputs, random);
      } catch (const Error& e) {
        // A rule may need the first output, or all of them, to be used.
        refused = e.what();
        continue;
      }
      const auto gradients = derived->gradients(machine);
      // Outputs beside the first may be kept for the backward alone: their rule then gives nothing.
      if (outputs[0] && gradients.empty()) continue;
      // With the others, only where each of them alone is right.
      if (outputs.size() > 1 && tried) continue;
      ++tried;
      for (size_t f : floats)
        if (wanted[f]) check_input(*derived, machine, c, f, gradients, asked, random);
    }
  if (!tried && !refused.empty()) throw Broken(fmt::format("{}: {}", text_of(c.call), refused));
}

// Requires that no input gets a gradient.
void check_constant(const Case& c, Machine& machine, Random& random) {
  Derived derived(c, std::vector<bool>(c.in.size(), true), {0}, random);
  if (derived.gradients(machine).empty()) return;
  throw Broken(text_of(c.call) + ": its description lists it under `constants`, but the rule gives a gradient");
}

// Requires the same answers whenever it is asked, and in between about something else.
void check_infer(const Case& c) {
  std::vector<eng_desc> first, again, other;
  infer(*c.call.op, c.call.in, c.call.attrs, first);
  std::vector<eng_desc> odd = c.call.in;
  for (eng_desc& d : odd)
    if (d.ndim) d.dims[0] += 1;
  infer(*c.call.op, odd, c.call.attrs, other);
  const std::string wrong = infer(*c.call.op, c.call.in, c.call.attrs, again);
  const bool same_list =
      wrong.empty() && first.size() == again.size() && std::equal(first.begin(), first.end(), again.begin(), same);
  if (!same_list)
    throw Broken(fmt::format("{}: infer gives {}, and when asked again {}", text_of(c.call), dims_of(first),
                             wrong.empty() ? dims_of(again) : wrong));
  if (!c.call.op->flops) return;
  const double flops = c.call.op->flops(c.call.in, first, c.call.attrs);
  if (flops != c.call.op->flops(c.call.in, first, c.call.attrs))
    throw Broken(text_of(c.call) + ": flops gives two numbers for the same call");
}

// A pair whose output and input are never alike is never used: the header asks for one type and number of elements.
void check_pairs(const Op& op, const std::vector<Case>& cases) {
  for (const InPlace& pair : op.in_place) {
    std::string unlike;
    bool fits = false;
    for (const Case& c : cases) {
      std::vector<eng_desc> out;
      infer(op, c.call.in, c.call.attrs, out);
      if (pair.in >= c.call.in.size() || !c.call.in[pair.in].dtype || pair.out >= out.size()) continue;
      const eng_desc &from = c.call.in[pair.in], &to = out[pair.out];
      fits = fits || (from.dtype == to.dtype && count(from) == count(to));
      unlike = fmt::format("{} and {}", describe(to), describe(from));
    }
    if (!fits && !unlike.empty())
      throw Broken(
          fmt::format("in_place lists output {} and input {}, which are never of one type and number of "
                      "elements: in one call {}",
                      pair.out, pair.in, unlike));
  }
}

// Inputs that the op accepts, found by trying: of one shape first, then of shapes that often go together.
std::vector<Case> found_cases(const Op& op, Random& random, int32_t dtype) {
  const eng_desc shapes[] = {make_desc(dtype, {2, 5, 8}), make_desc(dtype, {8}), make_desc(dtype, {8, 8}),
                             make_desc(dtype, {2, 5})};
  std::vector<Case> out;
  for (uint32_t n = std::max(op.min_in, 1u); n <= std::min(op.max_in, 4u); ++n)
    for (uint32_t code = 0; code < 1u << (2 * n) && out.size() < 4; ++code) {
      std::vector<Array> in;
      for (uint32_t k = 0; k < n; ++k) in.push_back(normal(random, shapes[code >> (2 * k) & 3]));
      try {
        out.push_back({make_call(op, in, {}), in});
      } catch (const std::exception&) {
      }
    }
  return out;
}

// The device on which the op can be run: the reference device if it has kernels for it, else the cpu.
struct Place {
  std::unique_ptr<Machine> machine;
  std::vector<Case> cases;
  std::string why = {};  // there are none
};

Place place_of(const Subject& s, const Op& op) {
  const auto wanted = [&](const Call& call) { return call.op == &op; };
  std::string why;
  for (const char* device : {"reference", "cpu"})
    for (const char* format : {"f64", "f32"}) {
      Place out;
      try {
        out.machine = machine(s, device, 1);
      } catch (const Untested&) {
        continue;
      }
      for (int round = 0; round < s.rounds; ++round)
        for (Case& c : cases_in_use(s, *out.machine, wanted, static_cast<uint64_t>(round), format,
                                    std::strcmp(format, "f32") == 0 ? &why : nullptr))
          out.cases.push_back(std::move(c));
      Random random = s.random(op.id);
      const int32_t dtype = std::strcmp(format, "f64") == 0 ? ENG_F64 : ENG_F32;
      const Forward forward = [&](const Call& call, const std::vector<Array>& in) {
        return out.machine->run(call, in);
      };
      for (int round = 0; round < s.rounds && (out.cases.empty() || round); ++round)
        if (auto one = standard_case(op.id, dtype, 0, random, forward); one && out.machine->serves(one->call))
          out.cases.push_back(std::move(*one));
      if (out.cases.empty() && op.max_in)
        for (Case& c : found_cases(op, random, dtype))
          if (out.machine->serves(c.call)) out.cases.push_back(std::move(c));
      // A kernel may accept the call while it is planned and refuse it later.
      std::erase_if(out.cases, [&](const Case& c) {
        try {
          out.machine->run(c.call, c.in);
          return false;
        } catch (const Error&) {
          return std::strcmp(format, "f64") == 0;
        } catch (const std::exception&) {
          return false;
        }
      });
      if (!out.cases.empty()) return out;
    }
  return {nullptr, {}, why};
}

}  // namespace

namespace {
bool is_constant(const Subject& s, const std::string& id) {
  const std::vector<std::string> all = texts_in(s.one.facts, "constants");
  return std::find(all.begin(), all.end(), id) != all.end();
}
}  // namespace

void test_ops(const Subject& s, Sheet& sheet) {
  std::vector<std::string> ids;
  const bool made = sheet.check("the list of ops", [&] {
    wake(s);
    const auto table = s.table<eng_ops>();
    load_ops(s.registry);
    for (uint32_t k = 0; k < table.count; ++k)
      if (std::find(ids.begin(), ids.end(), table.ops[k]->id) == ids.end()) ids.emplace_back(table.ops[k]->id);
    return fmt::format("{} ops", ids.size());
  });
  if (!made) return;
  for (const std::string& id : ids) {
    const Op& op = *find_op(id);
    Place place;
    const bool shapes = sheet.check(id + ": shapes", [&] {
      place = place_of(s, op);
      if (op.max_in == 0) throw Untested("it fills parameters: see the kernels");
      if (op.expand) throw Untested("it is made of other ops: see the models that use it");
      if (place.cases.empty())
        no_cases(id, place.why,
                 "nothing that this file provides uses it on a device with a kernel for it, and no inputs were found "
                 "that it accepts");
      for (const Case& c : place.cases) check_infer(c);
      check_pairs(op, place.cases);
      return fmt::format("{} calls", place.cases.size());
    });
    if (!shapes) continue;
    if (!op.grad) {
      sheet.check(id + ": gradient", []() -> std::string { return "it has none"; });
      continue;
    }
    sheet.check(id + ": gradient", [&] {
      if (op.fused_grad) throw Untested("a loss is differentiated with its model: see there");
      if (op.random) throw Untested("it draws random numbers");
      Random random = s.random(id + " gradient");
      if (is_constant(s, id)) {
        for (const Case& c : place.cases) check_constant(c, *place.machine, random);
        return std::string("its outputs are constants, as its description says");
      }
      size_t tried = 0;
      for (const Case& c : place.cases)
        if (tried < static_cast<size_t>(3 * s.rounds) && count(c.call.in[0]) <= 65536)
          check_gradient(c, *place.machine, random), ++tried;
      if (!tried) throw Untested("the calls that were found are too large");
      const bool f64 = place.cases[0].in[0].desc.dtype == ENG_F64;
      return fmt::format("{} calls against central differences in {}", tried, f64 ? "f64" : "f32");
    });
  }
}

}  // namespace eng::plugin_test
