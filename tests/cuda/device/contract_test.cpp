// SPDX-License-Identifier: Apache-2.0
// The requirements of abi/engine/device.h, tested with cuda.eng.so on the software CUDA runtime (emulated), and on a
// GPU but for what only that runtime shows: [software].
#include <catch2/catch.hpp>
#include <cstring>

#include "plugin.hpp"

using namespace cuda_test;
using Catch::Contains;

TEST_CASE("arenas are zeroed, aligned, and given back") {
  const Machine machine;
  const Device d;
  for (const int32_t memory : {ENG_MEMORY_DEVICE, ENG_MEMORY_PINNED, ENG_MEMORY_HOST})
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{5000}, uint64_t{3} << 20}) {
      char* p = d.alloc(memory, bytes);
      REQUIRE(p);
      CHECK(reinterpret_cast<uintptr_t>(p) % 4096 == 0);
      std::vector<char> values(bytes, 1), zero(bytes, 0);
      d.call(table().download, static_cast<void*>(values.data()), static_cast<const void*>(p), bytes);
      CHECK(values == zero);
      table().free(d.self, memory, p, bytes);
    }
  // Several at once: a driver puts small ones of pinned memory into one page.
  std::vector<char*> held;
  for (int k = 0; k < 5; ++k) held.push_back(d.alloc(ENG_MEMORY_PINNED, 300));
  for (char* p : held) {
    CHECK(reinterpret_cast<uintptr_t>(p) % 4096 == 0);
    std::memset(p, 1, 300);
  }
  for (char* p : held) table().free(d.self, ENG_MEMORY_PINNED, p, 300);
  CHECK(software_cuda_bytes(0) == 0);
  CHECK(software_cuda_bytes(1) == 0);
  CHECK_THROWS_WITH(d.alloc(7, 1), Contains("there is no memory of kind 7"));
}

TEST_CASE("upload and download carry pageable memory") {
  const Machine machine;
  const Device d;
  std::vector<char> from(10000), to(from.size());
  for (size_t k = 0; k < from.size(); ++k) from[k] = static_cast<char>(k * 7);
  char* p = d.alloc(ENG_MEMORY_DEVICE, from.size());
  d.call(table().upload, static_cast<void*>(p), static_cast<const void*>(from.data()), uint64_t{from.size()});
  d.call(table().download, static_cast<void*>(to.data()), static_cast<const void*>(p), uint64_t{from.size()});
  CHECK(from == to);
  table().free(d.self, ENG_MEMORY_DEVICE, p, from.size());
}

namespace {

// host -> device on one queue, device -> host on another, which waits for the first if `waits`. The value that arrived.
int through(const Device& d, bool waits, bool graph) {
  void *up = d.queue(), *down = d.queue(), *begin = d.event(), *event = d.event(), *back = d.event();
  char *arena = d.alloc(ENG_MEMORY_DEVICE, 64), *host = d.alloc(ENG_MEMORY_PINNED, 128);
  host[0] = 42;
  int out = 0;
  {
    const Copy there(d, arena, host, 64), here(d, host + 64, arena, 64);
    if (graph) d.call(table().capture_begin, up);
    d.call(table().event_record, begin, up);
    if (graph) d.call(table().event_wait, begin, down);  // joins the capture, and orders nothing
    there.launch(up);
    d.call(table().event_record, event, up);
    if (waits) d.call(table().event_wait, event, down);
    here.launch(down);
    d.call(table().event_record, back, down);
    d.call(table().event_wait, back, up);
    if (graph) {
      void* made = nullptr;
      d.call(table().capture_end, up, &made);
      CHECK(host[64] == 0);  // captured, not run
      for (int k = 0; k < 2; ++k) d.call(table().graph_launch, made, up);
      if (!waits) host[64] = 0, d.call(table().graph_launch, made, up);
      d.call(table().sync, up);
      table().graph_destroy(d.self, made);
    }
    d.call(table().sync, static_cast<void*>(nullptr));
    out = host[64];
  }
  for (void* e : {begin, event, back}) table().event_destroy(d.self, e);
  for (void* q : {up, down}) table().queue_destroy(d.self, q);
  table().free(d.self, ENG_MEMORY_DEVICE, arena, 64);
  table().free(d.self, ENG_MEMORY_PINNED, host, 128);
  return out;
}

}  // namespace

TEST_CASE("events order queues, and a missing wait shows") {
  for (int seed = 1; seed <= 8; ++seed) {
    const Machine machine(Variables{{"SOFTCUDA_SEED", std::to_string(seed)}, {"SOFTCUDA_LAST", "1"}});
    const Device d;
    CHECK(through(d, true, false) == 42);
    if (!software) continue;  // on a GPU it is a race
    const Machine again(Variables{{"SOFTCUDA_SEED", std::to_string(seed)}, {"SOFTCUDA_LAST", "1"}});
    const Device other;
    CHECK(through(other, false, false) == 0);
  }
}

TEST_CASE("a captured segment is replayed in its order") {
  for (int seed = 1; seed <= 8; ++seed) {
    const Machine machine(Variables{{"SOFTCUDA_SEED", std::to_string(seed)}});
    const Device d;
    CHECK(through(d, true, true) == 42);
    if (software) CHECK(software_cuda_graphs() == 2);
  }
}

TEST_CASE("a capture that leaves a queue behind makes no graph") {
  const Machine machine;
  const Device d;
  void *one = d.queue(), *two = d.queue(), *event = d.event();
  char *arena = d.alloc(ENG_MEMORY_DEVICE, 64), *host = d.alloc(ENG_MEMORY_PINNED, 64);
  const Copy copy(d, arena, host, 64);
  d.call(table().capture_begin, one);
  d.call(table().event_record, event, one);
  d.call(table().event_wait, event, two);
  copy.launch(two);
  void* graph = nullptr;
  Told told;
  CHECK(table().capture_end(d.self, one, &graph, told) == ENG_UNSUPPORTED);
  CHECK_THAT(told.text, Contains("queue 0, ending a capture: cudaErrorStreamCaptureUnjoined"));
  CHECK(graph == nullptr);
  // The device goes on.
  copy.launch(two);
  d.call(table().sync, two);
}

TEST_CASE("timed events measure") {
  const Machine machine;
  const Device d;
  void *queue = d.queue(), *begin = d.event(1), *end = d.event(1), *plain = d.event();
  d.call(table().event_record, begin, queue);
  d.call(table().event_record, end, queue);
  d.call(table().event_record, plain, queue);
  d.call(table().event_sync, end);
  d.call(table().event_sync, plain);
  double seconds = -1;
  d.call(table().event_elapsed, begin, end, &seconds);
  CHECK((seconds >= 0 && seconds < 60));
  CHECK_THROWS_WITH(d.call(table().event_elapsed, begin, plain, &seconds), Contains("reading two events"));
}

TEST_CASE("queues copy pinned memory only") {
  const Machine machine;
  const Device d;
  void* queue = d.queue();
  char* arena = d.alloc(ENG_MEMORY_DEVICE, 8192);
  alignas(4096) static char pageable[8192];
  const std::string refused = "[in u8 (8192); out u8 (8192)]: x is in pageable host memory";
  CHECK_THROWS_WITH(Copy(d, arena, pageable, 8192), Contains(refused));
  CHECK_THROWS_WITH(Copy(d, pageable, arena, 8192), Contains("the copy is in pageable host memory"));
  d.call(table().pin, static_cast<void*>(pageable), uint64_t{8192});
  pageable[8191] = 9;
  {
    const Copy copy(d, arena, pageable, 8192);
    copy.launch(queue);
    d.call(table().sync, queue);
  }
  char value = 0;
  d.call(table().download, static_cast<void*>(&value), static_cast<const void*>(arena + 8191), uint64_t{1});
  CHECK(value == 9);
  table().unpin(d.self, pageable, 8192);
  CHECK_THROWS_WITH(Copy(d, arena, pageable, 8192), Contains(refused));
}

TEST_CASE("each local rank has a GPU of its own", "[software]") {
  const Machine machine(Variables{{"SOFTCUDA_DEVICES", "2"}, {"SOFTCUDA_BYTES", "8388608"}});
  const Device one(false, 0), two(false, 1);
  CHECK(one.alloc(ENG_MEMORY_DEVICE, 6 << 20));
  CHECK(two.alloc(ENG_MEMORY_DEVICE, 6 << 20));
  CHECK_THROWS_WITH(Device(false, 2), Contains("local rank 2 needs GPU number 2 (from 0), but 2 are visible"));
}

TEST_CASE("one GPU is for one rank, unless CUDA_VISIBLE_DEVICES leaves only that to each", "[software]") {
  {
    const Machine machine(Variables{{"SOFTCUDA_DEVICES", "1"}});
    CHECK_THROWS_WITH(Device(false, 1), Contains("local rank 1 needs GPU number 1 (from 0), but 1 is visible"));
  }
  const Machine machine(Variables{{"SOFTCUDA_DEVICES", "4"}, {"CUDA_VISIBLE_DEVICES", "2"}});
  const Device device(false, 3);
  CHECK(device.alloc(ENG_MEMORY_DEVICE, 4096));
}
