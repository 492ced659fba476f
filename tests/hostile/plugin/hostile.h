/* SPDX-License-Identifier: Apache-2.0
 *
 * A stranger's plugin of every kind that does one thing wrong: what, says the option `fault` of any of its sections
 * (of the tokenizer: the last part of its path). "" is none. Compiled against abi/ alone.
 *
 *   fail NAME   function NAME returns ENG_INTERNAL and a text       mute NAME   the same without a text
 *   long NAME   ... a text of a megabyte                            odd NAME    ... one of odd bytes
 *   twice NAME  ... two texts                                       code NAME   ... a status that nobody knows
 *   anything else: see who asks is("...") */
#ifndef HOSTILE_H_
#define HOSTILE_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/comm.h"
#include "engine/data.h"
#include "engine/model.h"
#include "engine/op.h"
#include "engine/ops.h"
#include "engine/optimizer.h"
#include "engine/plugin.h"
#include "engine/policy.h"
#include "engine/schedule.h"
#include "engine/tier.h"
#include "engine/tokenizer.h"

enum { vocabulary = 256, width = 16 };

#define OP_PASS "org.example.hostile.pass/1" /* y = x */
#define OP_FILL "org.example.hostile.fill/1" /* a parameter of nothing but halves */

/* The fault at hand. */
int is(const char* fault);
void take_fault(const eng_options* options);
void set_fault(const char* text);
/* ENG_OK, or what function `name` is to return. */
eng_status enter(const char* name, eng_error* error);
#define ENTER(name)                          \
  do {                                       \
    eng_status entered = enter(name, error); \
    if (entered != ENG_OK) return entered;   \
  } while (0)

extern const eng_model hostile_model;
const eng_ops* hostile_ops(void);
const eng_kernels* hostile_kernels(void);
const eng_optimizer* hostile_optimizer(void);
extern const eng_axis hostile_precision, hostile_zero;
extern const eng_data hostile_data;
extern const eng_schedule hostile_schedule;
extern const eng_tokenizer hostile_tokenizer;
extern const eng_device hostile_device; /* computes nothing: what a kernel was to write stays as it was */
const eng_kernels* hostile_device_kernels(void);
extern const eng_tier hostile_tier, hostile_memory;
extern const eng_comm hostile_comm; /* one process that takes itself for the first of two, the other being its mirror */
const eng_kernels* hostile_collectives(void);

#endif
