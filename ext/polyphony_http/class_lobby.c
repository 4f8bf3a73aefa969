/* class_lobby.c - HTTP::Lobby: where connections wait for their next request, without a fiber, and small answers for each other.
 *
 * A connection spends its life waiting. With a fiber for each, thousands of stacks have to be kept, looked through by the
 * GC, and brought back into the processor's cache for a request that takes microseconds. So the kernel (epoll) tells who
 * has something to say, and a fiber serves one after the other; see crew.rb.
 *
 * Who has just come has mostly sent his request along: all who are new are looked at with one poll(2), and epoll hears of those that
 * have to wait, now or later. A connection for one request never gets there.
 * Each descriptor is added once, edge-triggered: a request costs no call to epoll of its own. That needs care:
 *   - Whoever rests must have taken all there is. A receive that gave less than was asked for has (epoll(7)); who
 *     cannot know asks for the descriptor to be looked at again (`again`).
 *   - News of somebody who is being served are noted, and he is served again at once instead of resting.
 *   - A client that is gone is told of once, so that is noted, too.
 * A descriptor is removed before it is closed: a forked child may keep the socket, and so what epoll knows of it, alive.
 * Somebody else may have closed it all the same, and the number be another's already: then the number is the other's.
 * A forked child has the same epoll, and must not change what it tells the parent.
 *
 * Small answers to requests that have come together leave together (outbox.h), as long as requests are brief: see hold_p. They are out
 *   - before anybody is served who has one there, and before his connection is closed;
 *   - before a request is begun with, unless a second fiber has been called, which sends them as soon as the first one waits;
 *   - when all have been served, and when one of them took its time.
 *
 * All of it happens in one thread, under the GVL. */
#include "lobby_ruby.h"

#ifdef __linux__
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>
#include "../polyphony/list.h"
#include "outbox.h"

#define NEWS_AT_ONCE 64
#define FOR_EVER 1e9                    /* seconds */
#define BRIEF 0.0001                    /* seconds for a request */
#define SURE 64                         /* so many in a row were brief: the next one is expected to be */
#define EVENTS (EPOLLIN | EPOLLRDHUP | EPOLLET)

static VALUE cLobby, cGuest;
static ID id_unsent;

/* NEW: nobody has looked at it, and epoll does not know it. LOST: has left, but the kernel could not be told, and may name it again. */
enum place { PLACE_NONE, PLACE_NEW, PLACE_FRESH, PLACE_KEPT, PLACE_READY, PLACE_BUSY, PLACE_LOST, PLACES };

static unsigned generation;             /* of this process: one more with every fork */

struct lobby {
  VALUE self;
  int epoll;                            /* -1 when closed */
  unsigned generation;                  /* of the process that opened it */
  struct guest **owners;                /* of descriptors, by number; NULL: nobody */
  int room;                             /* for so many */
  struct list lists[PLACES];            /* of guests; those who wait, longest waiting first */
  int64_t taken;                        /* ns: when the last one was, 0 if nobody is being served */
  int64_t most;                         /* ns that a brief request takes */
  int brief;                            /* how many in a row were that */
  struct outbox outbox;                 /* answers to guests */
};

struct guest {
  struct list link;                     /* in the list of its place */
  VALUE self, connection, lobby;
  VALUE unsent;                         /* String: what is left of an answer; or nil */
  int fd;                               /* -1 when somebody else has got the number */
  enum place place;
  bool watched;                         /* epoll knows it */
  bool news, gone, muted;               /* gone: the other end has closed; muted: nothing is told of it */
  bool held;                            /* its answer is in the outbox */
  bool fresh;                           /* it rests without having asked for anything */
  int64_t since;                        /* ms: when it began to wait */
};

/* ---- memory --------------------------------------------------------------------------------- */

/* A guest in a list has a fixed address in it, and the lobby one in itself. */
static void lobby_mark(void *pointer) {
  struct lobby *lobby = pointer;

  rb_gc_mark(lobby->self);
  for (int i = PLACE_NONE + 1; i < PLACES; i++)
    list_each(node, &lobby->lists[i]) rb_gc_mark(list_entry(node, struct guest, link)->self);
}

/* Guests in the lists are as dead as it is: nobody looks at them. */
static void lobby_free(void *pointer) {
  struct lobby *lobby = pointer;

  if (lobby->epoll >= 0) close(lobby->epoll);
  ruby_xfree(lobby->owners);
  ruby_xfree(lobby);
}

static size_t lobby_memsize(const void *pointer) {
  const struct lobby *lobby = pointer;
  return sizeof(*lobby) + (size_t)lobby->room * sizeof(*lobby->owners);
}

static const rb_data_type_t lobby_type = {
  .wrap_struct_name = "Polyphony::HTTP::Lobby",
  .function = { .dmark = lobby_mark, .dfree = lobby_free, .dsize = lobby_memsize },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static void guest_mark(void *pointer) {
  struct guest *guest = pointer;

  rb_gc_mark_movable(guest->connection);
  rb_gc_mark_movable(guest->unsent);
  rb_gc_mark(guest->lobby);
}

static void guest_compact(void *pointer) {
  struct guest *guest = pointer;
  guest->connection = rb_gc_location(guest->connection);
  guest->unsent = rb_gc_location(guest->unsent);
}

static size_t guest_memsize(const void *pointer) { return sizeof(struct guest); }

/* One that is freed is in no list, or the lobby is freed with it. */
static const rb_data_type_t guest_type = {
  .wrap_struct_name = "Polyphony::HTTP::Lobby::Guest",
  .function = { .dmark = guest_mark, .dcompact = guest_compact, .dfree = RUBY_TYPED_DEFAULT_FREE, .dsize = guest_memsize },
  .flags = RUBY_TYPED_FREE_IMMEDIATELY | RUBY_TYPED_WB_PROTECTED,
};

static VALUE Lobby_allocate(VALUE klass) {
  struct lobby *lobby;
  VALUE self = TypedData_Make_Struct(klass, struct lobby, &lobby_type, lobby);

  lobby->self = self;
  lobby->epoll = -1;
  lobby->most = (int64_t)(BRIEF * 1e9);
  for (int i = 0; i < PLACES; i++) list_init(&lobby->lists[i]);
  return self;
}

static struct lobby *lobby_of(VALUE self) { return rb_check_typeddata(self, &lobby_type); }
static struct guest *guest_of(VALUE self) { return rb_check_typeddata(self, &guest_type); }

static struct lobby *open_lobby_of(VALUE self) {
  struct lobby *lobby = lobby_of(self);

  if (lobby->epoll < 0) rb_raise(rb_eIOError, "the lobby is closed");
  return lobby;
}

/* ---- who is where --------------------------------------------------------------------------- */

static int64_t now(void) {
  struct timespec time;

  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void move(struct lobby *lobby, struct guest *guest, enum place place) {
  list_remove(&guest->link);
  guest->place = place;
  if (place == PLACE_NONE) return;
  list_push(&lobby->lists[place], &guest->link);
  RB_OBJ_WRITTEN(lobby->self, Qundef, guest->self);
}

static void wait_for_news(struct lobby *lobby, struct guest *guest, enum place place) {
  guest->since = now();
  move(lobby, guest, place);
}

static bool ours_p(const struct lobby *lobby) { return lobby->epoll >= 0 && lobby->generation == generation; }

static bool control(struct lobby *lobby, struct guest *guest, int operation, uint32_t events) {
  struct epoll_event event = { .events = events, .data.ptr = guest };
  return ours_p(lobby) && guest->fd >= 0 && epoll_ctl(lobby->epoll, operation, guest->fd, &event) == 0;
}

static void make_room(struct lobby *lobby, int fd) {
  if (fd < lobby->room) return;
  int room = fd < 32 ? 64 : 2 * fd;
  REALLOC_N(lobby->owners, struct guest *, room);
  memset(lobby->owners + lobby->room, 0, (size_t)(room - lobby->room) * sizeof(*lobby->owners));
  lobby->room = room;
}

/* Whoever had the number has been closed. */
static void own(struct lobby *lobby, struct guest *guest) {
  struct guest *before = lobby->owners[guest->fd];

  if (before) before->fd = -1;
  lobby->owners[guest->fd] = guest;
}

static void disown(struct lobby *lobby, struct guest *guest) {
  if (guest->fd >= 0) lobby->owners[guest->fd] = NULL;
  guest->fd = -1;
}

static void note(struct lobby *lobby, const struct epoll_event *event) {
  struct guest *guest = event->data.ptr;

  if (event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) guest->gone = true;
  if (guest->place == PLACE_FRESH || guest->place == PLACE_KEPT) move(lobby, guest, PLACE_READY);
  else guest->news = true;
}

/* If it cannot be, it is served: whoever does learns why when he has it rest. */
static void watch(struct lobby *lobby, struct guest *guest) {
  guest->watched = control(lobby, guest, EPOLL_CTL_ADD, EVENTS);
  if (guest->watched) wait_for_news(lobby, guest, PLACE_FRESH);
  else move(lobby, guest, PLACE_READY);
}

static void look_at_new(struct lobby *lobby) {
  struct pollfd looks[NEWS_AT_ONCE] = { 0 };
  int count = 0;

  list_each(node, &lobby->lists[PLACE_NEW]) {
    looks[count++] = (struct pollfd){ .fd = list_entry(node, struct guest, link)->fd, .events = POLLIN | POLLRDHUP };
    if (count == NEWS_AT_ONCE) break;
  }
  bool told = poll(looks, (nfds_t)count, 0) >= 0;
  for (int i = 0; i < count; i++) {
    struct guest *guest = list_entry(lobby->lists[PLACE_NEW].next, struct guest, link);
    if (told && looks[i].revents) move(lobby, guest, PLACE_READY);
    else watch(lobby, guest);
  }
}

/* Whether there may be more. */
static bool collect(struct lobby *lobby) {
  struct epoll_event events[NEWS_AT_ONCE];

  while (!list_empty_p(&lobby->lists[PLACE_NEW])) look_at_new(lobby);
  int count = ours_p(lobby) ? epoll_wait(lobby->epoll, events, NEWS_AT_ONCE, 0) : 0;

  for (int i = 0; i < count; i++) note(lobby, &events[i]);
  return count == NEWS_AT_ONCE;
}

/* ---- answers that leave together --------------------------------------------------------------- */

/* A forked child has a copy of what is its parent's to send. */
static void send_held(struct lobby *lobby) {
  struct outbox_entry entries[OUTBOX_MOST];
  int count = lobby->outbox.count;

  memcpy(entries, lobby->outbox.entries, (size_t)count * sizeof(*entries));
  outbox_clear(&lobby->outbox);         /* its bytes stay until somebody puts others there */
  for (int i = 0; i < count; i++) {
    struct guest *guest = entries[i].owner;
    guest->held = false;
    uint32_t left = ours_p(lobby) ? outbox_send(&lobby->outbox, &entries[i]) : 0;
    if (!left) continue;
    const char *end = lobby->outbox.bytes + entries[i].at + entries[i].length;
    RB_OBJ_WRITE(guest->self, &guest->unsent, rb_str_new(end - left, left));
    if (guest->place == PLACE_FRESH || guest->place == PLACE_KEPT) move(lobby, guest, PLACE_READY);
  }
}

/* Whether an answer may wait for those behind it: if there are any, and none of the last requests has taken its time. */
static bool hold_p(const struct lobby *lobby, const struct guest *guest, int fd) {
  return lobby->brief >= SURE && guest->place == PLACE_BUSY && guest->fd == fd && !guest->held && NIL_P(guest->unsent) && ours_p(lobby) &&
         (lobby->outbox.count || !list_empty_p(&lobby->lists[PLACE_READY]));
}

bool lobby_hold(VALUE object, int fd, const struct iovec parts[2]) {
  if (NIL_P(object)) return false;
  struct guest *guest = guest_of(object);
  struct lobby *lobby = lobby_of(guest->lobby);

  if (!hold_p(lobby, guest, fd)) return false;
  if (lobby->outbox.count == OUTBOX_MOST) send_held(lobby);
  guest->held = outbox_put(&lobby->outbox, guest, fd, parts);
  return guest->held;
}

VALUE lobby_release(VALUE object) {
  if (NIL_P(object)) return Qnil;
  struct guest *guest = guest_of(object);
  VALUE unsent;

  if (guest->held) send_held(lobby_of(guest->lobby));
  unsent = guest->unsent;
  guest->unsent = Qnil;
  return unsent;
}

/* How long the last request has taken, if it was served without a pause. */
static bool brief_p(struct lobby *lobby) {
  struct timespec time;
  int64_t before = lobby->taken;

  clock_gettime(CLOCK_MONOTONIC, &time);
  lobby->taken = (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
  if (before && lobby->taken - before > lobby->most) return false;
  if (before && lobby->brief < SURE) lobby->brief++;
  return true;
}

/* ---- Lobby ---------------------------------------------------------------------------------- */

static VALUE Lobby_initialize(VALUE self) {
  struct lobby *lobby = lobby_of(self);

  if (lobby->epoll >= 0) rb_raise(rb_eTypeError, "initialized already");
  lobby->epoll = epoll_create1(EPOLL_CLOEXEC);
  if (lobby->epoll < 0) rb_sys_fail("epoll_create1");
  lobby->generation = generation;
  rb_update_max_fd(lobby->epoll);
  return self;
}

static VALUE Lobby_set_brief(VALUE self, VALUE seconds) {
  lobby_of(self)->most = (int64_t)(NUM2DBL(seconds) * 1e9);
  return seconds;
}

/* What is readable when there is news. */
static VALUE Lobby_descriptor(VALUE self) { return INT2FIX(open_lobby_of(self)->epoll); }

/* enter(connection, descriptor) => Guest. Somebody has to look at it, or watch. */
static VALUE Lobby_enter(VALUE self, VALUE connection, VALUE descriptor) {
  struct lobby *lobby = open_lobby_of(self);
  struct guest *guest;
  VALUE object = TypedData_Make_Struct(cGuest, struct guest, &guest_type, guest);

  list_init(&guest->link);
  guest->self = object;
  guest->fd = NUM2INT(descriptor);
  guest->connection = guest->unsent = Qnil;
  RB_OBJ_WRITE(object, &guest->lobby, self);
  RB_OBJ_WRITE(object, &guest->connection, connection);
  if (guest->fd < 0 || !ours_p(lobby)) rb_raise(rb_eIOError, "no descriptor, or the lobby of another process");
  make_room(lobby, guest->fd);
  own(lobby, guest);
  move(lobby, guest, PLACE_NEW);
  return object;
}

/* Nobody is about to look at those who are new, so that epoll has to tell of them. */
static VALUE Lobby_watch(VALUE self) {
  struct lobby *lobby = open_lobby_of(self);

  while (!list_empty_p(&lobby->lists[PLACE_NEW])) watch(lobby, list_entry(lobby->lists[PLACE_NEW].next, struct guest, link));
  return Qnil;
}

/* What was left of his last answer comes first. */
static VALUE serve(struct lobby *lobby, struct guest *guest) {
  VALUE unsent = guest->unsent;

  if (!NIL_P(unsent)) rb_funcallv(guest->connection, id_unsent, 1, &unsent);
  guest->unsent = Qnil;
  guest->news = false;
  move(lobby, guest, PLACE_BUSY);
  return guest->connection;
}

/* take(helper = nil) => the connection whose turn it is, or nil. It is busy from here on. helper: nil, or somebody who was called and comes
 * as soon as whoever asks begins to wait. */
static VALUE Lobby_take(int argc, VALUE *argv, VALUE self) {
  VALUE helper = rb_check_arity(argc, 0, 1) ? argv[0] : Qnil;
  struct lobby *lobby = open_lobby_of(self);
  struct list *ready = &lobby->lists[PLACE_READY];

  if (!brief_p(lobby)) lobby->brief = 0;
  if (NIL_P(helper) || !lobby->brief || list_empty_p(ready)) send_held(lobby);
  if (list_empty_p(ready)) collect(lobby);
  if (list_empty_p(ready)) {
    lobby->taken = 0;
    return Qnil;
  }
  struct guest *guest = list_entry(ready->next, struct guest, link);
  if (guest->held) send_held(lobby);
  return serve(lobby, guest);
}

/* Whoever has been serving lets others run. */
static VALUE Lobby_pause(VALUE self) {
  struct lobby *lobby = lobby_of(self);

  send_held(lobby);
  lobby->taken = 0;
  return Qnil;
}

/* Whether there is somebody to be served, or to be looked at. */
static VALUE Lobby_ready_p(VALUE self) {
  struct lobby *lobby = lobby_of(self);
  return list_empty_p(&lobby->lists[PLACE_READY]) && list_empty_p(&lobby->lists[PLACE_NEW]) ? Qfalse : Qtrue;
}

/* The same, and asks the kernel before. */
static VALUE Lobby_look(VALUE self) {
  collect(open_lobby_of(self));
  return Lobby_ready_p(self);
}

static struct guest *first(struct lobby *lobby, enum place place) {
  struct list *list = &lobby->lists[place];
  return list_empty_p(list) ? NULL : list_entry(list->next, struct guest, link);
}

/* ms until the first of these has waited for so many seconds; nil: for ever. */
static int64_t left(struct lobby *lobby, enum place place, VALUE seconds) {
  struct guest *guest = first(lobby, place);

  if (!guest || NIL_P(seconds) || NUM2DBL(seconds) > FOR_EVER) return INT64_MAX;
  return guest->since + (int64_t)(NUM2DBL(seconds) * 1000) - now();
}

static struct guest *late(struct lobby *lobby, VALUE fresh, VALUE kept) {
  if (left(lobby, PLACE_FRESH, fresh) <= 0) return first(lobby, PLACE_FRESH);
  return left(lobby, PLACE_KEPT, kept) <= 0 ? first(lobby, PLACE_KEPT) : NULL;
}

/* expired(fresh, kept) => a connection that has waited for longer than so many seconds, or nil. It is ready. Somebody who has kept
 * the thread busy may have kept us from hearing of those who have asked meanwhile. */
static VALUE Lobby_expired(VALUE self, VALUE fresh, VALUE kept) {
  struct lobby *lobby = open_lobby_of(self);
  struct guest *guest = late(lobby, fresh, kept);

  if (guest) {
    while (collect(lobby)) continue;
    guest = late(lobby, fresh, kept);
  }
  if (!guest) return Qnil;
  move(lobby, guest, PLACE_READY);
  return guest->connection;
}

/* patience(fresh, kept) => seconds until that has to be asked again, or nil. */
static VALUE Lobby_patience(VALUE self, VALUE fresh, VALUE kept) {
  struct lobby *lobby = open_lobby_of(self);
  int64_t a = left(lobby, PLACE_FRESH, fresh), b = left(lobby, PLACE_KEPT, kept), least = a < b ? a : b;

  if (least == INT64_MAX) return Qnil;
  return DBL2NUM(least < 0 ? 0.0 : (double)least / 1000);
}

static VALUE Lobby_close(VALUE self) {
  struct lobby *lobby = lobby_of(self);

  send_held(lobby);
  if (lobby->epoll >= 0) close(lobby->epoll);
  lobby->epoll = -1;
  return Qnil;
}

/* ---- Guest ---------------------------------------------------------------------------------- */

/* The next rest is that of somebody who has not asked for anything yet. */
static VALUE Guest_not_asked(VALUE self) {
  guest_of(self)->fresh = true;
  return Qnil;
}

/* The kernel tells if there is more, and what it told before is old. */
static void look_again(struct lobby *lobby, struct guest *guest) {
  if (!control(lobby, guest, guest->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, EVENTS)) {
    if (guest->watched || !ours_p(lobby)) return;
    rb_sys_fail("epoll_ctl");           /* else it would wait for ever */
  }
  guest->watched = true;
  guest->news = false;
}

/* rest(again, hidden): has been served, and waits for more. again: there may be more already. Of TLS (hidden), what was told may be of
 * records that have been read meanwhile. */
static VALUE Guest_rest(VALUE self, VALUE again, VALUE hidden) {
  struct guest *guest = guest_of(self);
  struct lobby *lobby = lobby_of(guest->lobby);

  if (guest->place != PLACE_BUSY) return Qnil;
  if ((!guest->watched || RTEST(again) || guest->muted || (RTEST(hidden) && guest->news)) && !guest->gone) {
    guest->muted = false;
    look_again(lobby, guest);
  }
  if (guest->news || guest->gone || !NIL_P(guest->unsent)) move(lobby, guest, PLACE_READY);
  else wait_for_news(lobby, guest, guest->fresh ? PLACE_FRESH : PLACE_KEPT);
  guest->fresh = false;
  return Qnil;
}

/* Somebody else waits for what comes next, in his own way. Ends with rest. A reset is told all the same: once, as everything. */
static VALUE Guest_mute(VALUE self) {
  struct guest *guest = guest_of(self);
  struct lobby *lobby = lobby_of(guest->lobby);

  if (guest->muted || guest->place == PLACE_NONE) return Qnil;
  guest->muted = true;
  if (guest->watched) control(lobby, guest, EPOLL_CTL_MOD, EPOLLET);
  return Qnil;
}

/* Nothing more is told of it. To be said before it is closed. */
static VALUE Guest_leave(VALUE self) {
  struct guest *guest = guest_of(self);
  struct lobby *lobby = lobby_of(guest->lobby);

  if (guest->place == PLACE_NONE || guest->place == PLACE_LOST) return Qnil;
  if (guest->held) send_held(lobby);
  bool told = !guest->watched || control(lobby, guest, EPOLL_CTL_DEL, 0) || !ours_p(lobby);
  disown(lobby, guest);
  guest->connection = Qnil;
  move(lobby, guest, told ? PLACE_NONE : PLACE_LOST);
  return Qnil;
}

static void count_generation(void) { generation++; }

void Init_lobby(void) {
  id_unsent = rb_intern("__unsent");
  pthread_atfork(NULL, NULL, count_generation);
  cLobby = rb_define_class_under(mHTTP, "Lobby", rb_cObject);
  rb_gc_register_mark_object(cLobby);
  rb_define_alloc_func(cLobby, Lobby_allocate);
  rb_define_method(cLobby, "initialize", Lobby_initialize, 0);
  rb_define_method(cLobby, "brief=", Lobby_set_brief, 1);
  rb_define_method(cLobby, "descriptor", Lobby_descriptor, 0);
  rb_define_method(cLobby, "enter", Lobby_enter, 2);
  rb_define_method(cLobby, "watch", Lobby_watch, 0);
  rb_define_method(cLobby, "take", Lobby_take, -1);
  rb_define_method(cLobby, "pause", Lobby_pause, 0);
  rb_define_method(cLobby, "ready?", Lobby_ready_p, 0);
  rb_define_method(cLobby, "look", Lobby_look, 0);
  rb_define_method(cLobby, "expired", Lobby_expired, 2);
  rb_define_method(cLobby, "patience", Lobby_patience, 2);
  rb_define_method(cLobby, "close", Lobby_close, 0);
  cGuest = rb_define_class_under(cLobby, "Guest", rb_cObject);
  rb_gc_register_mark_object(cGuest);
  rb_undef_alloc_func(cGuest);
  rb_define_method(cGuest, "not_asked", Guest_not_asked, 0);
  rb_define_method(cGuest, "rest", Guest_rest, 2);
  rb_define_method(cGuest, "mute", Guest_mute, 0);
  rb_define_method(cGuest, "leave", Guest_leave, 0);
}

#else
void Init_lobby(void) {}                /* a fiber for each connection, then */
bool lobby_hold(VALUE guest, int fd, const struct iovec parts[2]) { return false; }
VALUE lobby_release(VALUE guest) { return Qnil; }
#endif
