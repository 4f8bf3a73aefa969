/* outbox.c - see outbox.h. */
#include "outbox.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

bool outbox_put(struct outbox *outbox, void *owner, int fd, const struct iovec parts[2]) {
  size_t length = parts[0].iov_len + parts[1].iov_len;

  if (length > OUTBOX_LONGEST || outbox->count == OUTBOX_MOST) return false;
  char *bytes = outbox->bytes + outbox->used;
  memcpy(bytes, parts[0].iov_base, parts[0].iov_len);
  memcpy(bytes + parts[0].iov_len, parts[1].iov_base, parts[1].iov_len);
  outbox->entries[outbox->count++] = (struct outbox_entry){ owner, fd, outbox->used, (uint32_t)length };
  outbox->used += (uint32_t)length;
  return true;
}

/* Of a connection that is broken nothing is left: whoever reads from it next learns why. */
uint32_t outbox_send(const struct outbox *outbox, const struct outbox_entry *entry) {
  ssize_t sent = send(entry->fd, outbox->bytes + entry->at, entry->length, MSG_DONTWAIT | MSG_NOSIGNAL);

  if (sent >= 0) return entry->length - (uint32_t)sent;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOBUFS || errno == ENOMEM ? entry->length : 0;
}

void outbox_clear(struct outbox *outbox) {
  outbox->count = 0;
  outbox->used = 0;
}
