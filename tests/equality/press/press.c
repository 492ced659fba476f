/* SPDX-License-Identifier: Apache-2.0
 *
 * A tier of a third party, in C99 against engine/ alone: "press" is memory of the host that keeps its bytes compressed.
 *
 * An arena is divided into blocks of 32 KiB. Of a block the four bytes of each word lie apart, as four planes, and of
 * each group of 128 bytes of a plane only their smallest value is kept, and as many bits as the differences from it
 * need: signs and exponents of neighbours are alike, moments begin with zeros. Every block has room for what it takes
 * at worst; pages of it that were never needed are not there. The whole room is what the plan counts. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/plugin.h"
#include "engine/tier.h"

enum { block_bytes = 32768, planes = 4, plane_bytes = block_bytes / planes, group = 128, groups = block_bytes / group };
/* A group's smallest value, its bits, and at worst all of them. */
enum { room = groups * (2 + group) };

typedef struct packer {
  uint8_t* at;
  uint32_t word, held; /* bits that are not in memory yet */
} packer;

static void put_bits(packer* to, uint32_t value, uint32_t bits) {
  to->word |= value << to->held;
  for (to->held += bits; to->held >= 8; to->held -= 8, to->word >>= 8) *to->at++ = (uint8_t)to->word;
}

static uint32_t get_bits(packer* from, uint32_t bits) {
  uint32_t value;
  for (; from->held < bits; from->held += 8) from->word |= (uint32_t)*from->at++ << from->held;
  value = from->word & ((1u << bits) - 1);
  from->word >>= bits, from->held -= bits;
  return value;
}

static uint32_t bits_of(uint32_t value) {
  uint32_t bits = 0;
  for (; value; value >>= 1) ++bits;
  return bits;
}

/* Byte k of a plane is byte 4 k + plane of the block. A group fills whole bytes: 128 times its bits. */
static void compress(const uint8_t* block, uint8_t* to) {
  packer out = {to, 0, 0};
  for (uint32_t g = 0; g < groups; ++g) {
    const uint8_t* first = block + g % (plane_bytes / group) * group * planes + g / (plane_bytes / group);
    uint32_t low = 255, high = 0, bits;
    for (uint32_t k = 0; k < group; ++k) {
      const uint32_t byte = first[k * planes];
      low = byte < low ? byte : low, high = byte > high ? byte : high;
    }
    bits = bits_of(high - low);
    put_bits(&out, low, 8), put_bits(&out, bits, 8);
    for (uint32_t k = 0; bits && k < group; ++k) put_bits(&out, first[k * planes] - low, bits);
  }
}

static void expand(const uint8_t* from, uint8_t* block) {
  packer in = {(uint8_t*)(uintptr_t)from, 0, 0};
  for (uint32_t g = 0; g < groups; ++g) {
    uint8_t* first = block + g % (plane_bytes / group) * group * planes + g / (plane_bytes / group);
    const uint32_t low = get_bits(&in, 8), bits = get_bits(&in, 8);
    for (uint32_t k = 0; k < group; ++k) first[k * planes] = (uint8_t)(low + (bits ? get_bits(&in, bits) : 0));
  }
}

typedef struct press {
  uint64_t arenas; /* that were not given back */
} press;

/* A read and a write are at work at a time, and may share a block. */
typedef struct arena {
  uint8_t* rooms;
  uint64_t blocks;
  pthread_mutex_t lock;
  uint8_t block[block_bytes];
} arena;

static eng_status refuse(eng_error* error, eng_status status, const char* text) {
  if (error && error->set) error->set(error, status, text, strlen(text));
  return status;
}

static uint64_t blocks_of(uint64_t bytes) {
  return bytes / block_bytes + (bytes % block_bytes != 0);
}

static eng_status describe(const eng_options* options, eng_tier_info* out, eng_error* error) {
  (void)options, (void)error;
  out->read_bandwidth = 1e9;
  out->write_bandwidth = 5e8;
  return ENG_OK;
}

static eng_status create(const eng_options* options, uint32_t local_rank, void** self, eng_error* error) {
  press* made = calloc(1, sizeof *made);
  (void)options, (void)local_rank;
  if (!made) return refuse(error, ENG_NO_MEMORY, "out of memory");
  *self = made;
  return ENG_OK;
}

static void destroy(void* self) {
  if (((press*)self)->arenas) abort(); /* the contract: all of them have been given back */
  free(self);
}

static eng_status host_bytes(const eng_options* options, uint64_t bytes, uint64_t* out, eng_error* error) {
  (void)options, (void)error;
  *out = blocks_of(bytes) * room + sizeof(arena);
  return ENG_OK;
}

/* All groups of a new room have 0 bits and the value 0: it is zero, and none of its pages is there. */
static eng_status open_arena(void* self, uint64_t bytes, void** out, eng_error* error) {
  arena* made = calloc(1, sizeof *made);
  if (!made) return refuse(error, ENG_NO_MEMORY, "out of memory");
  made->blocks = blocks_of(bytes);
  made->rooms =
      mmap(NULL, made->blocks * room + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made->rooms == MAP_FAILED || pthread_mutex_init(&made->lock, NULL)) {
    if (made->rooms != MAP_FAILED) munmap(made->rooms, made->blocks * room + 1);
    free(made);
    return refuse(error, ENG_NO_MEMORY, "no memory for the room of all blocks");
  }
  ++((press*)self)->arenas;
  *out = made;
  return ENG_OK;
}

static void close_arena(void* self, void* of, uint64_t bytes) {
  arena* all = of;
  (void)bytes;
  if (!all) return;
  munmap(all->rooms, all->blocks * room + 1);
  pthread_mutex_destroy(&all->lock);
  free(all);
  --((press*)self)->arenas;
}

/* Calls for each block that the range touches: its bytes from `first` on, `count` of them. */
static eng_status take(void* self, void* of, uint64_t offset, void* to, uint64_t bytes, eng_error* error) {
  arena* all = of;
  (void)self, (void)error;
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t at = offset + done, first = at % block_bytes;
    const uint64_t count = block_bytes - first < bytes - done ? block_bytes - first : bytes - done;
    pthread_mutex_lock(&all->lock);
    expand(all->rooms + at / block_bytes * room, all->block);
    memcpy((uint8_t*)to + done, all->block + first, count);
    pthread_mutex_unlock(&all->lock);
    done += count;
  }
  return ENG_OK;
}

static eng_status put(void* self, void* of, uint64_t offset, const void* from, uint64_t bytes, eng_error* error) {
  arena* all = of;
  (void)self, (void)error;
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t at = offset + done, first = at % block_bytes;
    const uint64_t count = block_bytes - first < bytes - done ? block_bytes - first : bytes - done;
    uint8_t* own = all->rooms + at / block_bytes * room;
    pthread_mutex_lock(&all->lock);
    if (count < block_bytes) expand(own, all->block);
    memcpy(all->block + first, (const uint8_t*)from + done, count);
    compress(all->block, own);
    pthread_mutex_unlock(&all->lock);
    done += count;
  }
  return ENG_OK;
}

static const eng_tier tier = {.struct_size = sizeof(eng_tier),
                              .minor = ENG_ABI_MINOR,
                              .describe = describe,
                              .create = create,
                              .destroy = destroy,
                              .alloc = open_arena,
                              .free = close_arena,
                              .host_bytes = host_bytes,
                              .read = take,
                              .write = put};

ENG_DESCRIPTION(
    "[plugin]\n"
    "id = 'org.example.press'\n"
    "name = 'Press'\n"
    "version = '1.0.0'\n"
    "license = 'Apache-2.0'\n"
    "summary = 'a tier of compressed host memory'\n"
    "[[provides]]\n"
    "kind = '" ENG_TIER_DRAFT
    "'\n"
    "name = 'press'\n"
    "summary = 'host memory that keeps its bytes compressed'\n")

static const char* description(void) {
  return eng_description;
}

static eng_status start(const eng_host* host, eng_error* error) {
  (void)host, (void)error;
  return ENG_OK;
}

static void stop(void) {}

static const void* get_interface(const char* kind, const char* name) {
  return strcmp(kind, ENG_TIER_KIND) == 0 && strcmp(name, "press") == 0 ? &tier : NULL;
}

static const eng_plugin plugin = {.struct_size = sizeof(eng_plugin),
                                  .abi_minor = ENG_ABI_MINOR,
                                  .draft_id = ENG_ABI_DRAFT_ID,
                                  .describe = description,
                                  .start = start,
                                  .stop = stop,
                                  .get_interface = get_interface};

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t host_minor) {
  (void)host_minor;
  return &plugin;
}
