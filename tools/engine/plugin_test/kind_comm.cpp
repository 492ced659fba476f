// SPDX-License-Identifier: Apache-2.0
// eng.comm/1: collectives of two processes that mpirun starts, against what they must give.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "core/execute/comm.hpp"
#include "engine/ops.h"
#include "session/plugins/program.hpp"
#include "session/ranks/ranks.hpp"
#include "tools/engine/mpirun.hpp"
#include "tools/engine/plugin_test/comm.hpp"

namespace eng::plugin_test {
namespace {

constexpr uint32_t ranks = 2;

// The value of element k that a rank gives.
double value(uint32_t rank, int64_t k, int32_t dtype) {
  const int64_t n = (k * 7 + rank * 131 + k / 64) % 100;
  return dtype == ENG_U8 || !is_float(dtype) ? static_cast<double>(n) : static_cast<double>(n) / 4 - 9;
}

Array given(uint32_t rank, int32_t dtype, int64_t count) {
  Array out(make_desc(dtype, {count}));
  for (int64_t k = 0; k < count; ++k) out.put(k, value(rank, k, dtype));
  return out;
}

struct Comm {
  Communicator& comm;
  Machine* machine;  // in whose memory the collectives work; null: in host memory
  eng_device_info info{};
};

// One collective, prepared, bound and launched twice. `own`: the input lies in the output, at its place.
Array run(Comm& c, const char* id, const Array& in, int64_t group, int64_t members, int64_t root, bool own,
          uint32_t index) {
  const Op& collective = op(id);
  Attrs attrs{{{"group", group, 0}, {"members", members, 0}, {"root", root, 0}}};
  Call call{&collective, {in.desc}, {}, attrs};
  const std::string wrong = infer(collective, call.in, attrs, call.out);
  if (!wrong.empty()) throw Error(Exit::bug, wrong);
  const eng_kernel& kernel = c.comm.find(call);
  const CallArgs args(call, 1, &c.info);
  Sink sink;
  uint64_t bytes_needed = 0;
  sink.check(args.workspace(kernel, bytes_needed, sink), Exit::environment, id);
  Bytes scratch(bytes_needed, 0xFF);
  Array from = in, out(call.out[0], 0xFF);
  const uint64_t place = own && std::string(id) == ENG_OP_ALL_GATHER ? index * from.bytes.size() : 0;
  if (own) std::memcpy(out.bytes.data() + place, from.bytes.data(), from.bytes.size());
  Stage stage(c.machine ? &c.machine->device() : nullptr);
  uint8_t *const to = stage.send(out.bytes), *const at = own ? to + place : stage.send(from.bytes),
                 *const scratch_at = bytes_needed ? stage.send(scratch) : nullptr;
  const int64_t one = 1;
  const DLDevice where = {c.machine ? static_cast<DLDeviceType>(c.info.dl_device_type) : kDLCPU,
                          c.machine ? c.info.dl_device_id : 0};
  const DLTensor tensors[] = {
      {at, where, 1, dtype_dlpack(in.desc.dtype), from.desc.dims, const_cast<int64_t*>(&one), 0},
      {to, where, 1, dtype_dlpack(in.desc.dtype), out.desc.dims, const_cast<int64_t*>(&one), 0}};
  const DLTensor* const views[] = {&tensors[0], &tensors[1]};
  void *state = nullptr, *record = nullptr;
  sink.check(kernel.prepare(c.comm.self(), args.get(), &state, sink.get()), Exit::environment, id);
  sink.check(kernel.bind(state, views, 2, scratch_at, &record, sink.get()), Exit::environment, id);
  const eng_exec exec = {sizeof(eng_exec), 0, c.machine ? c.machine->queue() : nullptr};
  for (int time = 0; time < 2; ++time) {
    if (time && own && std::string(id) != ENG_OP_ALL_GATHER) break;
    sink.check(kernel.launch(record, &exec, sink.get()), Exit::communication, id);
    if (c.machine) c.machine->device().sync();
  }
  if (record) kernel.drop_record(record);
  if (state) kernel.drop_state(state);
  stage.fetch(out.bytes, to);
  if (bytes_needed) stage.fetch(scratch, scratch_at);
  if (!own) stage.fetch(from.bytes, at);
  for (const auto& [bytes, what] :
       {std::pair(&out.bytes, "its output"), {&scratch, "its scratch"}, {&from.bytes, "its input"}})
    if (const std::string touched = bytes->touched(); !touched.empty())
      throw Broken(fmt::format("{} wrote {} of {}", id, touched, what));
  if (!own && !(from.bytes == in.bytes)) throw Broken(fmt::format("{} changes its input", id));
  return out;
}

void expect(const char* id, const Array& out, const std::function<double(int64_t)>& wanted, double tolerance,
            bool own) {
  for (int64_t k = 0; k < out.size(); ++k)
    if (!(std::fabs(out.at(k) - wanted(k)) <= tolerance))
      throw Broken(fmt::format("{} of {}{}: element {} is {:g}, not {:g}", id, describe(out.desc),
                               own ? " in place" : "", k, out.at(k), wanted(k)));
}

std::string check_collective(Comm& c, const char* id, const std::vector<uint32_t>& order, int64_t group) {
  const World world = c.comm.world();
  const bool sums = id == std::string(ENG_OP_REDUCE_SCATTER) || id == std::string(ENG_OP_ALL_REDUCE);
  const auto index = static_cast<uint32_t>(std::find(order.begin(), order.end(), world.rank) - order.begin());
  const auto members = static_cast<int64_t>(order.size());
  const auto rounded = [](int32_t dtype, double x) {
    Array one(make_desc(dtype, {1}));
    return one.put(0, x), one.at(0);
  };
  for (const int32_t dtype : {ENG_F32, ENG_BF16, ENG_I32, ENG_U8, ENG_F64})
    for (const int64_t each : {1, 7, 20000})
      for (const bool own : {false, true}) {
        if (sums && dtype != ENG_F32) continue;
        if (own && id == std::string(ENG_OP_ALL_TO_ALL)) continue;
        if (own && id == std::string(ENG_OP_REDUCE_SCATTER)) continue;
        const bool parts = id == std::string(ENG_OP_ALL_TO_ALL) || id == std::string(ENG_OP_REDUCE_SCATTER);
        const int64_t n = parts ? each * members : each, root = members - 1;
        const Array out = run(c, id, given(world.rank, dtype, n), group, members, root, own, index);
        const auto theirs = [&](int64_t member, int64_t k) {
          return rounded(dtype, value(order[static_cast<size_t>(member)], k, dtype));
        };
        expect(
            id, out,
            [&](int64_t k) {
              if (id == std::string(ENG_OP_ALL_GATHER)) return theirs(k / each, k % each);
              if (id == std::string(ENG_OP_ALL_TO_ALL)) return theirs(k / each, index * each + k % each);
              if (id == std::string(ENG_OP_BROADCAST)) return theirs(root, k);
              double sum = 0;
              for (int64_t m = 0; m < members; ++m)
                sum += theirs(m, id == std::string(ENG_OP_REDUCE_SCATTER) ? index * each + k : k);
              return sum;
            },
            sums ? 1e-4 : 0, own);
      }
  return "";
}

// The first device here with discrete memory. Throws Untested if there is none.
std::unique_ptr<Machine> machine_apart(const Subject& s, uint32_t local_rank) {
  std::string why = "no plugin provides one";
  for (const Candidate& file : s.registry.candidates())
    for (const Provided& one : file.description.provides)
      if (one.kind == ENG_DEVICE_KIND && one.refused.empty()) try {
          auto out = machine(s, one.name, 1, local_rank);
          if (!out->kernels().host_memory()) return out;
        } catch (const std::exception& e) {
          why = e.what();
        }
  throw Untested("its collectives take memory of a device: " + why);
}

}  // namespace

void test_rank(const Subject& s, Sheet& sheet) {
  const Announced said = Announced::read([](const char* name) -> const char* { return std::getenv(name); });
  std::unique_ptr<Machine> device;  // outlives the communicator
  std::unique_ptr<Communicator> comm;
  const bool made = sheet.check("create", [&] {
    const Section section = s.section("timeout = 30.0\n");
    const uint32_t announced = ENG_WORLD_RANKS | (said.local_rank ? ENG_WORLD_LOCAL : 0);
    comm = std::make_unique<Communicator>(s.registry, section,
                                          World{said.rank, said.size, said.local_rank.value_or(0), 1}, announced);
    const World world = comm->world();
    if (world.size != ranks || world.rank != said.rank)
      throw Broken(fmt::format("this is rank {} of {}, but create says rank {} of {}", said.rank, said.size, world.rank,
                               world.size));
    return fmt::format("{} ranks", world.size);
  });
  if (!made) return;
  sheet.check("exchange", [&] {
    for (const size_t n : {size_t{1}, size_t{100}, size_t{3} << 20}) {
      const auto all = comm->exchange(std::string(n, static_cast<char>('a' + said.rank)));
      for (size_t r = 0; r < all.size(); ++r)
        if (all[r] != std::string(n, static_cast<char>('a' + r)))
          throw Broken(fmt::format("exchange of {} bytes gives others for rank {}", n, r));
    }
    comm->exchange("");
    comm->check();
    return "";
  });
  // All ranks or none: those that have a device would wait for the others.
  if (!comm->on_host() && !sheet.check("memory of a device", [&] {
        std::string why;
        try {
          device = machine_apart(s, said.local_rank.value_or(0));
        } catch (const std::exception& e) {
          why = e.what();
        }
        for (const std::string& other : comm->exchange(why))
          if (!other.empty()) throw Untested(other);
        return "of " + device->name();
      }))
    return;
  Comm c{*comm, device.get(), {}};
  c.info.struct_size = sizeof c.info, c.info.parallel = 1;
  if (device) c.info = device->info();
  Ranks groups(World{said.rank, ranks, 0, 1});
  RanksBuilder builder(groups);
  const auto turned = static_cast<int64_t>(builder.group({1, 0}));
  if (!sheet.check("groups", [&] {
        comm->make_groups(groups);
        return "{0, 1}, {1, 0}";
      }))
    return;
  for (const char* id :
       {ENG_OP_ALL_GATHER, ENG_OP_ALL_TO_ALL, ENG_OP_BROADCAST, ENG_OP_ALL_REDUCE, ENG_OP_REDUCE_SCATTER})
    sheet.check(id, [&] {
      try {
        comm->find({&op(id), {make_desc(ENG_F32, {8})}, {make_desc(ENG_F32, {8})}, {}});
      } catch (const Error&) {
        if (id == std::string(ENG_OP_ALL_GATHER) || id == std::string(ENG_OP_ALL_TO_ALL)) throw;
        throw Untested("it has no such collective");
      }
      check_collective(c, id, {0, 1}, data_group);
      check_collective(c, id, {1, 0}, turned);
      comm->exchange("");
      comm->check();
      return "2 groups, 5 types, 1 to 20,000 elements";
    });
}

void test_comm(const Subject& s, Sheet& sheet) {
  std::filesystem::path mpirun;
  if (!sheet.check("two processes", [&] {
        s.section();
        try {
          mpirun = find_mpirun();
        } catch (const Error& e) {
          throw Untested(fmt::format("needs mpirun: {}", e.what()));
        }
        return "by mpirun";
      }))
    return;
  std::vector<std::string> words = {mpirun.string(),   "-n",        std::to_string(ranks),
                                    "--oversubscribe", "--bind-to", "none"};
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  for (const char* word : {"--mca", "plm", "isolated", "--mca", "ras", "^slurm,gridengine,tm,lsf", "--mca",
                           "oob_tcp_if_include", "lo", "--mca", "pml", "ob1", "--mca", "btl",
                           "^tcp,ofi,openib,uct,usnic", "--mca", "btl_base_warn_component_unused", "0"})
    words.emplace_back(word);
  words.insert(words.end(), {program_file().string(), "plugins", "test", s.file.path.string(), "--kind", s.one.kind,
                             "--name", s.one.name, "--rank-of", s.scratch.string()});
  words.insert(words.end(), s.given.begin(), s.given.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  // The findings of the ranks: one file each, a check and its outcome in a line.
  std::map<std::string, Verdict> found;
  std::vector<std::string> order;
  for (uint32_t r = 0; r < ranks; ++r) {
    std::ifstream file(s.scratch / fmt::format("rank-{}", r));
    for (std::string outcome, check, text;
         std::getline(file, outcome, '\t') && std::getline(file, check, '\t') && std::getline(file, text);) {
      if (!found.count(check)) order.push_back(check);
      Verdict& v = found[check];
      const auto now = static_cast<Outcome>(std::atoi(outcome.c_str()));
      if (v.check.empty() || (v.outcome != Outcome::fail && now != Outcome::pass))
        v = {"", check, now, now == Outcome::fail ? fmt::format("rank {}: {}", r, text) : text};
    }
  }
  for (const std::string& check : order)
    sheet.check(check, [&]() -> std::string {
      const Verdict& v = found[check];
      if (v.outcome == Outcome::fail) throw Broken(v.text);
      if (v.outcome == Outcome::untested) throw Untested(v.text);
      return v.text;
    });
  if (order.empty() || !WIFEXITED(status) || WEXITSTATUS(status) > 3)
    sheet.fail("the ranks end", WIFSIGNALED(status)
                                    ? "mpirun was killed"
                                    : fmt::format("mpirun ended with exit code {}", WEXITSTATUS(status)));
}

}  // namespace eng::plugin_test
