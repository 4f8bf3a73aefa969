/* echo_listen.h - what both echo servers begin with: listen on any port and say which. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { BUFFER = 8192, BACKLOG = 1024 };

static void need(int ok, const char *what) {
  if (ok) return;
  perror(what);
  exit(1);
}

static int listen_and_tell(int flags) {
  struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
  socklen_t length = sizeof(address);
  int fd = socket(AF_INET, SOCK_STREAM | flags, 0);

  need(fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, BACKLOG) == 0 &&
       getsockname(fd, (struct sockaddr *)&address, &length) == 0, "listen");
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  return fd;
}
