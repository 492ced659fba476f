// SPDX-License-Identifier: Apache-2.0
// A tier that is storage: states live in a file between their uses. The file has no name, so it is gone when the run
// ends, however it ends. A tier that is memory sets ENG_TIER_HOST_MEMORY, gives an address in `alloc`, and has neither
// `read` nor `write`.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "engine/plugin.h"
#include "engine/tier.h"

#define FOLDER "/var/tmp"  // on a disk; /tmp may be memory

ENG_DESCRIPTION(R"(
[plugin]
id = 'org.example.my_thing'
name = 'my_thing'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'a tier'

[[provides]]
kind = ')" ENG_TIER_DRAFT R"('
name = 'my_thing'
summary = 'a file below )" FOLDER R"('
)")

namespace {

// "cannot WHAT a file in FOLDER: why". A user must be able to tell what is full or broken.
eng_status fail(eng_error* error, const char* what, int number) {
  char text[256];
  const int n = std::snprintf(text, sizeof text, "cannot %s a file in " FOLDER ": %s", what, std::strerror(number));
  if (error) error->set(error, ENG_UNAVAILABLE, text, n < 0 ? 0 : static_cast<uint64_t>(n));
  return ENG_UNAVAILABLE;
}

struct File {
  int number = -1;
  ~File() {
    if (number >= 0) ::close(number);
  }
};

// Both bandwidths are unknown, so the plan's estimate of a step has its own.
eng_status describe_tier(const eng_options*, eng_tier_info* out, eng_error*) {
  out->flags = 0;  // storage
  return ENG_OK;
}

// An object has nothing of its own here; `self` only has to be something.
char the_tier;

eng_status create(const eng_options*, uint32_t, void** self, eng_error*) {
  *self = &the_tier;
  return ENG_OK;
}

void destroy(void*) {}

// An arena of exactly these bytes, as the plan says. All of the space is reserved now: a step must not run out of it.
eng_status alloc(void*, uint64_t bytes, void** out, eng_error* error) {
  File* file = new (std::nothrow) File();
  if (!file) return fail(error, "make", ENOMEM);
  char name[] = FOLDER "/my_thing-XXXXXX";
  file->number = ::mkostemp(name, O_CLOEXEC);
  int failed = file->number < 0 ? errno : 0;
  const char* what = "make";
  if (!failed) {
    ::unlink(name);
    what = "reserve space for";
    failed = bytes ? ::posix_fallocate(file->number, 0, static_cast<off_t>(bytes)) : 0;  // zeros
  }
  if (failed) {
    delete file;
    return fail(error, what, failed);
  }
  *out = file;
  return ENG_OK;
}

void release(void*, void* arena, uint64_t) {
  delete static_cast<File*>(arena);
}

// One read and one write may be at work at the same time: neither has a position that the other would move.
eng_status read_bytes(void*, void* arena, uint64_t offset, void* to, uint64_t bytes, eng_error* error) {
  const int file = static_cast<const File*>(arena)->number;
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t n = ::pread(file, static_cast<char*>(to) + done, bytes - done, static_cast<off_t>(offset + done));
    if (n == 0 || (n < 0 && errno != EINTR)) return fail(error, "read", n ? errno : EIO);
    if (n > 0) done += static_cast<uint64_t>(n);
  }
  return ENG_OK;
}

eng_status write_bytes(void*, void* arena, uint64_t offset, const void* from, uint64_t bytes, eng_error* error) {
  const int file = static_cast<const File*>(arena)->number;
  for (uint64_t done = 0; done < bytes;) {
    const auto* at = static_cast<const char*>(from) + done;
    const ssize_t n = ::pwrite(file, at, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno != EINTR) return fail(error, "write", errno);
    if (n > 0) done += static_cast<uint64_t>(n);
  }
  return ENG_OK;
}

constexpr eng_tier make_table() {
  eng_tier table{};
  table.struct_size = sizeof table;
  table.minor = ENG_ABI_MINOR;
  table.describe = describe_tier;
  table.create = create;
  table.destroy = destroy;
  table.alloc = alloc;
  table.free = release;
  table.read = read_bytes;
  table.write = write_bytes;
  return table;  // host_bytes is NULL: an arena takes no memory worth counting
}
constexpr eng_tier table = make_table();

const char* describe() {
  return eng_description;
}

eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}

void stop() {}

const void* get_interface(const char* kind, const char* name) {
  return !std::strcmp(kind, ENG_TIER_KIND) && !std::strcmp(name, "my_thing") ? &table : nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
