// SPDX-License-Identifier: Apache-2.0
// eng.kernels/1: each kernel against that of another device, on random shapes, and what it touches beside its outputs.
#include <algorithm>
#include <cmath>

#include "engine/op.h"
#include "engine/ops.h"
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {
namespace {

// The largest allowed error relative to the largest value. Both sides round; sums have up to some thousand terms.
double tolerance(const Call& call) {
  double out = 2e-4;
  for (const auto& list : {call.in, call.out})
    for (const eng_desc& d : list) out = std::max(out, d.dtype == ENG_BF16 ? 4e-2 : d.dtype == ENG_F16 ? 6e-3 : 0);
  return out;
}

struct Bench {
  const Subject& subject;
  std::unique_ptr<Machine> one, many;  // the device with one thread and with several
  std::unique_ptr<Machine> other;      // who computes the same independently; null: nobody
  std::map<std::string, eng_kernel> own;

  Forward forward() {
    return [this](const Call& call, const std::vector<Array>& in) {
      Machine& by = other && other->serves(call) ? *other : *one;
      return by.run(call, in);
    };
  }
};

bool supports(const eng_kernel& kernel, Machine& machine, const Call& call) {
  const CallArgs args(call, machine.info().parallel, &machine.info());
  Sink sink;
  uint64_t bytes = 0;
  const eng_status status = args.workspace(kernel, bytes, sink);
  // ENG_INVALID says that the op itself has no such call: some are tried in formats that they do not have.
  const bool only_f32 = std::all_of(call.in.begin(), call.in.end(),
                                    [](const eng_desc& d) { return d.dtype == ENG_F32 || !is_float(d.dtype); });
  if (status != ENG_OK && status != ENG_UNSUPPORTED && (status != ENG_INVALID || only_f32))
    throw Broken(fmt::format("{}: workspace fails: {}", text_of(call), sink.text(status)));
  return status == ENG_OK;
}

void expect_bits(const Call& call, const std::vector<Array>& a, const std::vector<Array>& b, const std::string& what) {
  for (size_t o = 0; o < a.size(); ++o)
    if (const std::string where = first_difference(a[o], b[o]); !where.empty())
      throw Broken(fmt::format("{}: {}: output {}: {}", text_of(call), what, o, where));
}

std::vector<InPlace> musts(const Call& call) {
  std::vector<InPlace> out;
  for (const InPlace& pair : call.op->in_place)
    if (pair.must && pair.in < call.in.size() && call.in[pair.in].dtype) out.push_back(pair);
  return out;
}

void check_touch(Bench& bench, const eng_kernel& kernel, const Case& c) {
  How how{0, 0xFF, musts(c.call)};
  const auto first = bench.many->run(c.call, c.in, how, &kernel);
  // eng.begin/1 writes three of the scalars and keeps the others.
  if (c.call.op->id != std::string(ENG_OP_BEGIN)) how.fill = 0x3C;
  how.twice = how.in_place.empty();
  expect_bits(c.call, first, bench.many->run(c.call, c.in, how, &kernel),
              "other bits where outputs and scratch held something else before, or in a second launch");
}

void check_threads(Bench& bench, const eng_kernel& kernel, const Case& c) {
  const How how{0, 0xFF, musts(c.call)};
  const auto first = bench.many->run(c.call, c.in, how, &kernel);
  expect_bits(c.call, bench.one->run(c.call, c.in, how, &kernel), first, "other bits with one thread");
  How three = how;
  three.parallel = 3;
  expect_bits(c.call, bench.many->run(c.call, c.in, three, &kernel), first, "other bits with three threads");
}

void check_in_place(Bench& bench, const eng_kernel& kernel, const Case& c) {
  const auto apart = bench.many->run(c.call, c.in, {0, 0xFF, musts(c.call)}, &kernel);
  for (const InPlace& pair : c.call.op->in_place) {
    const bool fits = pair.out < c.call.out.size() && pair.in < c.call.in.size() &&
                      bytes(c.call.out[pair.out]) == bytes(c.call.in[pair.in]);
    if (pair.must || !fits) continue;
    How how{0, 0xFF, musts(c.call)};
    how.in_place.push_back(pair);
    expect_bits(c.call, bench.many->run(c.call, c.in, how, &kernel), apart,
                fmt::format("other bits with output {} in the memory of input {}", pair.out, pair.in));
  }
}

// No other kernel computes it, so only results that are not numbers are noticed.
void check_numbers(const Case& c, const std::vector<Array>& out) {
  for (const Array& in : c.in)
    if (in.desc.dtype && !all_finite(in.bytes.data(), in.desc.dtype, static_cast<uint64_t>(in.size()))) return;
  for (size_t o = 0; o < out.size(); ++o)
    for (int64_t k = 0; k < out[o].size(); ++k)
      if (std::isnan(out[o].at(k)))
        throw Broken(fmt::format("{}: output {}, element {} is not a number", text_of(c.call), o, k));
}

void check_values(Bench& bench, const eng_kernel& kernel, const Case& c, bool& compared, bool& exact) {
  const How how{0, 0xFF, musts(c.call)};
  const auto mine = bench.many->run(c.call, c.in, how, &kernel);
  if (!bench.other || !bench.other->serves(c.call)) return check_numbers(c, mine);
  const auto theirs = bench.other->run(c.call, c.in, how);
  const eng_kernel& against = bench.other->kernels().find(c.call);
  const bool both = kernel.flags & against.flags & ENG_KERNEL_EXACT;
  compared = true, exact = exact || both;
  for (size_t o = 0; o < mine.size(); ++o) {
    if (both || !is_float(mine[o].desc.dtype)) {
      if (const std::string where = first_difference(mine[o], theirs[o]); !where.empty())
        throw Broken(fmt::format("{}: other bits than on device {}{}: output {}: {}", text_of(c.call),
                                 bench.other->name(), both ? ", although both say ENG_KERNEL_EXACT" : "", o, where));
      continue;
    }
    const Difference d = difference(mine[o], theirs[o]);
    if (!(d.worst <= tolerance(c.call)))
      throw Broken(
          fmt::format("{}: output {}, element {} is {:.7g}, device {} has {:.7g} (the largest error is {:.2g} "
                      "of the largest value, the limit {:.2g})",
                      text_of(c.call), o, d.where, mine[o].at(d.where), bench.other->name(), theirs[o].at(d.where),
                      d.worst, tolerance(c.call)));
  }
}

std::string dtype_names(const std::set<int32_t>& all) {
  std::string out;
  for (int32_t d : all)
    out += (out.empty() ? "" : ", ") +
           std::string(describe(make_desc(d, {})).substr(0, describe(make_desc(d, {})).find(' ')));
  return out;
}

// Every law on every case; the text of a pass.
std::string check_kernel(Bench& bench, const eng_kernel& kernel, const std::vector<Case>& cases) {
  std::set<int32_t> formats;
  size_t tried = 0;
  bool compared = false, exact = false;
  for (const Case& c : cases) {
    if (!supports(kernel, *bench.many, c.call)) continue;
    ++tried;
    for (const auto& list : {c.call.in, c.call.out})
      for (const eng_desc& d : list)
        if (is_float(d.dtype)) formats.insert(d.dtype);
    check_touch(bench, kernel, c);
    check_threads(bench, kernel, c);
    check_in_place(bench, kernel, c);
    check_values(bench, kernel, c, compared, exact);
  }
  if (!tried) throw Untested("it serves none of the calls that were tried, or there were none");
  const std::string against = !bench.other ? "no other device has it"
                              : !compared  ? fmt::format("device {} does not have it", bench.other->name())
                              : exact      ? fmt::format("the bits of device {}", bench.other->name())
                                           : fmt::format("close to device {}", bench.other->name());
  return fmt::format("{} calls, {}; {}", tried, dtype_names(formats), against);
}

std::vector<Case> standard_cases(const Subject& subject, const std::string& op, const Forward& forward, bool f64) {
  std::vector<Case> out;
  Random random = subject.random(op);
  for (int32_t dtype : {ENG_F32, ENG_BF16, ENG_F16, ENG_F64})
    for (int round = 0; round < subject.rounds && (dtype != ENG_F64 || f64); ++round)
      for (uint32_t form = 0; form < forms_of(op); ++form) try {
          if (auto one = standard_case(op, dtype, form, random, forward)) out.push_back(std::move(*one));
        } catch (const std::exception&) {
          if (dtype == ENG_F32) throw;  // other formats of what such a call needs may not be there
        }
  return out;
}

// The file, and other plugins for whose ops it has kernels: the id of an op begins with that of its plugin.
std::vector<Subject> users(const Subject& s, const std::map<std::string, eng_kernel>& own) {
  std::vector<Subject> out = {s};
  for (const Candidate& file : s.registry.candidates()) {
    const auto& provides = file.description.provides;
    const auto ops = std::find_if(provides.begin(), provides.end(),
                                  [](const Provided& p) { return p.kind == ENG_OPS_KIND && p.refused.empty(); });
    if (&file == &s.file || !file.refused.empty() || ops == provides.end()) continue;
    const Subject other{s.registry, file, *ops, s.given, s.seed, s.rounds, s.scratch};
    if (std::none_of(own.begin(), own.end(), [&](const auto& one) { return other.brings(one.first); })) continue;
    other.table<eng_ops>();
    wake(other);
    out.push_back(other);
  }
  return out;
}

}  // namespace

void test_kernels(const Subject& s, Sheet& sheet) {
  const auto is_comm = [&](const Provided& p) { return p.kind == ENG_COMM_KIND && p.name == s.one.name; };
  if (std::any_of(s.file.description.provides.begin(), s.file.description.provides.end(), is_comm))
    return sheet.untested("kernels", "they are collectives: see the communicator");
  Bench bench{s, nullptr, nullptr, nullptr, {}};
  const bool made = sheet.check("the list of kernels, and a device for them", [&] {
    wake(s);
    bench.own = load_kernels(s.table<eng_kernels>(), "its table");
    bench.one = machine(s, s.one.name, 1), bench.many = machine(s, s.one.name, 4);
    if (bench.own.empty()) throw Broken("the list of kernels is empty");
    return fmt::format("{} kernels", bench.own.size());
  });
  if (!made) return;
  const std::string other = s.one.name == "reference" ? "cpu" : "reference";
  try {
    bench.other = machine(s, other, 1);
  } catch (const std::exception&) {
    bench.other = nullptr;
  }
  const std::vector<Subject> bringing = users(s, bench.own);
  load_ops(s.registry);
  std::map<std::string, std::vector<Case>> used;
  std::string why;
  std::set<std::string> strange;
  for (const auto& [op, kernel] : bench.own)
    if (!find_op(op) ||
        std::any_of(bringing.begin(), bringing.end(), [&, &op = op](const Subject& u) { return u.brings(op); }))
      strange.insert(op);
  if (!strange.empty())
    sheet.check("runs of what brings the ops", [&] {
      // Plans run in host memory here.
      Machine* const on = bench.many->kernels().host_memory() ? bench.many.get() : bench.other.get();
      if (!on) throw Untested("needs a device whose memory is the host's");
      const auto wanted = [&](const Call& call) { return strange.count(call.op->id) > 0; };
      for (const Subject& user : bringing)
        for (int round = 0; round < s.rounds; ++round)
          for (const char* format : {"f32", "bf16", "fp16"})
            for (Case& c : cases_in_use(user, *on, wanted, static_cast<uint64_t>(round), format,
                                        std::string(format) == "f32" ? &why : nullptr))
              used[c.call.op->id].push_back(std::move(c));
      return fmt::format("{} of {} ops occur that are no standard ones", used.size(), strange.size());
    });
  for (const auto& [op, kernel] : bench.own)
    sheet.check(op, [&, &op = op, &kernel = kernel] {
      const auto in_use = used.find(op);
      if (in_use != used.end()) return check_kernel(bench, kernel, in_use->second);
      if (!find_op(op)) throw Untested("no plugin that is loaded says what this op is");
      if (find_op(op)->collective) throw Untested("it is a collective");
      const auto cases = standard_cases(s, op, bench.forward(), s.one.name == "reference");
      if (cases.empty()) no_cases(op, why, "nothing that brings ops uses this one, so that its inputs are unknown");
      return check_kernel(bench, kernel, cases);
    });
}

}  // namespace eng::plugin_test
