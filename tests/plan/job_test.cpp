// SPDX-License-Identifier: Apache-2.0
// A job in a plan: its programs, its sites, what stays out, and its faults by name.
#include <catch2/catch.hpp>

#include "core/plan/hooks.hpp"
#include "core/plan/plan.hpp"
#include "core/verify/verify.hpp"
#include "session/config/schemas.hpp"
#include "session/planning/setup.hpp"
#include "sketch.hpp"
#include "synthetic.hpp"

using namespace sketch;
using Catch::Contains;

namespace job_plan_test {
namespace {

// A job as functions.
struct Worker {
  std::function<eng_status(eng_build*, const eng_update&, eng_error*)> emit = [](eng_build* b, const eng_update& u,
                                                                                 eng_error* error) {
    const eng_attr half = {"factor", 0, 0.5};
    eng_id out = u.stage ? u.master : u.states[0];
    return b->api->emit(b, ENG_OP_SCALE, &u.master, 1, &out, 1, &half, 1, error);
  };
  std::function<eng_desc(const eng_job_site&)> site = [](const eng_job_site&) { return eng_desc{}; };
  std::function<eng_status(eng_build*, eng_id value, eng_id into, eng_error*)> observe =
      [](eng_build* b, eng_id value, eng_id into, eng_error* error) {
        const eng_id in[2] = {into, value};
        return b->api->emit(b, ENG_OP_ADD, in, 2, &into, 1, nullptr, 0, error);
      };
  uint32_t programs = 2;
  uint64_t writes = 2;

  eng::Job job() {
    eng::Job out;
    out.name = out.asked.name = "worker", out.asked.kind = "job";
    out.info.programs = programs, out.info.writes = writes;
    out.self = out.asked.self = std::shared_ptr<void>(this, [](void*) {});
    out.table.host_bytes = [](void*, const eng_parameter* const*, uint32_t, const eng_job_site* const*, uint32_t,
                              uint64_t*, eng_error*) -> eng_status { return ENG_OK; };
    out.table.site = [](void* self, const eng_job_site* s, eng_desc* desc, eng_error*) {
      *desc = static_cast<Worker*>(self)->site(*s);
      return eng_status{ENG_OK};
    };
    out.table.observe = [](void* self, eng_build* b, const eng_job_site*, eng_id value, eng_id into, eng_error* e) {
      return static_cast<Worker*>(self)->observe(b, value, into, e);
    };
    out.asked.table.granularity = 1;
    out.asked.table.states = [](void*, eng_state_rule* rules, uint32_t, uint32_t* n, eng_error*) {
      rules[0].name = "kept", rules[0].dtype = ENG_F32, *n = 1;
      return eng_status{ENG_OK};
    };
    out.asked.table.update = [](void* self, eng_build* b, const eng_update* u, eng_error* e) {
      return static_cast<Worker*>(self)->emit(b, *u, e);
    };
    out.asked.groups.push_back(std::make_shared<eng::Optimizer::Group>(eng::Section()));
    out.values.push_back({"done", eng::make_desc(ENG_I64, {2})});
    return out;
  }
};

struct Chain : Sketch {
  Chain() {
    param("table", {8, 4}), param("w", {4, 4}), param("head", {8, 4});
    blocks = {{"embed", 0, {0}}, {"layer", 1, {1}}, {"head", 2, {2}}};
    trace = [](eng_build* b, uint32_t tmpl, const eng_id* p, const std::vector<eng_id>& in) {
      if (tmpl == 0) return std::vector{eng_embedding(b, batch(b, "tokens"), p[0])};
      if (tmpl == 1) return std::vector{eng_activation(b, eng_linear(b, in[0], p[0], 0), ENG_ACT_RELU)};
      return std::vector{eng_cross_entropy(b, in[0], p[0], batch(b, "labels"))};
    };
  }
};

eng::Plan plan(Worker& worker, int32_t dtype = ENG_F32) {
  const Chain chain;
  const eng::Model model = chain.model(2, 3, dtype);
  const eng::Precision precision = OneDtype{dtype}.policy();
  const eng::Job job = worker.job();
  eng::PlanRequest request{model, precision, &job.asked, "cpu", {}};
  request.job = &job;
  request.keep_gradients = true;
  return eng::make_plan(request);
}

std::string fault(Worker& worker) {
  try {
    plan(worker);
    return "";
  } catch (const eng::Error& e) {
    return e.what();
  }
}

std::vector<std::string> ops(const eng::Plan& plan, const std::string& program) {
  std::vector<std::string> out;
  for (const auto& segment : plan.program(program).segments)
    for (const auto& action : segment.actions) out.push_back(plan.calls[action.call].op->id);
  return out;
}

}  // namespace

TEST_CASE("a job's programs run over every parameter, and training updates nothing") {
  Worker worker;
  const eng::Plan made = plan(worker);
  CHECK(ops(made, eng::job_program(0)) == std::vector<std::string>(3, ENG_OP_SCALE));
  CHECK(ops(made, eng::job_program(1)) == std::vector<std::string>(3, ENG_OP_SCALE));
  for (const std::string& id : ops(made, "train")) CHECK((id != ENG_OP_FINISH && id != ENG_OP_SUM_SQUARES));
  CHECK_FALSE(made.table.buffer);
  for (const char* role : {"parameter", "gradient", "kept"}) CHECK(made.find("w", role));
  REQUIRE(made.find("job.worker.done", "value"));
  CHECK(eng::bytes(made.find("job.worker.done", "value")->desc) == 16);
  CHECK(made.buffer(made.find("w", "gradient")->ranges[0].view.buffer).persistent);
}

TEST_CASE("states of a job have the rule's type whatever the precision policy says") {
  Worker worker;
  worker.emit = [](eng_build*, const eng_update&, eng_error*) { return eng_status{ENG_OK}; };
  const eng::Plan made = plan(worker, ENG_BF16);
  CHECK(made.find("w", "parameter")->desc.dtype == ENG_BF16);
  CHECK(made.find("w", "kept")->desc.dtype == ENG_F32);
}

TEST_CASE("sites are the outputs that a job takes, and its ops follow the op") {
  Worker worker;
  std::vector<std::string> shown;
  worker.site = [&](const eng_job_site& s) {
    shown.push_back(std::string(s.block) + " " + s.op + " " + std::to_string(s.number));
    return std::string(s.op) == ENG_OP_ACTIVATION ? *s.shape : eng_desc{};
  };
  const eng::Plan made = plan(worker);
  CHECK(shown == std::vector<std::string>{"embed eng.embedding/1 0", "layer eng.linear/1 0", "layer eng.activation/1 0",
                                          "head eng.cross_entropy/1 1"});
  REQUIRE(made.sites.size() == 1);
  CHECK(made.find("site 0", "site"));
  const std::vector<std::string> with = ops(made, eng::eval_with_sites), without = ops(made, "eval");
  CHECK(with.size() == without.size() + 1);
  const auto at = std::find(with.begin(), with.end(), ENG_OP_ACTIVATION);
  REQUIRE(at != with.end());
  CHECK(*(at + 1) == ENG_OP_ADD);
}

TEST_CASE("the faults of jobs are told by name") {
  Worker worker;
  CHECK(fault(worker) == "");
  worker.writes = 0;
  CHECK_THAT(fault(worker), Contains("job worker: eng.scale/1: output 0 is a value that may only be read"));
  worker.writes = 2;
  worker.emit = [](eng_build* b, const eng_update& u, eng_error* error) {
    const eng_attr half = {"factor", 0, 0.5};
    eng_id out = u.grad;
    return b->api->emit(b, ENG_OP_SCALE, &u.master, 1, &out, 1, &half, 1, error);
  };
  CHECK_THAT(fault(worker), Contains("job worker: eng.scale/1: output 0 is a value that may only be read"));
  worker.emit = [](eng_build*, const eng_update&, eng_error* e) { return eng::report(e, ENG_INTERNAL, "not today"); };
  CHECK_THAT(fault(worker), Contains("job worker: not today"));
  worker.emit = Worker().emit;
  worker.site = [](const eng_job_site& s) { return *s.shape; };
  worker.observe = [](eng_build* b, eng_id value, eng_id, eng_error* e) {
    const eng_attr half = {"factor", 0, 0.5};
    return b->api->emit(b, ENG_OP_SCALE, &value, 1, &value, 1, &half, 1, e);
  };
  CHECK_THAT(fault(worker),
             Contains("job worker, output 0 of eng.embedding/1 in embed: eng.scale/1: output 0 is a value"));
  worker.site = [](const eng_job_site&) { return eng::make_desc(ENG_I32, {1}); };
  CHECK_THAT(fault(worker), Contains("the tensor of the site is i32 (1); a site's tensor is i64, f32 or f64"));
  worker.site = [](const eng_job_site&) { return eng::make_desc(ENG_F32, {-1}); };
  CHECK_THAT(fault(worker), Contains("job worker, output 0 of eng.embedding/1 in embed: the tensor of the site"));
}

// Programs that the verifier accepts without a wait are run in other orders, which must change nothing.
TEST_CASE("the verifier asks for every wait of a job's programs that matters") {
  Worker worker;
  const eng::Job job = worker.job();
  int all = 0, found = 0;
  for (const char* strategy : {"zero1", "zero2", "zero3"}) {
    const eng::Config config = eng::Config::parse(
        "[model]\nplugin = 'llama'\npreset = 'tiny'\nnum_hidden_layers = 2\n[train]\nmicro_batch = 1\n"
        "sequence_length = 8\n",
        "test.toml", ".", {"device.plugin=reference", std::string("zero.plugin=") + strategy, "zero.bucket=65536"},
        eng::schemas_of(sketch::registry()));
    const eng::Setup setup = eng::make_setup(config, sketch::registry(), 0, {0, 2, 0, 1}, nullptr, {.job = &job});
    for (uint32_t k = 0; k < 2; ++k) {
      eng::Plan one = setup.plan;
      one.programs = {one.program(eng::job_program(k))};
      REQUIRE(eng::problems(one, 1).empty());
      auto& actions = one.programs[0].segments[0].actions;
      for (eng::Action& action : actions)
        for (size_t w = 0; w < action.waits.size(); ++w) {
          const auto before = action.waits;
          action.waits.erase(action.waits.begin() + static_cast<int64_t>(w));
          ++all;
          if (eng::problems(one, 1).empty())
            CHECK(synthetic::agrees(one, 1, 3, 4));
          else
            ++found;
          action.waits = before;
        }
    }
  }
  INFO(found << " of " << all);
  CHECK(all > 10);
  CHECK(found > all / 2);
}

}  // namespace job_plan_test
