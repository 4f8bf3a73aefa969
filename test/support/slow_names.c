/* slow_names.c - a resolver that hangs until it is told to go on, for LD_PRELOAD.
 *
 *   cc -shared -fPIC -o slow_names.so slow_names.c
 *
 * SLOW_NAMES=began,gate are two descriptors. A lookup of a name that begins with "hang", of an address
 * in 127.9.9.0/24 or of the service "hangserv" writes a byte to the first and goes on when it has read
 * one from the second; the answer is then 127.0.0.1, "slow.test" or port 7, echo. Port 9999 hangs, too. Without asking anybody:
 *
 *   nosuch...   is not known          again...  the name server does not answer
 *   many.test   has sixty addresses   broken... fails with ENFILE
 *   example.com is 127.0.0.1 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void hang(void) {
  const char *fds = getenv("SLOW_NAMES");
  int began, gate;
  char byte = '.';

  if (!fds || sscanf(fds, "%d,%d", &began, &gate) != 2) return;
  if (write(began, &byte, 1) < 0) return;
  struct pollfd pollfd = { .fd = gate, .events = POLLIN };
  while (read(gate, &byte, 1) < 0) poll(&pollfd, 1, -1);
}

static bool begins_p(const char *name, const char *with) {
  return name && strncmp(name, with, strlen(with)) == 0;
}

static bool slow_address_p(const void *address, int family) {
  return family == AF_INET && memcmp(address, "\x7f\x09\x09", 3) == 0;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = dlsym(RTLD_NEXT, #name)

static int resolve(const char *node, const char *service, const struct addrinfo *hints,
                   struct addrinfo **found) {
  REAL(getaddrinfo);
  return real(node, service, hints, found);
}

static int resolve_many(const char *service, const struct addrinfo *hints, struct addrinfo **found) {
  char number[16];
  int error = 0;

  for (int i = 1; i <= 60 && !error; i++) {
    snprintf(number, sizeof(number), "127.0.1.%d", i);
    error = resolve(number, service, hints, found);
    while (!error && *found) found = &(*found)->ai_next;
  }
  return error;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **found) {
  bool number = hints && hints->ai_flags & AI_NUMERICHOST;

  if (!number && (begins_p(node, "hang") || begins_p(service, "hangserv"))) {
    hang();
    return resolve(node ? "127.0.0.1" : NULL, begins_p(service, "hangserv") ? "7" : service, hints,
                   found);
  }
  if (!number && begins_p(node, "many.test")) return resolve_many(service, hints, found);
  if (!number && begins_p(node, "example.com")) return resolve("127.0.0.1", service, hints, found);
  if (begins_p(node, "nosuch")) return EAI_NONAME;
  if (!number && begins_p(node, "again")) return EAI_AGAIN;
  if (!number && begins_p(node, "broken")) return errno = ENFILE, EAI_SYSTEM;
  return resolve(node, service, hints, found);
}

static int slow_name(char *host, socklen_t host_size, char *service, socklen_t service_size) {
  hang();
  if (host) snprintf(host, host_size, "slow.test");
  if (service) snprintf(service, service_size, "7");
  return 0;
}

int getnameinfo(const struct sockaddr *address, socklen_t length, char *host, socklen_t host_size,
                char *service, socklen_t service_size, int flags) {
  REAL(getnameinfo);
  const struct sockaddr_in *in = (const struct sockaddr_in *)address;

  if (!(flags & NI_NUMERICHOST) && length >= sizeof(*in) &&
      slow_address_p(&in->sin_addr, in->sin_family))
    return slow_name(host, host_size, service, service_size);
  return real(address, length, host, host_size, service, service_size, flags);
}

int gethostbyaddr_r(const void *address, socklen_t length, int type, struct hostent *result, char *room,
                    size_t size, struct hostent **found, int *reason) {
  REAL(gethostbyaddr_r);
  if (!slow_address_p(address, type))
    return real(address, length, type, result, room, size, found, reason);
  hang();
  return real("\x7f\0\0\1", 4, AF_INET, result, room, size, found, reason);
}

int gethostbyname_r(const char *name, struct hostent *result, char *room, size_t size,
                    struct hostent **found, int *reason) {
  REAL(gethostbyname_r);
  return real(begins_p(name, "127.") ? "localhost" : name, result, room, size, found, reason);
}

/* Not every machine has a table of services. */
static int echo(struct servent *result, struct servent **found) {
  static char *no_aliases[] = { NULL };

  hang();
  *result = (struct servent){ .s_name = "echo", .s_aliases = no_aliases, .s_port = htons(7) };
  *found = result;
  return 0;
}

int getservbyname_r(const char *name, const char *protocol, struct servent *result, char *room,
                    size_t size, struct servent **found) {
  REAL(getservbyname_r);
  if (begins_p(name, "hangserv")) return echo(result, found);
  return real(name, protocol, result, room, size, found);
}

int getservbyport_r(int port, const char *protocol, struct servent *result, char *room, size_t size,
                    struct servent **found) {
  REAL(getservbyport_r);
  if (port == htons(9999)) return echo(result, found);
  return real(port, protocol, result, room, size, found);
}
