// SPDX-License-Identifier: Apache-2.0
// eng.model/1: one trace whenever it is asked, gradients against differences of its loss, and no look ahead.
#include <cmath>
#include <limits>

#include "core/program/program.hpp"
#include "core/trace/stepping.hpp"
#include "engine/ops.h"
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {
namespace {

constexpr int64_t most_parameters = 4 << 20;

// Options with which it can be made.
struct Made {
  Section options;
  std::string preset;
  int64_t parameters = 0;
};

// Each preset, and none, as far as the model accepts them.
std::vector<Made> candidates(const Subject& s, const eng_model& table, std::string& refused) {
  std::vector<std::string> presets = {""};
  const auto given = [&](const std::string& key) {
    return std::any_of(s.given.begin(), s.given.end(), [&](const std::string& g) {
      return g.starts_with(key + "=") || g.starts_with("model." + key + "=");
    });
  };
  if (!given("preset"))
    for (const auto& [name, values] : s.one.schema.presets) presets.push_back(name);
  // With two layers, or, if the model does not take so few, with as many as it has.
  const auto made = [&](const std::string& preset, bool shallow) {
    Subject one{s.registry, s.file, s.one, s.given, s.seed, s.rounds, s.scratch};
    if (!preset.empty()) one.given.insert(one.given.begin(), "model.preset=" + preset);
    for (const Option& option : s.one.schema.options)
      if (shallow && option.type == Type::integer && option.key.find("layers") != std::string::npos &&
          !given(option.key) && (!option.min || *option.min <= 2) && (!option.max || *option.max >= 2))
        one.given.push_back("model." + option.key + "=2");
    Made now{one.section(), preset};
    now.parameters = trace_forward(s.one.name, table, now.options, 1, 2, ENG_F32, false).parameter_count();
    return now;
  };
  std::vector<Made> out;
  for (const std::string& preset : presets) {
    std::string why;
    for (const bool shallow : {true, false}) try {
        out.push_back(made(preset, shallow));
        why.clear();
        break;
      } catch (const std::exception& e) {
        why = e.what();
      }
    if (!why.empty())
      refused += (refused.empty() ? "" : "; ") + (preset.empty() ? "" : "preset " + preset + ": ") + why;
  }
  return out;
}

std::string nodes_text(const Graph& graph, const std::vector<Node>& nodes) {
  std::string out;
  for (const Node& node : nodes) {
    out += node.op->id;
    for (Id i : node.in) out += fmt::format(" {}", i);
    for (Id o : node.out) out += fmt::format(" >{} {}", o, describe(graph.value(o).desc));
    for (const Attr& a : node.attrs.list) out += fmt::format(" {}={}/{:a}", a.key, a.i, a.f);
    out += "\n";
  }
  return out;
}

// A model as text: whatever two traces must have in common.
std::vector<std::string> lines_of(const Model& model) {
  std::vector<std::string> out;
  for (const Parameter& p : model.params) {
    std::string line = fmt::format("parameter {} {} flags {} {}", p.name, describe(p.desc), p.flags, p.init_op);
    for (const Attr& a : p.init.list) line += fmt::format(" {}={}/{:a}", a.key, a.i, a.f);
    out.push_back(line);
  }
  for (const Block& b : model.blocks)
    out.push_back(fmt::format("block {} template {} parameters {}", b.name, b.tmpl, fmt::join(b.params, " ")));
  for (const auto& [number, t] : model.templates) {
    out.push_back(fmt::format("template {}\n{}", number, nodes_text(t.graph, t.graph.nodes)));
    for (const auto& c : t.constants) out.push_back(describe(c->desc) + std::string(c->data.begin(), c->data.end()));
  }
  return out;
}

std::string check_trace(const Subject& s, const Chosen<eng_model>& m, Random& random) {
  for (int round = 0; round < 2 * s.rounds; ++round) {
    const int64_t b = pick(random, 1, 4), t = pick(random, 1, 40);
    const Model one = trace_forward(m.name, m.table, m.options, b, t, ENG_F32);
    trace_forward(m.name, m.table, m.options, b + 1, t + 3, ENG_BF16);
    const Model two = trace_forward(m.name, m.table, m.options, b, t, ENG_F32);
    const auto first = lines_of(one), second = lines_of(two);
    if (first.size() != second.size()) throw Broken(fmt::format("two traces with ({}, {}) have other parts", b, t));
    for (size_t k = 0; k < first.size(); ++k)
      if (first[k] != second[k])
        throw Broken(fmt::format("two traces with ({}, {}) differ: `{}` and `{}`", b, t, one_line(first[k], 200),
                                 one_line(second[k], 200)));
    for (const auto& [number, tmpl] : one.templates)
      for (const Node& node : tmpl.graph.nodes) {
        std::vector<eng_desc> in, out;
        for (Id i : node.in) in.push_back(i ? tmpl.graph.value(i).desc : eng_desc{});
        infer(*node.op, in, node.attrs, out);
        if (node.op->flops) node.op->flops(in, out, node.attrs);
      }
    if (one.parameter_count() != trace_forward(m.name, m.table, m.options, b + 1, t, ENG_F32).parameter_count())
      throw Broken(fmt::format("the number of parameters depends on the batch ({}, {})", b, t));
  }
  const Model model = trace_forward(m.name, m.table, m.options, 1, 2, ENG_F32);
  return fmt::format("{} parameters in {} blocks, {} templates", model.parameter_count(), model.blocks.size(),
                     model.templates.size());
}

// A model on the device on which it can be run most finely.
struct Running {
  std::unique_ptr<Machine> machine;
  std::unique_ptr<Training> run;
  bool fine = false;
};

Running start(const Subject& s, const Chosen<eng_model>& m, const Course& plain, bool logits, bool generate) {
  std::string why;
  for (const char* device : {"reference", "cpu"})
    for (const bool fine : {true, false}) try {
        Running out;
        out.machine = machine(s, device, 2);
        Course course = plain;
        course.model = m, course.logits = logits, course.generate = generate;
        if (fine) course.precision = {"f64", f64_precision, Section()};
        out.run = std::make_unique<Training>(course, *out.machine);
        out.run->init();
        out.fine = fine;
        return out;
      } catch (const std::exception& e) {
        why = e.what();
      }
  throw Broken(why);
}

}  // namespace

std::string check_gradients(const Subject& s, const Chosen<eng_model>& m, Random& random,
                            const std::vector<Chosen<eng_transform>>& transforms,
                            const std::optional<Chosen<eng_loss>>& loss) {
  Course course = plain_course(s, random);
  course.transforms = transforms, course.loss = loss;
  course.rows = 2, course.length = 6, course.accumulate = 1;
  Running r = start(s, m, course, false, false);
  Training& run = *r.run;
  const int64_t n = course.rows * course.length;
  run.step();
  const Tensors all = run.tensors();
  std::map<std::string, Array> parameters, gradients;
  for (const Tensor& t : run.team().plan(0).tensors) {
    if (t.role == "parameter") parameters[t.name] = all.at(t.name);
    if (t.role == "gradient") gradients[t.name] = all.at(t.name + ".gradient");
  }
  // The batch of that step is still staged; its weight on each loss is 1 / n.
  bool draws = false;
  for (const auto& [number, t] : run.model().templates)
    for (const Node& node : t.graph.nodes) draws = draws || node.op->random;
  const auto total = [&] { return draws ? run.again() : run.loss(); };
  const double base = total();
  if (!std::isfinite(base)) throw Broken(fmt::format("the loss of the first batch is {}", base));
  std::vector<std::string> names;
  for (const auto& [name, value] : parameters) names.push_back(name);
  std::shuffle(names.begin(), names.end(), random);
  size_t tried = 0;
  for (const std::string& name : names) {
    if (tried == static_cast<size_t>(4 * s.rounds)) break;
    const Array& x = parameters.at(name);
    if (!is_float(x.desc.dtype) || !x.size()) continue;
    const auto found = gradients.find(name);
    if (found == gradients.end()) continue;
    ++tried;
    // Along a few elements, so that little has to be put back.
    std::vector<std::pair<int64_t, double>> way;
    double analytic = 0, norm = 0;
    for (int k = 0; k < 24; ++k) {
      way.emplace_back(pick(random, 0, x.size() - 1), chance(random, 0.5) ? 1.0 : -1.0);
      analytic += found->second.at(way.back().first) * way.back().second;
    }
    for (const auto& [e, sign] : way) norm += std::fabs(found->second.at(e));
    const auto at = [&](double h) {
      std::map<int64_t, double> moved;
      for (const auto& [e, sign] : way) moved.try_emplace(e, x.at(e)).first->second += h * sign;
      for (const auto& [e, value] : moved) run.put(name, "parameter", e, value);
      const double loss = total();
      for (const auto& [e, value] : moved) run.put(name, "parameter", e, x.at(e));
      return loss / static_cast<double>(n);
    };
    // If a slope jumps between the two points (relu), a shorter step decides.
    double numeric = 0;
    bool close = false;
    for (const double h : r.fine ? std::vector{1e-4, 1e-6} : std::vector{2e-2, 4e-3}) {
      numeric = (at(h) - at(-h)) / (2 * h);
      const double limit = r.fine ? 2e-5 * (norm + std::fabs(numeric)) + 1e-15 * std::fabs(base) / h + 1e-9
                                  : 3e-2 * (norm + std::fabs(numeric)) + 1e-6 * std::fabs(base) / h;
      close = close || std::fabs(numeric - analytic) <= limit;
    }
    if (!close)
      throw Broken(
          fmt::format("the gradient of {} is wrong: slope {:.6g}, by central differences {:.6g}; batch ({}, {})", name,
                      analytic, numeric, course.rows, course.length));
  }
  return fmt::format("{} parameters against central differences in {}", tried, r.fine ? "f64" : "f32");
}

namespace {

double worst(const Array& a, const Array& b, int64_t first, int64_t n) {
  double out = 0;
  for (int64_t k = first; k < first + n; ++k) {
    const double d = std::fabs(a.at(k) - b.at(k));
    out = d <= out ? out : d;
    if (std::isnan(d)) return std::numeric_limits<double>::infinity();
  }
  return out;
}

// Logits of a position know nothing of later tokens and of other sequences.
std::string check_causal(const Subject& s, const Chosen<eng_model>& m, Random& random) {
  Course course = plain_course(s, random);
  course.rows = 2, course.length = pick(random, 5, 12), course.accumulate = 1;
  Running r = start(s, m, course, true, false);
  Training& run = *r.run;
  std::vector<int32_t> ids(static_cast<size_t>(course.rows * course.length));
  for (int32_t& id : ids) id = static_cast<int32_t>(pick(random, 0, run.vocabulary() - 1));
  const auto logits = [&] {
    run.tokens(ids);
    run.team().run("logits");
    return run.read(run.team().plan(0).logits);
  };
  const Array all = logits();
  const int64_t v = all.desc.dims[2], t = course.length;
  for (int64_t at = 1; at < t; ++at) {
    auto& token = ids[static_cast<size_t>(at)];
    const int32_t before = token;
    token = static_cast<int32_t>((token + 1) % run.vocabulary());
    const Array other = logits();
    token = before;
    const double limit = r.fine ? 1e-9 : 1e-4;
    if (const double d = worst(other, all, 0, at * v); !(d <= limit))
      throw Broken(fmt::format("the token at position {} changes logits before it by {:.3g}; batch ({}, {})", at, d,
                               course.rows, t));
    if (const double d = worst(other, all, t * v, t * v); !(d <= limit))
      throw Broken(fmt::format("a token of sequence 0 changes logits of sequence 1 by {:.3g}; batch ({}, {})", d,
                               course.rows, t));
  }
  return fmt::format("{} positions", t);
}

// True if the model says that it has no running sequences: an op has no step rule, or reads a field of the batch that
// only whole sequences have.
bool says_no_steps(const Model& model) {
  for (const auto& [number, of] : model.templates)
    for (size_t n = 0; n < of.forward; ++n) {
      const Node& node = of.graph.nodes[n];
      if (node.op->fused_grad) continue;
      const Graph& graph = of.graph;
      const bool whole = std::any_of(node.in.begin(), node.in.end(), [&graph](Id i) {
        return i && graph.value(i).kind == SymbolKind::batch && graph.value(i).index > 0;
      });
      if (!node.op->step || whole) return true;
    }
  return false;
}

// Position by position as in the whole sequence.
std::string check_steps(const Subject& s, const Chosen<eng_model>& m, Random& random) {
  Course course = plain_course(s, random);
  course.rows = 2, course.length = pick(random, 5, 12), course.accumulate = 1;
  const Model traced = trace_model(m.name, m.table, m.options, 1, course.length, ENG_F32);
  try {
    next_positions(traced, 1, true);
  } catch (const Error& e) {
    if (e.exit() != Exit::usage || !says_no_steps(traced)) throw;
    throw Untested(e.what());
  }
  Running r = start(s, m, course, true, true);
  Training& run = *r.run;
  std::vector<int32_t> ids(static_cast<size_t>(course.rows * course.length));
  for (int32_t& id : ids) id = static_cast<int32_t>(pick(random, 0, run.vocabulary() - 1));
  run.tokens(ids);
  run.team().run("logits");
  const Plan& plan = run.team().plan(0);
  const Array all = run.read(plan.logits);
  const int64_t v = all.desc.dims[2], t = course.length;
  double top = 0;
  for (int64_t k = 0; k < all.size(); ++k) top = std::max(top, std::fabs(all.at(k)));
  run.team().run("reset");
  for (int64_t at = 0; at < t; ++at) {
    auto* tokens = reinterpret_cast<int32_t*>(run.team().address(0, plan.field("tokens")));
    for (int64_t row = 0; row < course.rows; ++row) tokens[row] = ids[static_cast<size_t>(row * t + at)];
    auto* counters = reinterpret_cast<int64_t*>(run.team().address(0, plan.counters));
    counters[ENG_C_POSITION] = at;
    run.team().run("decode");
    const Array next = run.read(plan.next_logits);
    for (int64_t row = 0; row < course.rows; ++row)
      for (int64_t c = 0; c < v; ++c) {
        const double d = std::fabs(next.at(row * v + c) - all.at((row * t + at) * v + c));
        if (!(d <= (r.fine ? 1e-8 : 1e-3) * (1 + top)))
          throw Broken(
              fmt::format("at position {} the logits of a running sequence are not those of the whole one: {:.6g} "
                          "and {:.6g}; batch ({}, {})",
                          at, next.at(row * v + c), all.at((row * t + at) * v + c), course.rows, t));
      }
  }
  return fmt::format("{} positions", t);
}

// Two steps of training, twice.
std::string check_twice(const Subject& s, const Chosen<eng_model>& m, Random& random) {
  Course course = plain_course(s, random);
  course.model = m, course.steps = 2, course.optimizer = usual_optimizer(s);
  const auto on = machine(s, "cpu", 2);
  const Results first = results_of(course, *on);
  for (const auto& row : first.numbers)
    for (float x : row)
      if (!std::isfinite(x)) throw Broken(fmt::format("the loss or norm of a step is {}", x));
  if (const std::string d = first_difference(first, results_of(course, *on)); !d.empty())
    throw Broken("two equal runs differ: " + d);
  return "2 steps";
}

}  // namespace

Chosen<eng_model> small_model(const Subject& s) {
  const auto table = s.table<eng_model>();
  // Its ops may come from other kinds of its file.
  load_ops(s.registry);
  std::string refused;
  auto all = candidates(s, table, refused);
  if (all.empty()) throw Untested(fmt::format("it cannot be made: {}", refused));
  const auto least = std::min_element(all.begin(), all.end(),
                                      [](const Made& a, const Made& b) { return a.parameters < b.parameters; });
  if (least->parameters > most_parameters)
    throw Untested(fmt::format("its smallest preset has {} parameters: give smaller sizes as KEY=VALUE, or preset=NAME",
                               least->parameters));
  return {s.one.name, table, least->options};
}

void test_model(const Subject& s, Sheet& sheet) {
  Chosen<eng_model> m;
  const bool made = sheet.check("create, describe", [&] {
    const auto table = s.table<eng_model>();
    wake(s);
    load_ops(s.registry);
    std::string refused;
    if (candidates(s, table, refused).empty()) {
      // Once more, to know the status.
      const Section section = s.section();
      const Watched options(section);
      Sink sink;
      void* self = nullptr;
      const eng_status status = table.create(options.get(), &self, sink.get());
      if (status == ENG_OK) table.destroy(self);
      check_made(status, sink, options.misuse());
      throw Broken(refused);
    }
    m = small_model(s);
    const Watched watched(m.options);
    Sink told;
    void* self = nullptr;
    check_made(table.create(watched.get(), &self, told.get()), told, watched.misuse());
    table.destroy(self);
    const eng_model_info info = describe_model(m.name, m.table, m.options);
    const eng_model_info again = describe_model(m.name, m.table, m.options);
    if (std::memcmp(&info, &again, sizeof info) != 0) throw Broken("describe gives two answers for the same options");
    return fmt::format("vocabulary {}, {} layers", info.vocabulary, info.layers);
  });
  if (!made) return;
  const auto law = [&](const char* name, std::string (*body)(const Subject&, const Chosen<eng_model>&, Random&)) {
    return sheet.check(name, [&] {
      Random random = s.random(name);
      return body(s, m, random);
    });
  };
  if (!law("one trace for the same batch", check_trace)) return;
  law("gradients", [](const Subject& subject, const Chosen<eng_model>& model, Random& random) {
    return check_gradients(subject, model, random);
  });
  law("no look ahead, sequences apart", check_causal);
  law("running sequences", check_steps);
  law("two runs, the same bits", check_twice);
}

}  // namespace eng::plugin_test
