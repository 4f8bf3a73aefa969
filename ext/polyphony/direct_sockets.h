/* direct_sockets.h - stock methods of sockets that would stop the whole thread, or for which there
 * is a shorter way than through the scheduler: what their files share. Layer 2. */
#ifndef POLYPHONY_DIRECT_SOCKETS_H
#define POLYPHONY_DIRECT_SOCKETS_H

#include <sys/socket.h>
#include "io.h"

/* Whether others can run while the fiber waits. If not, the method is left to stock Ruby. */
bool direct_may_switch_p(void);

/* Of Ruby's socket library; raises. The name is a literal: it is looked up once. */
#define direct_constant(name) rb_const_get(rb_cObject, rb_intern(name))
int direct_socket_option(int fd, int option);          /* of SOL_SOCKET; -1 if it has none */
VALUE direct_addrinfo(int fd, const void *address, socklen_t length);
VALUE direct_module(const char *name);                 /* to be prepended to that class */

#endif
