/* SPDX-License-Identifier: Apache-2.0
 * Preloaded into a run: one request to a scratch file fails with EIO, moves fewer bytes, or ends the process.
 * DISK_FAULT = "eio N RANK", "short N RANK" or "kill N RANK": at request N, and EIO at all later ones, of the rank
 * with this number. DISK_FOLDER: of the scratch files. Requests go one at a time: there is no io_uring. */
#define _GNU_SOURCE /* syscall */
#include <errno.h>
#include <liburing.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int seen;

enum fault { NONE, FAILS, SHORT };

static int is_scratch(int fd) {
  char link[64], name[4096];
  const char* folder = getenv("DISK_FOLDER");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, name, sizeof name - 1);
  if (n < 0 || !folder) return 0;
  name[n] = 0;
  return strncmp(name, folder, strlen(folder)) == 0;
}

static enum fault fault_of(int fd) {
  const char *text = getenv("DISK_FAULT"), *mine = getenv("OMPI_COMM_WORLD_RANK");
  char what[16];
  int number = 0, rank = 0;
  if (!text || !is_scratch(fd) || sscanf(text, "%15s %d %d", what, &number, &rank) != 3) return NONE;
  if (rank != (mine ? atoi(mine) : 0)) return NONE;
  const int now = atomic_fetch_add(&seen, 1) + 1;
  if (strcmp(what, "eio") == 0) return now >= number ? FAILS : NONE;
  if (now != number) return NONE;
  if (strcmp(what, "kill") == 0) kill(getpid(), SIGKILL);
  return SHORT;
}

ssize_t pread(int fd, void* to, size_t bytes, off_t at) {
  const enum fault fault = fault_of(fd);
  if (fault == FAILS) return errno = EIO, -1;
  return syscall(SYS_pread64, fd, to, fault == SHORT && bytes > 4096 ? 4096 : bytes, at);
}

ssize_t pwrite(int fd, const void* from, size_t bytes, off_t at) {
  const enum fault fault = fault_of(fd);
  if (fault == FAILS) return errno = EIO, -1;
  return syscall(SYS_pwrite64, fd, from, fault == SHORT && bytes > 4096 ? 4096 : bytes, at);
}

int io_uring_queue_init(unsigned entries, struct io_uring* ring, unsigned flags) {
  (void)entries, (void)ring, (void)flags;
  return -ENOSYS;
}
