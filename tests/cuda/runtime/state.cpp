// SPDX-License-Identifier: Apache-2.0
// The environment, and the order in which work is done.
#include "state.hpp"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

namespace softcuda {

thread_local int current = 0;
thread_local cudaError_t last = cudaSuccess;

namespace {

// The sizes in the engine's card files: session/cards.
constexpr double gib = 1073741824.0;
const std::map<std::string, Card> cards = {
    {"a100-40g", {"A100-40G", 8, 0, 108, 1410000, 1215000, 5120, uint64_t(39.39 * gib)}},
    {"a100-80g", {"A100-80G", 8, 0, 108, 1410000, 1593000, 5120, uint64_t(79.14 * gib)}},
    {"a800-80g", {"A800-80G", 8, 0, 108, 1410000, 1593000, 5120, uint64_t(79.14 * gib)}},
    {"h100-80g", {"H100-80G", 9, 0, 132, 1980000, 2619000, 5120, uint64_t(79.1 * gib)}},
    {"h200", {"H200", 9, 0, 132, 1980000, 3201000, 6144, uint64_t(139.72 * gib)}},
    {"b200", {"B200", 10, 0, 148, 1965000, 3996000, 8192, uint64_t(178.0 * gib)}},
    {"rtx4090", {"RTX 4090", 8, 9, 128, 2520000, 10501000, 384, uint64_t(23.5 * gib)}},
    {"v100-32g", {"V100-32G", 7, 0, 80, 1530000, 877000, 4096, uint64_t(31.7 * gib)}},
};

std::string variable(const char* name, const char* fallback = "") {
  const char* value = std::getenv(name);
  return value && *value ? value : fallback;
}

// As CUDA reads CUDA_VISIBLE_DEVICES, but without UUIDs: the first number that no card has ends the list.
std::vector<int> visible_of(int cards) {
  std::vector<int> out;
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  for (int k = 0; !list && k < cards; ++k) out.push_back(k);
  for (std::istringstream words(list ? list : ""); words.good();) {
    std::string word;
    std::getline(words, word, ',');
    int card = -1;
    if (std::from_chars(word.data(), word.data() + word.size(), card).ec != std::errc() || card < 0 || card >= cards)
      break;
    out.push_back(card);
  }
  return out;
}

// Writes the number that a test compares with a plan.
void write_peak() {
  const std::string file = variable("SOFTCUDA_PEAK");
  FILE* out = file.empty() ? nullptr : std::fopen(file.c_str(), "w");
  if (!out) return;
  for (const uint64_t bytes : state().most) std::fprintf(out, "%llu\n", static_cast<unsigned long long>(bytes));
  std::fclose(out);
}

void read_environment(State& s) {
  s.read = true;
  const std::string card = variable("SOFTCUDA_CARD", "h200");
  const auto found = cards.find(card);
  if (found == cards.end()) complain("SOFTCUDA_CARD: there is no card " + card), std::abort();
  s.card = found->second;
  if (const std::string bytes = variable("SOFTCUDA_BYTES"); !bytes.empty()) s.card.bytes = std::stoull(bytes);
  s.visible = visible_of(std::stoi(variable("SOFTCUDA_DEVICES", "1")));
  const std::string driver = variable("SOFTCUDA_DRIVER", "ok");
  s.driver = driver == "none"     ? State::none
             : driver == "old"    ? State::old
             : driver == "compat" ? State::compat
                                  : State::ok;
  s.random.seed(std::stoull(variable("SOFTCUDA_SEED", "1")));
  s.last_stream = std::stoi(variable("SOFTCUDA_LAST", "-1"));
  s.ahead = std::stoi(variable("SOFTCUDA_AHEAD", "0")), s.may = 0;
  s.fill = std::stoi(variable("SOFTCUDA_FILL", "0"));
  s.fail = std::stoll(variable("SOFTCUDA_FAIL", "-1"));
  s.sticky = cudaSuccess;
  s.used.assign(std::max<size_t>(s.visible.size(), 1), 0);
  s.most = s.used;
  static const bool once = std::atexit(write_peak) == 0;
  (void)once;
  if (const std::string twins = variable("SOFTCUDA_TWINS"); !twins.empty()) {
    void* library = dlopen(twins.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) complain(dlerror()), std::abort();
    s.twins = reinterpret_cast<software_cuda_twin_fn>(dlsym(library, "software_cuda_twin"));
  }
  if (s.streams.empty()) s.streams.push_back(std::make_unique<Stream>());
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool ready(const Stream& s) {
  return !s.items.empty() && (!s.items.front().wait || s.items.front().wait->passed);
}

cudaError_t perform(const Work& work) {
  State& s = state();
  if (!work || s.sticky != cudaSuccess) return s.sticky;
  if (s.fail > 0 && --s.fail == 0) return cudaErrorIllegalAddress;
  ++s.work;
  return work();
}

// Nodes of the item's graph that can be done.
std::vector<size_t> ready_nodes(const Item& item) {
  std::vector<size_t> out;
  for (size_t k = 0; k < item.done.size(); ++k)
    if (!item.done[k] && std::all_of(item.graph->nodes[k].after.begin(), item.graph->nodes[k].after.end(),
                                     [&](size_t before) { return item.done[before] != 0; }))
      out.push_back(k);
  return out;
}

// All that can begin, on any stream.
void begin_ready() {
  if (state().sticky != cudaSuccess) return;
  for (const auto& stream : state().streams) {
    // Behind waits that are over, and marks.
    const auto at = std::find_if(stream->items.begin(), stream->items.end(), [](const Item& one) {
      return one.work || one.graph || (one.wait && !one.wait->passed);
    });
    if (at == stream->items.end()) continue;
    Item& item = *at;
    if (item.begin) std::exchange(item.begin, nullptr)();
    if (!item.graph) continue;
    item.begun.resize(item.done.size());
    for (const size_t k : ready_nodes(item))
      if (const Begin& begin = item.graph->nodes[k].begin; !std::exchange(item.begun[k], 1) && begin) begin();
  }
}

// Chooses one of the streams that can work.
Stream* choose(std::vector<Stream*> can) {
  State& s = state();
  const auto last =
      std::find_if(can.begin(), can.end(), [&](const Stream* one) { return one->number == s.last_stream; });
  if (last != can.end() && can.size() == 1) s.may = s.ahead;
  if (last != can.end() && can.size() > 1) {
    if (s.may) return s.may -= (*last)->items.front().work != nullptr, *last;
    can.erase(last);
  }
  return can[s.random() % can.size()];
}

// The first item of a stream, or one node of a graph.
void advance(Stream& stream) {
  Item& item = stream.items.front();
  State& s = state();
  cudaError_t error = cudaSuccess;
  if (item.graph) {
    const std::vector<size_t> can = ready_nodes(item);
    if (!can.empty()) {
      const size_t k = can[s.random() % can.size()];
      item.done[k] = 1;
      error = perform(item.graph->nodes[k].work);
    }
    if (can.size() <= 1 && std::find(item.done.begin(), item.done.end(), 0) == item.done.end())
      stream.items.pop_front();
  } else {
    error = perform(item.work);
    if (item.pass) item.pass->passed = true, item.pass->when = now();
    stream.items.pop_front();
  }
  if (error != cudaSuccess && s.sticky == cudaSuccess) s.sticky = error;
}

}  // namespace

State& state() {
  static State* const s = new State;
  const std::lock_guard lock(s->lock);
  if (!s->read) read_environment(*s);
  return *s;
}

cudaError_t give(cudaError_t error) {
  if (error != cudaSuccess) last = error;
  return error;
}

void complain(const std::string& what) {
  std::fprintf(stderr, "software CUDA runtime: %s\n", what.c_str());
}

cudaError_t usable() {
  const State& s = state();
  if (s.driver == State::compat) return cudaErrorCompatNotSupportedOnDevice;
  if (s.driver != State::ok) return cudaErrorInsufficientDriver;
  if (s.visible.empty()) return cudaErrorNoDevice;
  return s.sticky;
}

Stream* find(cudaStream_t stream) {
  State& s = state();
  if (!stream) return s.streams[0].get();
  for (const auto& one : s.streams)
    if (one.get() == reinterpret_cast<Stream*>(stream)) return one.get();
  return nullptr;
}

cudaError_t put(cudaStream_t to, Work work, Begin begin) {
  if (const cudaError_t error = usable()) return error;
  Stream* stream = find(to);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->capture) {
    stream->capture->graph.nodes.push_back({std::move(work), stream->frontier, std::move(begin)});
    stream->frontier = {stream->capture->graph.nodes.size() - 1};
    stream->open = stream != stream->capture->origin;
    return cudaSuccess;
  }
  stream->items.push_back({std::move(work), nullptr, {}, nullptr, nullptr, std::move(begin)});
  return cudaSuccess;
}

cudaError_t pump(const std::function<bool()>& done) {
  State& s = state();
  for (begin_ready(); !done(); begin_ready()) {
    std::vector<Stream*> can;
    for (const auto& one : s.streams)
      if (ready(*one)) can.push_back(one.get());
    if (can.empty()) {
      complain("deadlock: every stream waits");
      return s.sticky = cudaErrorLaunchTimeout;
    }
    advance(*choose(std::move(can)));
  }
  return s.sticky;
}

bool all_idle(int device) {
  const State& s = state();
  return std::all_of(s.streams.begin(), s.streams.end(),
                     [&](const auto& one) { return one->device != device || one->items.empty(); });
}

const Range* range_of(const void* address, size_t bytes, bool* whole) {
  auto& memory = state().memory;
  auto it = memory.upper_bound(static_cast<char*>(const_cast<void*>(address)));
  if (it == memory.begin()) return nullptr;
  --it;
  const auto offset = static_cast<size_t>(static_cast<const char*>(address) - it->first);
  if (offset >= it->second.bytes) return nullptr;
  if (whole) *whole = offset + bytes <= it->second.bytes;
  return &it->second;
}

}  // namespace softcuda

using namespace softcuda;

extern "C" {

void software_cuda_reset(void) {
  State& s = state();
  const std::lock_guard lock(s.lock);
  for (auto& [address, range] : s.memory)
    if (range.kind != Kind::registered) munmap(address - 4096, range.mapped);
  s.memory.clear();
  s.streams.clear(), s.next_stream = 1;
  s.shared_limit.clear(), s.twins = nullptr;
  s.work = s.graphs = 0;
  current = 0, last = cudaSuccess;
  s.read = false;
  state();
}

uint64_t software_cuda_bytes(int pinned) {
  const State& s = state();
  uint64_t bytes = 0;
  for (const auto& [address, range] : s.memory)
    if ((range.kind != Kind::device) == (pinned != 0)) bytes += range.bytes;
  return bytes;
}
uint64_t software_cuda_work(void) {
  return state().work;
}
uint64_t software_cuda_graphs(void) {
  return state().graphs;
}
}
