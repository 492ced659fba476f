/* SPDX-License-Identifier: Apache-2.0
 * Calls deleters when the process exits, after the plugins were stopped: of a session that was closed, and of one that
 * never was. Prints "late" when that went well. Arguments: the configuration. */
#include <stdio.h>
#include <stdlib.h>

#include "engine/embed.h"

static DLManagedTensorVersioned* kept[2];

static void late(void) {
  int k;
  for (k = 0; k < 2; ++k)
    if (kept[k]) kept[k]->deleter(kept[k]);
  puts("late");
}

int main(int argc, char** argv) {
  int k;
  eng_session_request request = {.struct_size = sizeof(request), .flags = ENG_SESSION_NO_FILES};
  /* Registered before any plugin is loaded, so it runs after all of them were stopped. */
  atexit(late);
  if (argc < 2) return 2;
  request.target = argv[1];
  for (k = 0; k < 2; ++k) {
    eng_session* run = NULL;
    if (eng_session_open(&request, &run, NULL) != ENG_OK) return 1;
    if (eng_session_step(run, NULL, 0, NULL, NULL) != ENG_OK) return 1;
    if (eng_session_take(run, "model.norm.weight", NULL, ENG_TAKE_WRITABLE, &kept[k], NULL) != ENG_OK) return 1;
    if (k == 0 && eng_session_close(run, NULL) != ENG_OK) return 1;
  }
  return 0;
}
