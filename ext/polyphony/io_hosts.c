/* io_hosts.c - the functions that getaddrinfo and getnameinfo took the place of; see io_resolve.h.
 * Only their re-entrant versions will do: lookups run beside each other. */
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include "io_resolve.h"

#ifdef __linux__

enum { FIRST_ROOM = 1024, MOST_ROOM = 1 << 20 };

/* What was found points into the room behind it. */
struct entry {
  union { struct hostent host; struct servent service; } as;
  char room[];
};

struct entry_lookup {
  struct lookup lookup;
  /* One of the four; ERANGE when the room is too small. found is NULL when there is nothing. */
  int (*ask)(struct entry_lookup *asked, struct entry *entry, size_t room, void **found);
  int number;                   /* family, or port */
  socklen_t length;
  char address[16];
  char name[NI_MAXHOST];
  char protocol[64];
};

static int ask_host_by_name(struct entry_lookup *asked, struct entry *entry, size_t room,
                            void **found) {
  int reason;

  return gethostbyname_r(asked->name, &entry->as.host, entry->room, room, (struct hostent **)found,
                         &reason);
}

static int ask_host_by_address(struct entry_lookup *asked, struct entry *entry, size_t room,
                               void **found) {
  int reason;

  return gethostbyaddr_r(asked->address, asked->length, asked->number, &entry->as.host, entry->room,
                         room, (struct hostent **)found, &reason);
}

static int ask_service_by_name(struct entry_lookup *asked, struct entry *entry, size_t room,
                               void **found) {
  return getservbyname_r(asked->name, asked->protocol, &entry->as.service, entry->room, room,
                         (struct servent **)found);
}

static int ask_service_by_port(struct entry_lookup *asked, struct entry *entry, size_t room,
                               void **found) {
  return getservbyport_r(asked->number, asked->protocol, &entry->as.service, entry->room, room,
                         (struct servent **)found);
}

static void find_entry(struct lookup *lookup) {
  struct entry_lookup *asked = (struct entry_lookup *)lookup;
  struct entry *entry = NULL;
  void *found = NULL;
  int rc = ERANGE;

  for (size_t room = FIRST_ROOM; rc == ERANGE && room <= MOST_ROOM; room *= 2) {
    free(entry);
    entry = malloc(sizeof(*entry) + room);
    rc = entry ? asked->ask(asked, entry, room, &found) : ENOMEM;
  }
  if (rc == 0 && found) lookup->answer = entry;
  else free(entry);
}

static VALUE host_row(VALUE argument) {
  struct hostent *host = &((struct entry *)argument)->as.host;
  VALUE aliases = rb_ary_new();
  VALUE row = rb_ary_new_from_args(3, rb_str_new_cstr(host->h_name), aliases,
                                   INT2NUM(host->h_addrtype));

  for (char **alias = host->h_aliases; alias && *alias; alias++)
    rb_ary_push(aliases, rb_str_new_cstr(*alias));
  for (char **address = host->h_addr_list; address && *address; address++)
    rb_ary_push(row, rb_str_new(*address, host->h_length));
  return row;
}

static VALUE service_port(VALUE argument) {
  return INT2FIX(ntohs((uint16_t)((struct entry *)argument)->as.service.s_port));
}

static VALUE service_name(VALUE argument) {
  return rb_str_new_cstr(((struct entry *)argument)->as.service.s_name);
}

static VALUE free_entry(VALUE argument) {
  free((struct entry *)argument);
  return Qnil;
}

static VALUE find(struct entry_lookup *asked, VALUE subject, VALUE (*build)(VALUE)) {
  asked->lookup.run = find_entry;
  asked->lookup.free_answer = free;
  lookup_on_worker(backend_base_current(), &asked->lookup, sizeof(*asked), subject);
  VALUE entry = (VALUE)asked->lookup.answer;
  return entry ? rb_ensure(build, entry, free_entry, entry) : Qnil;
}

VALUE io_gethostbyname(VALUE name) {
  struct entry_lookup asked = { .ask = ask_host_by_name };

  if (!lookup_copy(asked.name, sizeof(asked.name), name)) return Qnil;
  return find(&asked, name, host_row);
}

VALUE io_gethostbyaddr(VALUE packed, int family) {
  struct entry_lookup asked = { .ask = ask_host_by_address, .number = family };

  StringValue(packed);
  if ((size_t)RSTRING_LEN(packed) > sizeof(asked.address)) return Qnil;
  asked.length = (socklen_t)RSTRING_LEN(packed);
  memcpy(asked.address, RSTRING_PTR(packed), asked.length);
  return find(&asked, packed, host_row);
}

VALUE io_getservbyname(VALUE name, VALUE protocol) {
  struct entry_lookup asked = { .ask = ask_service_by_name };

  if (!lookup_copy(asked.name, sizeof(asked.name), name)) return Qnil;
  if (!lookup_copy(asked.protocol, sizeof(asked.protocol), protocol)) return Qnil;
  return find(&asked, name, service_port);
}

VALUE io_getservbyport(int port, VALUE protocol) {
  struct entry_lookup asked = { .ask = ask_service_by_port, .number = htons((uint16_t)port) };

  if (!lookup_copy(asked.protocol, sizeof(asked.protocol), protocol)) return Qnil;
  return find(&asked, INT2NUM(port), service_name);
}

#else

VALUE io_gethostbyname(VALUE name) { return (void)name, Qundef; }
VALUE io_gethostbyaddr(VALUE packed, int family) { return (void)packed, (void)family, Qundef; }
VALUE io_getservbyname(VALUE name, VALUE protocol) { return (void)name, (void)protocol, Qundef; }
VALUE io_getservbyport(int port, VALUE protocol) { return (void)port, (void)protocol, Qundef; }

#endif
