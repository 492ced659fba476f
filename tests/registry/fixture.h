/* SPDX-License-Identifier: Apache-2.0
 *
 * The private interface between the fixture plugins and the tests: how often was I started and stopped? */
#ifndef TESTS_REGISTRY_FIXTURE_H_
#define TESTS_REGISTRY_FIXTURE_H_

#include <stdint.h>

#define COUNTER_KIND "org.example.counter/1"

typedef struct counter {
  uint32_t struct_size;
  uint32_t minor;
  int32_t (*starts)(void);
  int32_t (*stops)(void);
} counter;

/* The counter's table in a later version of the interface. */
typedef struct counter_later {
  counter first;
  int32_t (*added_later)(void);
} counter_later;

#endif
