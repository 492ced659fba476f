// SPDX-License-Identifier: Apache-2.0
// operator new of the `engine` command: small blocks come from per-thread free lists, so libraries that
// make short-lived objects in every call (oneDNN's primitive execution) do not reach malloc inside a step.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define ENGINE_PLAIN_NEW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ENGINE_PLAIN_NEW 1
#endif
#endif

#ifndef ENGINE_PLAIN_NEW
namespace {

// Blocks of 64, 128, ... 1024 bytes, a header of 16 in front that names the class. A block freed by another
// thread joins that thread's list; a list keeps at most `most` blocks.
constexpr size_t step = 64, classes = 16, header = 16, most = 4096;

struct Free {
  Free* next;
};

struct Lists {
  Free* head[classes];
  size_t length[classes];
};

thread_local Lists lists;

void* take(size_t size) {
  size_t index = (size + header + step - 1) / step;  // in steps
  if (index <= classes) {
    Free*& head = lists.head[index - 1];
    void* block = head;
    if (block)
      head = head->next, --lists.length[index - 1];
    else
      block = std::malloc(index * step);
    if (!block) return nullptr;
    *static_cast<uint64_t*>(block) = index;
    return static_cast<char*>(block) + header;
  }
  void* block = std::malloc(size + header);
  if (!block) return nullptr;
  *static_cast<uint64_t*>(block) = 0;
  return static_cast<char*>(block) + header;
}

void give(void* pointer) {
  if (!pointer) return;
  char* block = static_cast<char*>(pointer) - header;
  uint64_t index = *reinterpret_cast<uint64_t*>(block);
  if (index == 0 || lists.length[index - 1] >= most) return std::free(block);
  Free* free = reinterpret_cast<Free*>(block);
  free->next = lists.head[index - 1];
  lists.head[index - 1] = free;
  ++lists.length[index - 1];
}

}  // namespace

[[gnu::noinline]] void* operator new(size_t size) {
  for (;;) {
    if (void* p = take(size)) return p;
    if (std::new_handler handler = std::get_new_handler())
      handler();
    else
      throw std::bad_alloc();
  }
}
void* operator new[](size_t size) {
  return operator new(size);
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return take(size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return take(size);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  give(p);
}
void operator delete[](void* p) noexcept {
  give(p);
}
void operator delete(void* p, size_t) noexcept {
  give(p);
}
void operator delete[](void* p, size_t) noexcept {
  give(p);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
  give(p);
}
void operator delete[](void* p, const std::nothrow_t&) noexcept {
  give(p);
}
#endif
