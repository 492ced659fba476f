// SPDX-License-Identifier: Apache-2.0
// eng.precision/1: its moves on random plans, the same bits on every number of parts, and losses near those of f32.
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {
namespace {

std::string format_of(int32_t dtype) {
  const std::string text = describe(make_desc(dtype, {1}));
  return text.substr(0, text.find(' '));
}

// The types of each role, which must always be the same. "weights bf16, masters f32, ..."
std::string check_place(const Subject& s, const Chosen<eng_axis>& chosen) {
  const Precision one = make_precision(chosen.name, chosen.table, chosen.options);
  Random random = s.random("place");
  std::map<std::pair<int32_t, uint32_t>, int32_t> told;
  const std::pair<int32_t, const char*> roles[] = {
      {ENG_ROLE_WEIGHT, "weights"},        {ENG_ROLE_MASTER, "masters"},
      {ENG_ROLE_STATE, "states"},          {ENG_ROLE_PARTIAL, "partial gradients"},
      {ENG_ROLE_GRAD, "gradients"},        {ENG_ROLE_ACT, "activations"},
      {ENG_ROLE_STREAM, "residual stream"}};
  const auto of_model = [](int32_t role) { return role == ENG_ROLE_ACT || role == ENG_ROLE_STREAM; };
  for (int k = 0; k < 80; ++k) {
    const auto number = static_cast<uint32_t>(pick(random, 1, 4));
    const eng_unit unit = {sizeof(eng_unit), number, number, number == 4 ? ENG_PARAM_FP32 : 0, 4096ull * number};
    const int32_t role = roles[pick(random, 0, 6)].first;
    const int32_t dtype = one.dtype(role, of_model(role) ? nullptr : &unit);
    const auto [known, fresh] = told.try_emplace({role, of_model(role) ? 0 : number}, dtype);
    if (!fresh && known->second != dtype)
      throw Broken(
          fmt::format("place gives role {} {}, and then {}", role, format_of(known->second), format_of(dtype)));
    if (number == 4 && role == ENG_ROLE_WEIGHT && dtype != ENG_F32)
      throw Broken(fmt::format("weights with ENG_PARAM_FP32 become {}", format_of(dtype)));
  }
  std::string out;
  const eng_unit unit = {sizeof(eng_unit), 1, 1, 0, 4096};
  for (const auto& [role, name] : roles)
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name,
                       format_of(one.dtype(role, of_model(role) ? nullptr : &unit)));
  const int32_t stream = one.dtype(ENG_ROLE_STREAM);
  if (stream != ENG_F32 && stream != one.dtype(ENG_ROLE_ACT))
    throw Broken("the residual stream becomes " + format_of(stream) +
                 ", which is neither f32 nor the type of activations");
  one.states();
  return out;
}

// True if it must change no bit: everything is f32, and it does not say that it is lossy.
bool keeps_bits(const Chosen<eng_axis>& chosen) {
  const Precision one = make_precision(chosen.name, chosen.table, chosen.options);
  const eng_unit unit = {sizeof(eng_unit), 1, 1, 0, 4096};
  for (int32_t role = ENG_ROLE_WEIGHT; role <= ENG_ROLE_ACT; ++role)
    if (one.dtype(role, role == ENG_ROLE_ACT ? nullptr : &unit) != ENG_F32) return false;
  return !one.table.begin && !one.table.update && !(one.table.flags & ENG_AXIS_LOSSY);
}

std::string check_plans(const Subject& s, const Chosen<eng_axis>& chosen, Machine& on, const Chosen<eng_axis>* parted) {
  Random random = s.random("plans");
  const auto optimizer = usual_optimizer(s);
  const bool same_bits = keeps_bits(chosen);
  double worst = 0;
  for (int round = 0; round < s.rounds + 1; ++round) {
    Course course = plain_course(s, random);
    course.optimizer = optimizer;
    course.ranks = static_cast<uint32_t>(pick(random, 1, 3));
    course.per_step = chance(random, 0.4);
    const std::string how =
        fmt::format("{} ranks, batch ({}, {}), {} micro-batches{}", course.ranks, course.rows, course.length,
                    course.accumulate, course.per_step ? ", reduced once per step" : "");
    const Results plain = results_of(course, on);
    course.precision = chosen;
    Results theirs;
    try {
      theirs = results_of(course, on);
    } catch (const Untested&) {
      throw;
    } catch (const std::exception& e) {
      throw Broken(fmt::format("{}; {}", e.what(), how));
    }
    if (const std::string d = first_difference(plain, theirs); same_bits && !d.empty())
      throw Broken(fmt::format(
          "everything is f32, but the bits are others than those of a plain run, and it is not ENG_AXIS_LOSSY: {}; {}",
          d, how));
    worst = std::max(worst, loss_distance(plain, theirs, how));
    if (const std::string d = first_difference(theirs, results_of(course, on)); !d.empty())
      throw Broken(fmt::format("two equal runs differ: {}; {}", d, how));
    if (course.ranks == 1 || !parted) continue;
    course.zero = *parted;
    if (const std::string d = first_difference(theirs, results_of(course, on)); !d.empty())
      throw Broken(fmt::format("states in parts give other bits than whole ones: {}; {}", d, how));
  }
  return fmt::format("{} random plans verified and run; losses {}", s.rounds + 1,
                     same_bits ? "of plain f32, bit for bit" : fmt::format("within {:.2g} of those of f32", worst));
}

}  // namespace

void test_precision(const Subject& s, Sheet& sheet) {
  Chosen<eng_axis> chosen;
  std::unique_ptr<Machine> on;
  const bool made = sheet.check("create and place", [&] {
    chosen = s.chosen<eng_axis>();
    Ranks world;
    RanksBuilder builder(world);
    const Watched options(chosen.options);
    Sink sink;
    void* self = nullptr;
    const eng_status status = chosen.table.create(options.get(), &builder, &self, sink.get());
    if (status == ENG_OK) chosen.table.destroy(self);
    builder.check("create");
    check_made(status, sink, options.misuse());
    on = machine(s, "cpu", 2);
    load_ops(s.registry);
    return check_place(s, chosen);
  });
  if (!made) return;
  std::optional<Chosen<eng_axis>> parted;
  if (s.registry.find(ENG_ZERO_KIND, "zero3"))
    parted =
        Chosen<eng_axis>{"zero3", s.registry.table<eng_axis>(ENG_ZERO_KIND, "zero3"), defaults(s, "zero", "zero3")};
  sheet.check("moves on random plans", [&] { return check_plans(s, chosen, *on, parted ? &*parted : nullptr); });
}

}  // namespace eng::plugin_test
