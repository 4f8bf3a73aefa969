/* driver_libev_api.c - see driver_libev_api.h */
#ifdef HAVE_LIBEV
#define LIBEV_API_ITSELF
#include "driver_libev_api.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

/* As extconf was told by --with-libev-dir. Nowhere else that is not the system's: the folder that a program is started in may be anybody's. */
#ifdef LIBEV_DIR
#define NAMED LIBEV_DIR "/libev.so.4", LIBEV_DIR "/libev.4.dylib",
#else
#define NAMED
#endif

/* Its own names come first for it, not those of an extension that was loaded before. (AddressSanitizer refuses
 * the flag.) */
#if defined(RTLD_DEEPBIND) && !defined(__SANITIZE_ADDRESS__)
#define PRIVATELY (RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)
#else
#define PRIVATELY (RTLD_NOW | RTLD_LOCAL)
#endif

struct libev_api libev_api;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;
static char failure[256];

static const char *const names[] = {
  NAMED "libev.so.4", "libev.4.dylib", "libev.so", "libev.dylib", NULL
};

static void *open_library(void) {
  void *library = NULL;

  for (const char *const *name = names; *name && !library; name++) library = dlopen(*name, PRIVATELY);
  return library;
}

static bool look_up(void *library) {
#define FIND(name) \
  if (!(libev_api.p_##name = (__typeof__(name) *)dlsym(library, #name))) return false;
  EACH_LIBEV_FUNCTION(FIND)
#undef FIND
  return libev_api.p_ev_version_major() == EV_VERSION_MAJOR;
}

static void load(void) {
  void *library = open_library();

  loaded = library && look_up(library);
  if (loaded) return;
  const char *error = dlerror();
  snprintf(failure, sizeof(failure), "libev cannot be loaded (%s); is it installed?", error ? error : "another version");
}

int libev_load(char *why, size_t size) {
  pthread_once(&once, load);
  if (!loaded && why) snprintf(why, size, "%s", failure);
  return loaded ? 0 : -ENOENT;
}
#endif
