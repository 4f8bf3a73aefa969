/* io_resolve.h - names to addresses and back by the system's resolver, on a worker thread, while
 * other fibers run. Layer 1; everything here switches and raises unless it says otherwise. A cancel
 * does not wait for the resolver: what it was given lives until it comes back.
 *
 * Numbers are not looked up, and need no worker. Errors are what Socket raises in this Ruby. */
#ifndef POLYPHONY_IO_RESOLVE_H
#define POLYPHONY_IO_RESOLVE_H

#include "io.h"

/* As getaddrinfo(3). host and service: String or nil; service may be an Integer. Returns
 * [[packed address, family, socktype, protocol, canonical name or nil], ...]. */
VALUE io_getaddrinfo(VALUE host, VALUE service, int family, int socktype, int protocol, int flags);

/* The packed addresses alone, to connect to; an error names host and service. */
VALUE io_addresses(VALUE host, VALUE service, int family, int socktype);

/* What a Fiber::Scheduler answers to address_resolve: all addresses as numeric Strings, with the
 * scope ("%eth0") where there is one. An unknown name raises: nil would make Ruby say "name or
 * service not known" for a name server that does not answer, too. */
VALUE io_address_resolve(VALUE hostname);

/* As getnameinfo(3): [host, service]. The address is a packed one. */
VALUE io_getnameinfo(VALUE address, int flags);

/* Whether stock Ruby would ask the resolver for it. False also for what it refuses. Does not raise. */
bool io_lookup_needed_p(VALUE host, VALUE service);

/* io_hosts.c: the older functions. nil when nothing is found; Qundef where the system has no
 * re-entrant ones. */
VALUE io_gethostbyname(VALUE name);                    /* [name, aliases, family, packed ...] */
VALUE io_gethostbyaddr(VALUE packed, int family);      /* likewise */
VALUE io_getservbyname(VALUE name, VALUE protocol);    /* port */
VALUE io_getservbyport(int port, VALUE protocol);      /* name */

/* A lookup is the memory of its op, and is copied there and back: it is flat but for the answer. */
struct lookup {
  void (*run)(struct lookup *); /* on the worker */
  int error;                    /* as the function returns it; 0: none */
  int system_error;             /* errno then */
  void *answer;                 /* or NULL */
  void (*free_answer)(void *);
};

/* On return lookup has the result; the answer is the caller's to free. */
void lookup_on_worker(struct backend_base *backend, struct lookup *lookup, size_t size,
                      VALUE subject);
/* Copies a String without NUL; false if it does not fit. Raises. */
bool lookup_copy(char *into, size_t size, VALUE string);

#endif
