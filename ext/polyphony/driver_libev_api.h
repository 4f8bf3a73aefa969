/* driver_libev_api.h - libev's functions, looked up when the driver is first used.
 *
 * Not linked: Ruby loads extensions, and what they are linked with, for all to see (RTLD_GLOBAL). Extensions that
 * carry a libev of their own, changed for Ruby, would get ours in its place, or we theirs: nio4r's held the
 * lock of the interpreter while it waited, and Puma answered nobody. */
#ifndef POLYPHONY_DRIVER_LIBEV_API_H
#define POLYPHONY_DRIVER_LIBEV_API_H

#include <ev.h>
#include <stddef.h>

#define EACH_LIBEV_FUNCTION(DO) \
  DO(ev_break) DO(ev_fork_start) DO(ev_io_start) DO(ev_io_stop) DO(ev_loop_destroy) DO(ev_loop_new) \
  DO(ev_now_update) DO(ev_recommended_backends) DO(ev_run) DO(ev_set_userdata) DO(ev_timer_start) \
  DO(ev_timer_stop) DO(ev_userdata) DO(ev_version_major)

#define LIBEV_MEMBER(name) __typeof__(name) *p_##name;
struct libev_api { EACH_LIBEV_FUNCTION(LIBEV_MEMBER) };
#undef LIBEV_MEMBER

extern struct libev_api libev_api;

/* 0, or -errno and a line in why. Once it was 0, the functions can be called. */
int libev_load(char *why, size_t size);

#ifndef LIBEV_API_ITSELF
#define ev_break                libev_api.p_ev_break
#define ev_fork_start           libev_api.p_ev_fork_start
#define ev_io_start             libev_api.p_ev_io_start
#define ev_io_stop              libev_api.p_ev_io_stop
#define ev_loop_destroy         libev_api.p_ev_loop_destroy
#define ev_loop_new             libev_api.p_ev_loop_new
#define ev_now_update           libev_api.p_ev_now_update
#define ev_recommended_backends libev_api.p_ev_recommended_backends
#define ev_run                  libev_api.p_ev_run
#define ev_set_userdata         libev_api.p_ev_set_userdata
#define ev_timer_start          libev_api.p_ev_timer_start
#define ev_timer_stop           libev_api.p_ev_timer_stop
#define ev_userdata             libev_api.p_ev_userdata
#endif

#endif
