/* class_peer.c - HTTP.__peer: who is at the other end of a socket. What Ruby has for that makes an object of two
 * kilobytes for each connection. */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include "polyphony_http.h"

static VALUE last_text;                 /* of last_address; false: of none */
static uint32_t last_address;

static VALUE text_of(const char *address) {
  return rb_obj_freeze(rb_enc_str_new_cstr(address, rb_usascii_encoding()));
}

static VALUE pair(VALUE address, in_port_t port) {
  VALUE parts[] = { address, INT2FIX(ntohs(port)) };
  return rb_ary_new_from_values(2, parts);
}

/* Behind a proxy, and from a busy client, connections come from the same place again and again. */
static VALUE ipv4(const void *bytes, in_port_t port) {
  char text[INET_ADDRSTRLEN];
  uint32_t address;

  memcpy(&address, bytes, sizeof(address));
  if (!last_text || address != last_address) {
    last_text = text_of(inet_ntop(AF_INET, bytes, text, sizeof(text)));
    last_address = address;
  }
  return pair(last_text, port);
}

/* A socket for both has those of IPv4 in an address of IPv6. With the name of the interface where that is needed (%eth0). */
static VALUE ipv6(const struct sockaddr_in6 *address, socklen_t length) {
  char text[NI_MAXHOST];

  if (IN6_IS_ADDR_V4MAPPED(&address->sin6_addr)) return ipv4(&address->sin6_addr.s6_addr[12], address->sin6_port);
  if (getnameinfo((const struct sockaddr *)address, length, text, sizeof(text), NULL, 0, NI_NUMERICHOST)) return Qnil;
  return pair(text_of(text), address->sin6_port);
}

/* __peer(socket) => [address, port], the address frozen, or nil if it has none. Raises SystemCallError if it is gone. */
static VALUE HTTP_s_peer(VALUE self, VALUE socket) {
  union { struct sockaddr any; struct sockaddr_in in; struct sockaddr_in6 in6; struct sockaddr_storage room; } address;
  socklen_t length = sizeof(address);

  if (getpeername(rb_io_descriptor(socket), &address.any, &length) < 0) rb_sys_fail("getpeername(2)");
  switch (address.any.sa_family) {
    case AF_INET: return ipv4(&address.in.sin_addr, address.in.sin_port);
    case AF_INET6: return ipv6(&address.in6, length);
    default: return Qnil;
  }
}

void Init_peer(void) {
  rb_gc_register_address(&last_text);
  rb_define_singleton_method(mHTTP, "__peer", HTTP_s_peer, 1);
}
