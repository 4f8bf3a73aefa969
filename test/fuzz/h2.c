/* h2.c - what a client of HTTP/2 may send after its preface, through our budgets and nghttp2 as the server has them: the
 * same in whatever pieces it comes, and both have the same idea of where frames begin. The first byte says how it is
 * split, the second how tight the limits are. */
#include "fuzz.h"
#include "h2_budget.h"

#ifdef HAVE_LIBNGHTTP2
#include <nghttp2/nghttp2.h>

static const char PREFACE[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" "\0\0\0\4\0\0\0\0\0";
#define PREFACE_SIZE (sizeof(PREFACE) - 1)

struct run {
  struct h2_budget budget;
  nghttp2_session *session;
  unsigned headers, fields, refused, resets;
  size_t body;
  int error;                            /* of nghttp2's */
};

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *head, void *user) {
  struct run *run = user;
  (void)session;
  if (head->type == NGHTTP2_HEADERS) run->headers++;
  return 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
  struct run *run = user;
  (void)session;
  h2_budget_list(&run->budget, frame->headers.cat != NGHTTP2_HCAT_REQUEST);
  return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_size,
                     const uint8_t *value, size_t value_size, uint8_t flags, void *user) {
  struct run *run = user;
  (void)session, (void)frame, (void)name, (void)value, (void)flags;
  if (h2_budget_field(&run->budget, name_size, value_size)) {
    run->fields++;
    MUST(run->budget.fields <= run->budget.limits.fields && run->budget.list_bytes <= run->budget.list_limit);
  } else {
    run->refused++;
  }
  return run->budget.verdict == H2_FINE ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t size, void *user) {
  struct run *run = user;
  (void)flags, (void)data;
  run->body += size;
  nghttp2_session_consume(session, id, size);
  return 0;
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user) {
  struct run *run = user;
  (void)session;
  if (frame->hd.type == NGHTTP2_RST_STREAM) run->resets++;
  return 0;
}

static void open_session(struct run *run) {
  nghttp2_session_callbacks *callbacks;
  nghttp2_option *option;
  nghttp2_settings_entry entry = { NGHTTP2_SETTINGS_ENABLE_CONNECT_PROTOCOL, 1 };

  MUST(nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0);
  nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
  nghttp2_option_set_no_auto_window_update(option, 1);
  nghttp2_option_set_no_closed_streams(option, 1);
  MUST(nghttp2_session_server_new2(&run->session, callbacks, run, option) == 0);
  MUST(nghttp2_submit_settings(run->session, NGHTTP2_FLAG_NONE, &entry, 1) == 0);
  nghttp2_option_del(option);
  nghttp2_session_callbacks_del(callbacks);
}

static void feed(struct run *run, const char *bytes, size_t size) {
  char *copy = exact_copy(bytes, size);
  size_t taken = h2_budget_scan(&run->budget, (const uint8_t *)copy, size, 1);
  ssize_t rc;

  MUST(taken <= size && (taken == size || run->budget.verdict != H2_FINE));
  rc = nghttp2_session_mem_recv(run->session, (const uint8_t *)copy, taken);
  if (rc < 0) run->error = (int)rc;
  free(copy);
}

static void begin(struct run *run, uint8_t tight) {
  struct h2_limits limits = {
    .streams = 100, .list = tight & 1 ? 200 : 65536, .fields = tight & 2 ? 5 : 100, .trailers = tight & 1 ? 50 : 8192,
    .block = tight & 4 ? 100 : 65536, .continuations = 8, .queue = tight & 8 ? 5 : 1000,
    .resets = tight & 16 ? 3 : 200, .reset_rate = 33,
  };

  memset(run, 0, sizeof(*run));
  h2_budget_init(&run->budget, &limits, 1);
  open_session(run);
  feed(run, PREFACE, PREFACE_SIZE);
  MUST(!run->error && run->budget.verdict == H2_FINE);
}

static void end(struct run *run) {
  const uint8_t *data;

  while (nghttp2_session_mem_send(run->session, &data) > 0) {}
  nghttp2_session_del(run->session);
}

static void feed_in_pieces(struct run *run, const char *bytes, size_t size, uint32_t seed) {
  for (size_t fed = 0; fed < size && !run->error && run->budget.verdict == H2_FINE;) {
    size_t piece = next_piece(&seed, size - fed);
    feed(run, bytes + fed, piece);
    fed += piece;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct run whole, split;

  if (size < 2) return 0;
  begin(&whole, data[1]);
  begin(&split, data[1]);
  if (size > 2) feed(&whole, (const char *)data + 2, size - 2);
  feed_in_pieces(&split, (const char *)data + 2, size - 2, data[0]);
  /* nghttp2 counts pieces of CONTINUATIONs, and looks at once in a while whether it wants to read on: those ends may
   * differ */
  if (!whole.error && !split.error && nghttp2_session_want_read(whole.session) && nghttp2_session_want_read(split.session)) {
    MUST(whole.headers == split.headers && whole.fields == split.fields && whole.refused == split.refused);
    MUST(whole.body == split.body);
  }
  end(&whole);
  end(&split);
  return 0;
}

#else

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  (void)data, (void)size;
  return 0;
}

#endif
