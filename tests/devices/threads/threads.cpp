// SPDX-License-Identifier: Apache-2.0
// The test communicator "threads": the ranks are threads of one process. Its collectives work on the host, in memory of
// the host.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/comm.h"
#include "engine/ops.h"
#include "engine/plugin.h"

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.engine.test.threads'\n"
    "name = 'threads'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'ranks that are threads of one process'\n"
    "[[provides]]\n"
    "kind = '" ENG_COMM_DRAFT
    "'\n"
    "name = 'threads'\n"
    "summary = 'between threads'\n"
    "[provides.options.rank]\n"
    "type = 'int'\n"
    "default = 0\n"
    "help = 'which one this is'\n"
    "[provides.options.size]\n"
    "type = 'int'\n"
    "default = 1\n"
    "help = 'of how many'\n"
    "[provides.options.world]\n"
    "type = 'int'\n"
    "default = 0\n"
    "help = 'those of one number belong together'\n"
    "[[provides]]\n"
    "kind = '" ENG_KERNELS_DRAFT
    "'\n"
    "name = 'threads'\n"
    "summary = 'collectives that copy'\n")

namespace {

struct Failure {
  eng_status status;
  std::string text;
};

template <class Body>
eng_status guarded(eng_error* sink, Body&& body) noexcept {
  eng_status status = ENG_INTERNAL;
  std::string text = "no memory";
  try {
    body();
    return ENG_OK;
  } catch (const Failure& e) {
    status = e.status, text = e.text;
  } catch (const std::exception& e) {
    text = e.what();
  }
  if (sink && sink->set) sink->set(sink, status, text.data(), text.size());
  return status;
}

// Members meet; each sees what the others have brought until all have left.
class Meeting {
 public:
  explicit Meeting(size_t members) : brought_(members) {}
  // `use` is called with what every member brought.
  template <class Use>
  void meet(size_t member, const void* mine, double deadline, const bool& aborted, Use use) {
    brought_[member] = mine;
    pass(deadline, aborted);
    use(brought_);
    pass(deadline, aborted);
  }

 private:
  void pass(double deadline, const bool& aborted) {
    std::unique_lock lock(mutex_);
    const size_t round = round_;
    if (++here_ == brought_.size()) {
      here_ = 0, ++round_;
      changed_.notify_all();
      return;
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(deadline);
    while (round_ == round) {
      changed_.wait_for(lock, std::chrono::milliseconds(20));
      if (aborted || std::chrono::steady_clock::now() > end)
        throw Failure{ENG_UNAVAILABLE, aborted ? "another rank has left" : "other ranks are missing"};
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t here_ = 0, round_ = 0;
  std::vector<const void*> brought_;
};

struct World {
  explicit World(uint32_t n) : size(n), exchange(n) {}
  const uint32_t size;
  bool aborted = false;
  Meeting exchange;
  std::mutex mutex;  // of the groups
  std::map<eng_id, std::pair<std::vector<uint32_t>, std::unique_ptr<Meeting>>> groups;
};

struct Comm {
  std::shared_ptr<World> world;
  uint32_t rank;
  double deadline;
};

Comm& of(void* self) {
  return *static_cast<Comm*>(self);
}

void add_group(World& world, eng_id id, std::vector<uint32_t> ranks) {
  const std::lock_guard lock(world.mutex);
  auto& group = world.groups[id];
  if (group.second) return;
  const size_t n = ranks.size();
  group = {std::move(ranks), std::make_unique<Meeting>(n)};
}

int64_t number(const eng_options* options, const char* key) {
  int64_t value = 0;
  options->get_int(options, key, &value, nullptr);
  return value;
}

eng_status create(const eng_options* options, double deadline, eng_world* out, void** self, eng_error* sink) {
  return guarded(sink, [&] {
    static std::mutex mutex;
    static std::map<int64_t, std::weak_ptr<World>> worlds;
    const auto size = static_cast<uint32_t>(number(options, "size"));
    const std::lock_guard lock(mutex);
    auto& known = worlds[number(options, "world")];
    auto world = known.lock();
    if (!world) known = world = std::make_shared<World>(size);
    const auto rank = static_cast<uint32_t>(number(options, "rank"));
    std::vector<uint32_t> all;
    for (uint32_t r = 0; r < size; ++r) all.push_back(r);
    add_group(*world, 1, all);
    out->rank = out->local_rank = rank, out->size = out->local_size = size;
    *self = new Comm{world, rank, deadline};
  });
}
void destroy(void* self) {
  delete &of(self);
}
eng_status group(void* self, eng_id id, const uint32_t* ranks, uint32_t n, eng_error* sink) {
  return guarded(sink, [&] { add_group(*of(self).world, id, {ranks, ranks + n}); });
}
eng_status exchange(void* self, const void* mine, uint64_t bytes, void* all, eng_error* sink) {
  Comm& comm = of(self);
  return guarded(sink, [&] {
    comm.world->exchange.meet(comm.rank, mine, comm.deadline, comm.world->aborted, [&](const auto& brought) {
      for (size_t r = 0; r < brought.size() && bytes; ++r)
        std::memcpy(static_cast<char*>(all) + r * bytes, brought[r], bytes);
    });
  });
}
eng_status poll(void*, eng_error*) {
  return ENG_OK;
}
void stop_all(void* self, const char*) {
  of(self).world->aborted = true;
}

const eng_comm comm_table = {sizeof(eng_comm), 0, create, destroy, group, exchange, poll, stop_all, 4096};

// ---- collectives -------------------------------------------------------------------------------------
enum class Kind { gather, to_all, broadcast };

struct Collective {
  Comm* comm;
  Kind kind;
  eng_id group;
  int64_t root;
  uint64_t bytes;  // of the input
  const char* in = nullptr;
  char* out = nullptr;
};

eng_status workspace(const eng_call*, uint64_t* bytes, eng_error*) {
  *bytes = 0;
  return ENG_OK;
}

template <Kind kind>
eng_status prepare(void* device, const eng_call* call, void** state, eng_error* sink) {
  return guarded(sink, [&] {
    auto made = std::make_unique<Collective>(Collective{&of(device), kind, 1, 0, 0});
    for (uint32_t k = 0; k < call->n_attrs; ++k) {
      if (!std::strcmp(call->attrs[k].key, "group")) made->group = static_cast<eng_id>(call->attrs[k].i);
      if (!std::strcmp(call->attrs[k].key, "root")) made->root = call->attrs[k].i;
    }
    const eng_desc& d = call->in[0];
    const auto one_of = [&](std::initializer_list<int32_t> types) {
      return std::find(types.begin(), types.end(), d.dtype) != types.end();
    };
    made->bytes = one_of({ENG_F64, ENG_I64}) ? 8 : one_of({ENG_BF16, ENG_F16}) ? 2 : one_of({ENG_U8}) ? 1 : 4;
    for (uint32_t k = 0; k < d.ndim; ++k) made->bytes *= static_cast<uint64_t>(d.dims[k]);
    *state = made.release();
  });
}
eng_status bind(void* state, const DLTensor* const* args, uint32_t n, void*, void** record, eng_error* sink) {
  return guarded(sink, [&] {
    auto made = std::make_unique<Collective>(*static_cast<const Collective*>(state));
    made->in = static_cast<const char*>(args[0]->data), made->out = static_cast<char*>(args[n - 1]->data);
    *record = made.release();
  });
}
eng_status launch(void* record, const eng_exec*, eng_error* sink) {
  const Collective& c = *static_cast<const Collective*>(record);
  return guarded(sink, [&] {
    World& world = *c.comm->world;
    auto& [ranks, meeting] = world.groups.at(c.group);
    size_t me = 0;
    while (ranks[me] != c.comm->rank) ++me;
    const size_t n = ranks.size();
    meeting->meet(me, c.in, c.comm->deadline, world.aborted, [&](const std::vector<const void*>& brought) {
      const auto from = [&](size_t r) { return static_cast<const char*>(brought[r]); };
      const auto move = [](char* to, const char* source, uint64_t bytes) {
        if (to != source) std::memcpy(to, source, bytes);
      };
      const uint64_t part = c.bytes / n;
      if (c.kind == Kind::broadcast) return move(c.out, from(static_cast<size_t>(c.root)), c.bytes);
      for (size_t r = 0; r < n; ++r)
        if (c.kind == Kind::gather)
          move(c.out + r * c.bytes, from(r), c.bytes);
        else
          move(c.out + r * part, from(r) + me * part, part);
    });
  });
}
void drop(void* what) {
  delete static_cast<Collective*>(what);
}

constexpr eng_kernel gather = {
    sizeof(eng_kernel), 0, ENG_OP_ALL_GATHER, workspace, prepare<Kind::gather>, bind, launch, drop, drop};
constexpr eng_kernel to_all = {
    sizeof(eng_kernel), 0, ENG_OP_ALL_TO_ALL, workspace, prepare<Kind::to_all>, bind, launch, drop, drop};
constexpr eng_kernel broadcast = {
    sizeof(eng_kernel), 0, ENG_OP_BROADCAST, workspace, prepare<Kind::broadcast>, bind, launch, drop, drop};
const eng_kernel* const list[] = {&gather, &to_all, &broadcast};
const eng_kernels kernels = {sizeof(eng_kernels), 3, list};

const char* describe() {
  return eng_description;
}
eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}
void stop() {}
const void* get_interface(const char* kind, const char* name) {
  if (std::strcmp(name, "threads") != 0) return nullptr;
  if (std::strcmp(kind, ENG_COMM_KIND) == 0) return &comm_table;
  if (std::strcmp(kind, ENG_KERNELS_KIND) == 0) return &kernels;
  return nullptr;
}
const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
