// SPDX-License-Identifier: Apache-2.0
// eng.optimizer/1: pieces are as the whole, a skipped update changes nothing, and a new object goes on where one
// stopped.
#include <cmath>

#include "engine/ops.h"
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {
namespace {

// Every state in parts, one for each rank.
struct Parts {
  eng_part part{};
  eng_id id = 0;
};

eng_status create_parts(const eng_options*, eng_build* b, void** self, eng_error* error) {
  auto made = std::make_unique<Parts>();
  made->part = {sizeof(eng_part), 0, 0, 1};
  if (const eng_status s = b->api->world(b, &made->part.index, &made->part.count, error); s != ENG_OK) return s;
  if (const eng_status s = b->api->part(b, &made->part, &made->id, error); s != ENG_OK) return s;
  *self = made.release();
  return ENG_OK;
}

eng_status place_parts(void* self, const eng_unit*, int32_t role, eng_view* io, eng_error*) {
  io->part = role == ENG_ROLE_PARTIAL || role == ENG_ROLE_ACT ? 0 : static_cast<const Parts*>(self)->id;
  return ENG_OK;
}

eng_status move_parts(void* self, eng_build* b, const eng_move* m, eng_error* error) {
  const Parts& p = *static_cast<const Parts*>(self);
  eng_id moved = 0, dst = m->dst;
  const eng_attr group = {"group", 1, 0}, fold[] = {{"rows", p.part.count, 0}, {"dtype", m->to->dtype, 0}};
  if (m->role == ENG_ROLE_GRAD && m->from->part == 0) {
    b->api->emit(b, ENG_OP_ALL_TO_ALL, &m->src, 1, &moved, 1, &group, 1, nullptr);
    return b->api->emit(b, ENG_OP_FOLD, &moved, 1, &dst, 1, fold, 2, error);
  }
  return b->api->emit(b, ENG_OP_ALL_GATHER, &m->src, 1, &dst, 1, &group, 1, error);
}

const eng_axis in_parts = {sizeof(eng_axis),
                           0,
                           create_parts,
                           [](void* self) { delete static_cast<Parts*>(self); },
                           place_parts,
                           move_parts,
                           nullptr,
                           nullptr,
                           0,
                           0,
                           nullptr,
                           nullptr};

Course course_of(const Subject& s, Random& random, uint32_t ranks) {
  Course out = plain_course(s, random);
  out.optimizer = s.chosen<eng_optimizer>();
  out.ranks = ranks;
  return out;
}

std::string check_pieces(const Subject& s, Machine& on) {
  Random random = s.random("pieces");
  for (int round = 0; round < s.rounds; ++round) {
    Course course = course_of(s, random, static_cast<uint32_t>(pick(random, 2, 4)));
    const Results whole = results_of(course, on);
    course.zero = {"in parts", in_parts, Section()};
    const Results parts = results_of(course, on);
    if (const std::string d = first_difference(whole, parts); !d.empty())
      throw Broken(fmt::format("kept whole and in {} parts it gives other bits: {}", course.ranks, d));
    course.bucket = uint64_t{4} << 20;
    if (const std::string d = first_difference(parts, results_of(course, on)); !d.empty())
      throw Broken(fmt::format("in pieces of {} and {} bytes it gives other bits: {}", 1 << 16, 4 << 20, d));
  }
  return "2 to 4 ranks, pieces of two sizes";
}

std::string check_changes(const Subject& s, Machine& on) {
  Random random = s.random("changes");
  const Course course = course_of(s, random, 1);
  Training run(course, on);
  run.init();
  const Tensors before = run.tensors();
  for (int64_t k = 0; k < course.steps; ++k)
    for (float x : run.step())
      if (!std::isfinite(x)) throw Broken(fmt::format("the loss or norm of step {} is {}", k + 1, x));
  size_t changed = 0, states = 0;
  for (const auto& [name, value] : run.tensors()) {
    const bool parameter = run.team().plan(0).find(name, "parameter") != nullptr;
    for (int64_t e = 0; e < value.size() && parameter; ++e)
      if (!std::isfinite(value.at(e))) throw Broken(fmt::format("{}, element {} becomes {}", name, e, value.at(e)));
    if (!parameter) ++states;
    if (parameter && !first_difference(before.at(name), value).empty()) ++changed;
  }
  if (!changed) throw Broken(fmt::format("{} updates change no parameter", course.steps));
  return fmt::format("{} parameters changed, {} states", changed, states);
}

std::string check_skip(const Subject& s, Machine& on) {
  Random random = s.random("skip");
  for (int round = 0; round < s.rounds; ++round) {
    const Course course = course_of(s, random, 1);
    Training run(course, on);
    run.init();
    run.step();
    // A parameter that makes the loss, and so the norm of the gradients, infinite.
    run.put("norm", "parameter", 0, std::numeric_limits<double>::infinity());
    const Tensors before = run.tensors();
    const std::vector<float> numbers = run.step();
    if (std::isfinite(numbers.back())) throw Untested("the norm of the gradients stayed finite");
    for (const auto& [name, value] : run.tensors())
      if (const std::string d = first_difference(before.at(name), value); !d.empty())
        throw Broken(fmt::format("scalars[ENG_S_OK] is 0, but {} changes: {}", name, d));
  }
  return "parameters and states keep their bits";
}

std::string check_resume(const Subject& s, Machine& on) {
  Random random = s.random("resume");
  Course course = course_of(s, random, 1);
  course.steps = 4;
  const Results whole = results_of(course, on);
  Tensors half;
  {
    Training run(course, on);
    run.init();
    run.step(), run.step();
    half = run.tensors();
  }
  Training run(course, on);
  run.init();
  run.load(half, 2, 2);
  Results again;
  again.numbers = {whole.numbers[0], whole.numbers[1], run.step(), run.step()};
  again.tensors = run.tensors();
  if (const std::string d = first_difference(whole, again); !d.empty())
    throw Broken("4 updates, and 2 with the tensors handed to a new object for 2 more, differ: " + d);
  return "4 updates = 2 + a new object + 2";
}

std::string check_scalars(const Subject& s) {
  const auto chosen = s.chosen<eng_optimizer>();
  const Optimizer one = make_optimizer(chosen.name, chosen.table, chosen.options, {100, 0.01});
  const Optimizer two = make_optimizer(chosen.name, chosen.table, chosen.options, {100, 0.01});
  std::vector<std::vector<float>> first;
  for (uint64_t k = 1; k <= 100; ++k) first.push_back(one.scalars(k));
  for (uint64_t k = 100; k >= 1; --k) {
    const auto again = two.scalars(k);
    if (again.size() != first[0].size())
      throw Broken(
          fmt::format("scalars gives {} numbers for update 1 and {} for update {}", first[0].size(), again.size(), k));
    if (!again.empty() && std::memcmp(again.data(), first[k - 1].data(), again.size() * sizeof(float)) != 0)
      throw Broken(
          fmt::format("scalars for update {} depend on what was asked before, or differ between two objects", k));
    for (float x : again)
      if (!std::isfinite(x)) throw Broken(fmt::format("a scalar of update {} is {}", k, x));
  }
  return fmt::format("{} numbers for each of 100 updates", first[0].size());
}

std::string check_threads(const Subject& s, const std::string& device) {
  Random random = s.random("threads");
  const Course course = course_of(s, random, 1);
  const auto one = machine(s, device, 1), many = machine(s, device, 4);
  if (const std::string d = first_difference(results_of(course, *one), results_of(course, *many)); !d.empty())
    throw Broken("one thread and four give other bits: " + d);
  if (const std::string d = first_difference(results_of(course, *one), results_of(course, *one)); !d.empty())
    throw Broken("two equal runs differ: " + d);
  return "1 and 4 threads";
}

}  // namespace

void test_optimizer(const Subject& s, Sheet& sheet) {
  std::unique_ptr<Machine> on;
  std::string device;
  const bool made = sheet.check("create", [&] {
    const auto table = s.table<eng_optimizer>();
    const Section section = s.section().with("train.steps", int64_t{3}).with("train.peak_rate", 0.01);
    const Watched options(section);
    Sink sink;
    void* self = nullptr;
    check_made(table.create(options.get(), &self, sink.get()), sink, options.misuse());
    table.destroy(self);
    load_ops(s.registry);
    std::string why;
    for (const char* name : {"cpu", "reference"}) try {
        on = machine(s, name, 2), device = name;
        Random random = s.random("create");
        Training run(course_of(s, random, 1), *on);
        return fmt::format("planned on device {}", name);
      } catch (const Untested&) {
        throw;
      } catch (const std::exception& e) {
        why += (why.empty() ? "" : "; ") + std::string(e.what());
      }
    throw Broken(why);
  });
  if (!made) return;
  sheet.check("scalars are a pure function", [&] { return check_scalars(s); });
  if (!sheet.check("an update changes parameters", [&] { return check_changes(s, *on); })) return;
  sheet.check("pieces as the whole", [&] { return check_pieces(s, *on); });
  sheet.check("a skipped update changes nothing", [&] { return check_skip(s, *on); });
  sheet.check("resume", [&] { return check_resume(s, *on); });
  sheet.check("threads and repetitions", [&] { return check_threads(s, device); });
}

}  // namespace eng::plugin_test
