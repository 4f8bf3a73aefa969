/* tls_ruby.h - what short requests and answers in TLS are read and written with, without the detour through Ruby's openssl,
 * which costs as much as the rest of them. Neither waits; the socket has to be non-blocking, and open: an SSLSocket
 * knows only its number. */
#ifndef POLYPHONY_TLS_RUBY_H
#define POLYPHONY_TLS_RUBY_H

#include <sys/types.h>
#include "polyphony_http.h"

/* io: an OpenSSL::SSL::SSLSocket after its handshake. How many bytes; -1: none, or it cannot be done here: asking Ruby's
 * openssl for the same tells why. more: a part of the record, or of another, is still to be read. emptied: the kernel had no
 * more than that. Raises OpenSSL::SSL::SSLError for what is no TLS, which is told once only. */
ssize_t tls_read(VALUE io, char *bytes, size_t size, bool *more, bool *emptied);
/* The same; what was not written has to be written next, with the same bytes (SSL_write(3)). */
ssize_t tls_write(VALUE io, const char *bytes, size_t size);

#endif
