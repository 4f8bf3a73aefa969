/* io_chain.c - several operations in order, of which the driver does as many in one go as it can;
 * see io.h
 *
 * Where it has links, writes that follow each other are submitted together, each starting when the
 * one before has written all. One that writes a part, or fails, breaks the chain; then the rest
 * is done one by one, from the right byte on. */
#include <errno.h>
#include "io.h"

enum { MOST_LINKED = 16 };

enum item_kind { ITEM_WRITE, ITEM_SEND, ITEM_SPLICE };

struct item {
  enum item_kind kind;
  VALUE io;                     /* the target */
  VALUE text;                   /* frozen String, of write and send */
  VALUE source;                 /* of splice */
  int flags;                    /* of send */
  long maxlen;                  /* of splice */
};

/* ---- what is asked for ----------------------------------------------------------------------- */

static const struct {
  const char *name;
  long size;
} forms[] = {
  [ITEM_WRITE]  = { "write",  3 },
  [ITEM_SEND]   = { "send",   4 },
  [ITEM_SPLICE] = { "splice", 4 },
};

NORETURN(static void raise_bad(VALUE operation));

static void raise_bad(VALUE operation) {
  rb_raise(rb_eRuntimeError, "expected [:write, io, string], [:send, io, string, flags] or "
           "[:splice, source, target, length], got %"PRIsVALUE, rb_inspect(operation));
}

static enum item_kind kind_of(VALUE operation) {
  if (RB_TYPE_P(operation, T_ARRAY))
    for (int kind = ITEM_WRITE; kind <= ITEM_SPLICE; kind++)
      if (rb_ary_entry(operation, 0) == ID2SYM(rb_intern(forms[kind].name)) &&
          RARRAY_LEN(operation) == forms[kind].size) return kind;
  raise_bad(operation);
}

static VALUE integer(VALUE operation, long index) {
  VALUE number = rb_ary_entry(operation, index);

  if (!RB_INTEGER_TYPE_P(number)) raise_bad(operation);
  return number;
}

static struct item item_of(VALUE operation) {
  struct item item = { .kind = kind_of(operation), .text = Qnil, .source = Qnil };

  if (item.kind == ITEM_SPLICE) {
    item.source = rb_ary_entry(operation, 1);
    item.io = rb_ary_entry(operation, 2);
    item.maxlen = NUM2LONG(integer(operation, 3));
    fd_of(item.source, FD_READ);
  } else {
    item.io = rb_ary_entry(operation, 1);
    item.text = buffer_text(rb_ary_entry(operation, 2));
    if (item.kind == ITEM_SEND) item.flags = NUM2INT(integer(operation, 3));
  }
  fd_of(item.io, FD_WRITE);     /* complains before anything is done */
  return item;
}

/* ---- one by one ------------------------------------------------------------------------------ */

static VALUE write_from(struct backend_base *backend, const struct item *item, long done) {
  const char *base = RSTRING_PTR(item->text) + done;
  long length = RSTRING_LEN(item->text);

  if (item->kind == ITEM_SEND && done == 0) return io_send(item->io, item->text, item->flags);
  if (item->kind == ITEM_SEND) io_send(item->io, rb_str_new(base, length - done), item->flags);
  else io_write_all(backend, fd_of(item->io, FD_WRITE), base, (size_t)(length - done), item->text,
                    item->io);
  return LONG2NUM(length);
}

static VALUE perform(struct backend_base *backend, const struct item *item) {
  if (item->kind == ITEM_SPLICE) return io_splice(item->source, item->io, item->maxlen);
  return write_from(backend, item, 0);
}

/* ---- in one go ------------------------------------------------------------------------------- */

static unsigned linkable(const struct item *items, unsigned count) {
  unsigned n = 0;

  while (n < count && n < MOST_LINKED && items[n].kind != ITEM_SPLICE) n++;
  return n;
}

static struct op *op_of(struct backend_base *backend, const struct item *item, int fd) {
  struct op *op = loop_acquire_op(&backend->loop, OP_WRITE, fd);

  if (!op) return NULL;
  op->as.rw.base = RSTRING_PTR(item->text);
  op->as.rw.len = (size_t)RSTRING_LEN(item->text);
  op->as.rw.offset = -1;
  if (item->kind == ITEM_SEND) {
    op->kind = OP_SEND;
    op->as.rw.flags = item->flags | MSG_WAITALL;
  }
  return op;
}

static void build(struct backend_base *backend, const struct item *items, unsigned count,
                  const int *fds, struct op **ops) {
  for (unsigned i = 0; i < count; i++) {
    ops[i] = op_of(backend, &items[i], fds[i]);
    if (ops[i]) {
      if (i + 1 < count) ops[i]->flags |= OP_LINKED;
      continue;
    }
    while (i-- > 0) loop_release_op(&backend->loop, ops[i]);
    buffer_return(backend_base_fiber(backend));
    rb_memerror();
  }
}

static void lend(struct backend_base *backend, const struct item *items, unsigned count) {
  VALUE texts = rb_ary_new_capa(count);

  for (unsigned i = 0; i < count; i++) rb_ary_push(texts, items[i].text);
  buffer_lend_snapshot(backend_base_fiber(backend), texts);
}

static void collect_results(struct backend_base *backend, struct op **ops, unsigned count,
                            int64_t *results) {
  for (unsigned i = 0; i < count; i++) {
    results[i] = ops[i]->result;
    loop_release_op(&backend->loop, ops[i]);
  }
}

static VALUE perform_linked(struct backend_base *backend, const struct item *items,
                            unsigned count) {
  struct op *ops[MOST_LINKED];
  int64_t results[MOST_LINKED];
  int fds[MOST_LINKED];

  for (unsigned i = 0; i < count; i++) fds[i] = fd_of(items[i].io, FD_WRITE);  /* may switch */
  lend(backend, items, count);
  build(backend, items, count, fds, ops);
  io_await_all(backend, ops, count, items[count - 1].io);
  collect_results(backend, ops, count, results);
  for (unsigned i = 0; i < count; i++) {
    if (results[i] == -ECANCELED) results[i] = 0;
    if (results[i] < 0) error_raise_errno(results[i], forms[items[i].kind].name);
    if (results[i] < RSTRING_LEN(items[i].text)) write_from(backend, &items[i], (long)results[i]);
  }
  return LONG2NUM(RSTRING_LEN(items[count - 1].text));
}

VALUE io_chain(int count, const VALUE *operations) {
  struct backend_base *backend = backend_base_current();
  VALUE memory, result = Qnil;
  struct item *items = ALLOCV_N(struct item, memory, count);

  for (int i = 0; i < count; i++) items[i] = item_of(operations[i]);
  for (unsigned i = 0, n; i < (unsigned)count; i += n) {
    n = backend->loop.features & DRIVER_LINK ? linkable(&items[i], (unsigned)count - i) : 0;
    if (n >= 2) result = perform_linked(backend, &items[i], n);
    else result = perform(backend, &items[i]), n = 1;
  }
  ALLOCV_END(memory);
  return result;
}
