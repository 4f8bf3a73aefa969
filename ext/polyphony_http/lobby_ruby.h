/* lobby_ruby.h - answers that wait for each other, see class_lobby.c. Where there is no lobby, none does. */
#ifndef POLYPHONY_LOBBY_RUBY_H
#define POLYPHONY_LOBBY_RUBY_H

#include <sys/uio.h>
#include "polyphony_http.h"

/* guest: a Lobby::Guest, or nil. Whether an answer that is the last thing to be done for its request was taken, to be sent with those of
 * others before anybody has reason to wait for it. */
bool lobby_hold(VALUE guest, int fd, const struct iovec parts[2]);
/* Sends what was taken, if it was not sent yet. Returns what is left to be sent, or nil. */
VALUE lobby_release(VALUE guest);

#endif
