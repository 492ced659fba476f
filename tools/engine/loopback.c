// SPDX-License-Identifier: Apache-2.0
// Loaded into mpirun before other libraries (LD_PRELOAD). Open MPI 4's mpirun listens on all interfaces for the daemons
// of other machines, and no setting changes the address. A run on one machine has no such daemons. Here a TCP or UDP
// socket that asks for all interfaces gets the loopback interface.
#define _DEFAULT_SOURCE  // with _GNU_SOURCE, bind takes a union
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

extern char* program_invocation_short_name;  // of <errno.h>, with _GNU_SOURCE

EXPORTED int bind(int fd, const struct sockaddr* address, socklen_t length) {
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
  if (address && length >= sizeof(v4) && address->sa_family == AF_INET) {
    memcpy(&v4, address, sizeof(v4));
    if (v4.sin_addr.s_addr == htonl(INADDR_ANY)) {
      v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      return (int)syscall(SYS_bind, fd, &v4, sizeof(v4));
    }
  } else if (address && length >= sizeof(v6) && address->sa_family == AF_INET6) {
    memcpy(&v6, address, sizeof(v6));
    if (IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr)) {
      v6.sin6_addr = in6addr_loopback;
      return (int)syscall(SYS_bind, fd, &v6, sizeof(v6));
    }
  }
  return (int)syscall(SYS_bind, fd, address, length);
}

// mpirun does not pass it on to the ranks. A script in front of mpirun does.
__attribute__((constructor)) static void leave(void) {
  const char* name = program_invocation_short_name;
  if (strncmp(name, "mpirun", 6) != 0 && strncmp(name, "orterun", 7) != 0) return;
  const char* mine = getenv("LD_PRELOAD");
  const char* others = mine ? strchr(mine, ':') : NULL;
  if (others)
    setenv("LD_PRELOAD", others + 1, 1);
  else
    unsetenv("LD_PRELOAD");
}
