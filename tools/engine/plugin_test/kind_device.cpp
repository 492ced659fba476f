// SPDX-License-Identifier: Apache-2.0
// eng.device/1: arenas, copies, queues and events, and a plan that trains on it as on the reference device.
#include <cmath>

#include "core/execute/executor.hpp"
#include "core/program/program.hpp"
#include "engine/ops.h"
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {
namespace {

std::string check_arenas(Device& device, const eng_device_info& info, Random& random) {
  for (const int32_t memory : {ENG_MEMORY_DEVICE, ENG_MEMORY_PINNED, ENG_MEMORY_HOST})
    for (const uint64_t bytes : {uint64_t{4096}, uint64_t{4096} * 77, uint64_t{3} << 20}) {
      if (memory != ENG_MEMORY_DEVICE && (info.flags & ENG_DEVICE_HOST_MEMORY)) continue;
      const std::string what = fmt::format("an arena of {} bytes, memory {}", bytes, memory);
      void *one = device.alloc(memory, bytes), *two = device.alloc(memory, bytes);
      std::vector<uint8_t> given(bytes), back(bytes, 1);
      device.download(back.data(), one, bytes);
      device.sync();
      if (std::any_of(back.begin(), back.end(), [](uint8_t b) { return b != 0; }))
        throw Broken(what + " is not zero at first");
      for (uint8_t& b : given) b = static_cast<uint8_t>(random());
      device.upload(one, given.data(), bytes);
      std::fill(back.begin(), back.end(), uint8_t{0xEE});
      device.upload(two, back.data(), bytes);
      for (int k = 0; k < 30; ++k) {
        const uint64_t n = 1 + random() % std::min<uint64_t>(bytes, 9000), first = random() % (bytes - n + 1);
        std::vector<uint8_t> part(n);
        device.download(part.data(), static_cast<uint8_t*>(one) + first, n);
        if (std::memcmp(part.data(), given.data() + first, n) != 0)
          throw Broken(
              fmt::format("{}: {} bytes from byte {} on do not come back as they were uploaded", what, n, first));
        for (uint8_t& b : part) b = static_cast<uint8_t>(random());
        std::memcpy(given.data() + first, part.data(), n);
        device.upload(static_cast<uint8_t*>(one) + first, part.data(), n);
      }
      device.download(back.data(), two, bytes);
      if (std::any_of(back.begin(), back.end(), [](uint8_t b) { return b != 0xEE; }))
        throw Broken("two arenas share bytes");
      device.free(memory, one, bytes), device.free(memory, two, bytes);
    }
  return "zero, apart; uploads come back";
}

// Waits of events hold, with copies as the work.
std::string check_queues(Machine& on) {
  Device& device = on.device();
  const eng_device& table = device.table();
  if (!(on.info().flags & ENG_DEVICE_ASYNC)) throw Untested("it is synchronous");
  void *queue = nullptr, *other = nullptr, *event = nullptr;
  device.call("queue_create", table.queue_create, &queue);
  device.call("queue_create", table.queue_create, &other);
  device.call("event_create", table.event_create, int32_t{0}, &event);
  device.call("event_wait", table.event_wait, event, other);  // never recorded: it stands for nothing
  device.call("sync", table.sync, other);
  for (int k = 0; k < 50; ++k) {
    device.call("event_record", table.event_record, event, queue);
    device.call("event_wait", table.event_wait, event, other);
    if (table.event_sync) device.call("event_sync", table.event_sync, event);
  }
  device.call("sync", table.sync, queue);
  device.sync();
  table.event_destroy(device.self(), event);
  table.queue_destroy(device.self(), queue), table.queue_destroy(device.self(), other);
  return "queues, events";
}

struct Trained {
  std::vector<float> numbers;
};

// Some steps of the sample model by the executor, as a run does it.
Trained train(const Subject& s, Machine& on, Random random, bool graphs) {
  const Section options = sample_options(random);
  const Precision precision = make_precision("plain", plain_precision, Section());
  const auto chosen = usual_optimizer(s);
  const Optimizer optimizer = make_optimizer(chosen.name, chosen.table, chosen.options, {3, 0.01});
  const Model model = trace_model("sample", sample_model, options, 2, 12, ENG_F32);
  PlanRequest request{model, precision, &optimizer, on.name(), {}};
  request.workspace = [&](const Call& call) { return on.kernels().workspace(call); };
  request.steps = 3, request.grad_clip = 1, request.accumulate = 2;
  request.traits.discrete = !on.kernels().host_memory(), request.traits.queues = on.info().flags & ENG_DEVICE_ASYNC;
  const Plan plan = make_plan(request);
  Executor executor(plan, on.device(), on.kernels(), nullptr, graphs);
  executor.run("init");
  std::vector<float> rows;
  for (uint64_t k = 1; k <= 3; ++k) {
    rows.push_back(0.01f);
    for (float x : optimizer.scalars(k)) rows.push_back(x);
  }
  executor.upload(plan.table, rows.data());
  const int64_t counters[ENG_C_COUNT] = {};
  executor.upload(plan.counters, counters);
  Trained out;
  for (int step = 0; step < 3; ++step) {
    const int64_t n = count(plan.field("tokens").desc);
    for (int64_t k = 0; k < n; ++k) {
      executor.host<int32_t>(plan.field("tokens"))[k] =
          static_cast<int32_t>(pick(random, 0, model.info.vocabulary - 1));
      executor.host<int32_t>(plan.field("labels"))[k] =
          static_cast<int32_t>(pick(random, 0, model.info.vocabulary - 1));
    }
    executor.host<float>(plan.inputs)[0] = 1 / static_cast<float>(n);
    executor.run("train");
    for (int64_t k = 0; k < count(plan.losses.desc); ++k) out.numbers.push_back(executor.host<float>(plan.losses)[k]);
    out.numbers.push_back(executor.host<float>(plan.results)[ENG_S_NORM]);
  }
  return out;
}

std::string check_training(const Subject& s, Machine& on) {
  const Random random = s.random("training");
  const Trained one = train(s, on, random, true), again = train(s, on, random, false);
  if (std::memcmp(one.numbers.data(), again.numbers.data(), one.numbers.size() * sizeof(float)) != 0)
    throw Broken("two equal runs, with and without graphs, differ");
  const std::string name = s.one.name == "reference" ? "cpu" : "reference";
  const auto other = machine(s, name, 1);
  const Trained theirs = train(s, *other, random, true);
  for (size_t k = 0; k < one.numbers.size(); ++k) {
    const double a = one.numbers[k], b = theirs.numbers[k];
    if (!(std::fabs(a - b) <= 2e-3 * std::fabs(b)))
      throw Broken(fmt::format("loss or norm {} is {:.7g}, device {} has {:.7g}", k, a, name, b));
  }
  return fmt::format("3 steps as on device {}", name);
}

}  // namespace

void test_device(const Subject& s, Sheet& sheet) {
  std::unique_ptr<Machine> on;
  const bool made = sheet.check("describe, create", [&] {
    const Section section = s.section();
    const Watched options(section);
    const auto table = s.table<eng_device>();
    eng_device_info info{}, again{};
    info.struct_size = again.struct_size = sizeof info;
    Sink sink;
    check_made(table.describe(options.get(), &info, sink.get()), sink, options.misuse());
    check_made(table.describe(options.get(), &again, sink.get()), sink, options.misuse());
    if (std::memcmp(&info, &again, sizeof info) != 0) throw Broken("describe gives two answers for the same options");
    const Kernels kernels(s.registry, s.one.name, section);  // refuses numbers that cannot be
    void* self = nullptr;
    check_made(table.create(options.get(), 0, &self, sink.get()), sink, options.misuse());
    table.destroy(self);
    if (table.inspect) {
      std::string text(65536, '\x7f');
      uint64_t size = 0;
      sink.check(table.inspect(options.get(), text.data(), 4096, &size, sink.get()), Exit::environment, "inspect");
      if (text.find_first_not_of('\x7f', 4096) != std::string::npos) throw Broken("inspect wrote beyond its capacity");
    }
    on = machine(s, s.one.name, 2);
    load_ops(s.registry);
    return fmt::format("{}, parallel {}", std::string(info.name), info.parallel);
  });
  if (!made) return;
  sheet.check("arenas and copies", [&] {
    Random random = s.random("arenas");
    return check_arenas(on->device(), on->info(), random);
  });
  sheet.check("queues and events", [&] { return check_queues(*on); });
  sheet.check("a run", [&] { return check_training(s, *on); });
}

}  // namespace eng::plugin_test
