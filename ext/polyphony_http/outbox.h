/* outbox.h - small answers to several clients, which are sent one right after the other.
 * Sending is most of what a small answer costs, and costs less if nothing else has been in the processor's caches since the last one.
 * Owner: struct lobby, which says when. Plain C. */
#ifndef POLYPHONY_OUTBOX_H
#define POLYPHONY_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define OUTBOX_MOST 16                  /* answers */
#define OUTBOX_LONGEST 2048             /* bytes of one */

struct outbox_entry {
  void *owner;                          /* of the connection, which may have one answer in here */
  int fd;
  uint32_t at, length;                  /* in `bytes` */
};

struct outbox {
  int count;
  uint32_t used;
  struct outbox_entry entries[OUTBOX_MOST];
  char bytes[OUTBOX_MOST * OUTBOX_LONGEST];
};

/* Whether the answer, a head and its body, is in: it is not if it is long, or all places are taken. */
bool outbox_put(struct outbox *outbox, void *owner, int fd, const struct iovec parts[2]);
/* Sends the answer, as much as is taken at once. Returns how many bytes are left of it, at its end. */
uint32_t outbox_send(const struct outbox *outbox, const struct outbox_entry *entry);
void outbox_clear(struct outbox *outbox);

#endif
