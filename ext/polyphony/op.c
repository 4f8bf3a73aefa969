/* op.c - see op.h */
#include "op.h"

static const struct {
  const char *name;
  enum op_reclaim reclaim;
} kinds[OP_KINDS] = {
  [OP_NONE]         = { "none",         OP_RECLAIM_NOTHING },
  [OP_READ]         = { "read",         OP_RECLAIM_BYTES },
  [OP_WRITE]        = { "write",        OP_RECLAIM_NOTHING },
  [OP_WRITEV]       = { "writev",       OP_RECLAIM_NOTHING },
  [OP_RECV]         = { "recv",         OP_RECLAIM_BYTES },
  [OP_SEND]         = { "send",         OP_RECLAIM_NOTHING },
  [OP_ACCEPT]       = { "accept",       OP_RECLAIM_DESCRIPTOR },
  [OP_ACCEPT_MULTI] = { "accept_multi", OP_RECLAIM_NOTHING },
  [OP_RECV_MULTI]   = { "recv_multi",   OP_RECLAIM_NOTHING },
  [OP_CONNECT]      = { "connect",      OP_RECLAIM_NOTHING },
  [OP_POLL]         = { "poll",         OP_RECLAIM_NOTHING },
  [OP_CLOSE]        = { "close",        OP_RECLAIM_NOTHING },
  [OP_FSYNC]        = { "fsync",        OP_RECLAIM_NOTHING },
  [OP_OPEN]         = { "open",         OP_RECLAIM_DESCRIPTOR },
  [OP_STAT]         = { "stat",         OP_RECLAIM_NOTHING },
  [OP_CALL]         = { "call",         OP_RECLAIM_NOTHING },
};

const char *op_kind_name(enum op_kind kind) { return kinds[kind].name; }

enum op_reclaim op_reclaim_policy(enum op_kind kind) { return kinds[kind].reclaim; }
