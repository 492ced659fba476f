// SPDX-License-Identifier: Apache-2.0
#include "far.hpp"

#include <cstring>

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.engine.test.far'\n"
    "name = 'far'\n"
    "version = '0.1.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'a device of the tests: memory apart, queues with random delays, graphs; it computes with the kernels "
    "of others'\n"
    "[[provides]]\n"
    "kind = '" ENG_DEVICE_DRAFT
    "'\n"
    "name = 'far'\n"
    "summary = 'far away'\n"
    "[provides.options.plugins]\n"
    "type = 'strings'\n"
    "help = 'files of the plugins whose kernels it has; the first brings the device too'\n"
    "[provides.options.kernels]\n"
    "type = 'string'\n"
    "default = 'reference'\n"
    "help = 'the device whose kernels they are'\n"
    "[provides.options.delay]\n"
    "type = 'int'\n"
    "default = 0\n"
    "help = 'microseconds before a launch, at most'\n"
    "[provides.options.seed]\n"
    "type = 'int'\n"
    "default = 1\n"
    "help = 'of the delays'\n"
    "[provides.options.held]\n"
    "type = 'int'\n"
    "default = -1\n"
    "help = 'the number of a bound action that does not run'\n"
    "[provides.options.free]\n"
    "type = 'int'\n"
    "default = -1\n"
    "help = 'before this one has, if that can be'\n"
    "[provides.options.late]\n"
    "type = 'int'\n"
    "default = -1\n"
    "help = 'the number of a bound action that does not run before the held one has begun, if that can be'\n"
    "[provides.options.patience]\n"
    "type = 'int'\n"
    "default = 20\n"
    "help = 'milliseconds without anything happening, after which nothing more can'\n"
    "[provides.options.graphs]\n"
    "type = 'bool'\n"
    "default = true\n"
    "help = 'it can capture and replay'\n"
    "[provides.options.uncapturable]\n"
    "type = 'string'\n"
    "default = ''\n"
    "help = 'an op that cannot be captured'\n"
    "[provides.options.mortal]\n"
    "type = 'bool'\n"
    "default = false\n"
    "help = 'the first error ends it: every later call tells it again'\n"
    "[[provides]]\n"
    "kind = '" ENG_KERNELS_DRAFT
    "'\n"
    "name = 'far'\n"
    "summary = 'those of the plugins that it was given'\n"
    "[[provides]]\n"
    "kind = '" ENG_COMM_DRAFT
    "'\n"
    "name = 'far_ranks'\n"
    "summary = 'ranks that are threads, collectives on queues of the device'\n"
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
    "name = 'far_ranks'\n"
    "summary = 'collectives'\n")

namespace far {
namespace {

std::string text(const eng_options* options, const char* key) {
  const char* value = "";
  if (options->get_string(options, key, &value, nullptr) != ENG_OK) return "";
  return value;
}
int64_t number(const eng_options* options, const char* key, int64_t fallback) {
  int64_t value = fallback;
  options->get_int(options, key, &value, nullptr);
  return value;
}
bool flag(const eng_options* options, const char* key) {
  int32_t value = 1;
  options->get_bool(options, key, &value, nullptr);
  return value != 0;
}

eng_status describe_device(const eng_options* options, eng_device_info* out, eng_error* sink) {
  return guarded(sink, [&] {
    std::vector<std::string> files;
    uint32_t n = 0;
    options->get_count(options, "plugins", &n, nullptr);
    for (uint32_t k = 0; k < n; ++k) {
      const char* file = "";
      if (options->get_string_at(options, "plugins", k, &file, nullptr) == ENG_OK) files.emplace_back(file);
    }
    load_kernels(files, text(options, "kernels"));
    out->flags = ENG_DEVICE_ASYNC | (flag(options, "graphs") ? ENG_DEVICE_GRAPHS : 0u);
    out->parallel = out->parallel_beside = 1;
    out->dl_device_type = kDLExtDev;
    out->arch = 7;
    out->total_bytes = uint64_t{1} << 30;
    out->device_overhead_bytes = uint64_t{1} << 20;
    std::strncpy(out->name, "far, for tests", sizeof(out->name) - 1);
  });
}

Device& of(void* self) {
  return *static_cast<Device*>(self);
}
Queue& queue_of(void* queue) {
  return *static_cast<Queue*>(queue);
}
Event& event_of(void* event) {
  return *static_cast<Event*>(event);
}

eng_status create(const eng_options* options, uint32_t local_rank, void** self, eng_error* sink) {
  return guarded(sink, [&] {
    Settings s;
    s.delay = number(options, "delay", 0);
    s.seed = static_cast<uint64_t>(number(options, "seed", 1)) * 1000 + local_rank;
    s.held = number(options, "held", -1), s.free = number(options, "free", -1);
    s.late = number(options, "late", -1);
    s.patience = number(options, "patience", 20);
    s.uncapturable = text(options, "uncapturable");
    s.mortal = flag(options, "mortal");
    auto device = std::make_unique<Device>(s);
    if (inner_device()->create(options, local_rank, &device->inner, sink) != ENG_OK)
      throw Error{ENG_INVALID, "the device of its kernels refuses its options"};
    device->inner_table = inner_device();
    *self = device.release();
  });
}
void destroy(void* self) {
  delete &of(self);
}

eng_status alloc(void*, int32_t memory, uint64_t bytes, void** out, eng_error* sink) {
  return guarded(sink, [&] { *out = memory == ENG_MEMORY_DEVICE ? alloc_device(bytes) : alloc_pinned(bytes); });
}
void release(void*, int32_t memory, void* arena, uint64_t) {
  memory == ENG_MEMORY_DEVICE ? free_device(arena) : free_pinned(arena);
}
eng_status upload(void*, void* dst, const void* src, uint64_t bytes, eng_error* sink) {
  return guarded(sink, [&] {
    if (bytes) std::memcpy(device_bytes_of(dst, bytes), src, bytes);
  });
}
eng_status download(void*, void* dst, const void* src, uint64_t bytes, eng_error* sink) {
  return guarded(sink, [&] {
    if (bytes) std::memcpy(dst, device_bytes_of(src, bytes), bytes);
  });
}
eng_status sync(void* self, void* queue, eng_error* sink) {
  return guarded(sink, [&] { of(self).sync(static_cast<Queue*>(queue)); });
}

eng_status queue_create(void* self, void** queue, eng_error* sink) {
  return guarded(sink, [&] { *queue = of(self).create_queue(); });
}
void queue_destroy(void* self, void* queue) {
  of(self).destroy_queue(static_cast<Queue*>(queue));
}
eng_status event_create(void*, int32_t, void** event, eng_error* sink) {
  return guarded(sink, [&] { *event = new Event(); });
}
void event_destroy(void*, void* event) {
  delete &event_of(event);
}
eng_status event_record(void* self, void* event, void* queue, eng_error* sink) {
  return guarded(sink, [&] { of(self).record(event_of(event), queue_of(queue)); });
}
eng_status event_wait(void* self, void* event, void* queue, eng_error* sink) {
  return guarded(sink, [&] { of(self).wait(event_of(event), queue_of(queue)); });
}
eng_status event_sync(void* self, void* event, eng_error* sink) {
  return guarded(sink, [&] { of(self).sync(event_of(event)); });
}
eng_status event_elapsed(void*, void* begin, void* end, double* seconds, eng_error* sink) {
  return guarded(sink, [&] {
    const auto &from = event_of(begin).last, &to = event_of(end).last;
    if (!from || !to || !from->passed() || !to->passed()) throw Error{ENG_PRECONDITION, "an event that has not ended"};
    *seconds = std::chrono::duration<double>(to->when() - from->when()).count();
  });
}
eng_status capture_begin(void* self, void* queue, eng_error* sink) {
  return guarded(sink, [&] { of(self).begin(queue_of(queue)); });
}
eng_status capture_end(void* self, void* queue, void** graph, eng_error* sink) {
  return guarded(sink, [&] { *graph = new std::shared_ptr<Graph>(of(self).end(queue_of(queue))); });
}
eng_status graph_launch(void* self, void* graph, void* queue, eng_error* sink) {
  return guarded(sink, [&] { of(self).replay(*static_cast<std::shared_ptr<Graph>*>(graph), queue_of(queue)); });
}
void graph_destroy(void*, void* graph) {
  delete static_cast<std::shared_ptr<Graph>*>(graph);
}

eng_status pin_host(void*, void* address, uint64_t bytes, eng_error*) {
  pin(address, bytes);
  return ENG_OK;
}
void unpin_host(void*, void* address, uint64_t) {
  unpin(address);
}

const eng_device device = {sizeof(eng_device),
                           ENG_ABI_MINOR,
                           describe_device,
                           create,
                           destroy,
                           alloc,
                           release,
                           upload,
                           download,
                           sync,
                           queue_create,
                           queue_destroy,
                           event_create,
                           event_destroy,
                           event_record,
                           event_wait,
                           event_sync,
                           event_elapsed,
                           capture_begin,
                           capture_end,
                           graph_launch,
                           graph_destroy,
                           pin_host,
                           unpin_host,
                           nullptr,
                           nullptr,
                           nullptr};

const char* describe() {
  return eng_description;
}
eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}
void stop() {}
const void* get_interface(const char* kind, const char* name) {
  if (std::strcmp(name, "far_ranks") == 0) {
    if (std::strcmp(kind, ENG_COMM_KIND) == 0) return comm();
    return std::strcmp(kind, ENG_KERNELS_KIND) == 0 ? comm_kernels() : nullptr;
  }
  if (std::strcmp(name, "far") != 0) return nullptr;
  if (std::strcmp(kind, ENG_DEVICE_KIND) == 0) return &device;
  if (std::strcmp(kind, ENG_KERNELS_KIND) == 0) return kernels();
  if (std::strcmp(kind, "org.engine.test.counts/1") == 0) return counts;
  return nullptr;
}
const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace
}  // namespace far

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &far::plugin;
}
