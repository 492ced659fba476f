/* SPDX-License-Identifier: Apache-2.0
 *
 * engine/monitor.h - kind "eng.monitor/1": what a device measures of itself, for people who watch a run.
 *
 * A monitor has the name of the device whose gauges it reads: `[device] plugin = "NAME"` finds both. It is a kind of its
 * own because no result depends on it: a run without one has no gauges, and everything else is the same.
 */
#ifndef ENGINE_MONITOR_H_
#define ENGINE_MONITOR_H_

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define ENG_MONITOR_KIND "eng.monitor/1"
#define ENG_MONITOR_DRAFT "eng.monitor/1-draft1" /* for the description: see engine/plugin.h */

/* One reading. The host sets struct_size and makes every number unknown; the monitor overwrites what it knows.
 *   Owner: host.  Valid: during read.  since 1.0 */
typedef struct eng_gauges {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t used_bytes; /* of the device's memory, by all processes; unknown: 0 */
  double utilisation;  /* the share of the last moment in which the device worked, 0 to 1; unknown: -1 */
  double celsius;      /* its temperature; unknown: -1 */
  double watts;        /* the power that it draws; unknown: -1 */
} eng_gauges;

typedef struct eng_monitor {
  uint32_t struct_size;
  uint32_t reserved;
  /* For the device that eng_device.create makes for `local_rank`, which exists already. ENG_UNAVAILABLE: nobody can be
   * asked, as where the library of the driver is missing. The run then goes on without gauges, and says nothing.
   *   Owner: caller, until close.  Call: [setup]  since 1.0 */
  eng_status (*open)(uint32_t local_rank, void **self, eng_error *);
  /* Call: [setup & created]  since 1.0 */
  void (*close)(void *self);
  /* Waits for no queue of the device, and takes a few milliseconds at most. Called between steps, when a line of progress
   * or of metrics is written, and at most once a second. An error does not end the run: the numbers are left out.
   *   Call: [setup & created]  since 1.0 */
  eng_status (*read)(void *self, eng_gauges *out, eng_error *);
} eng_monitor;

#ifdef __cplusplus
}
#endif
#endif
