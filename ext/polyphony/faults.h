/* faults.h - has operations go wrong, by chance and on purpose. Plain C, no GVL needed.
 * Off, it costs one comparison for each operation, in loop_submit. Set by class_testing.c alone.
 *
 * Between loop and driver, so both drivers see the same: an op may be made shorter, may be begun later
 * (which is all that EINTR and EAGAIN come to: a driver tries again), or may settle with an error
 * without being begun. Never a close: it would leave a descriptor; nor links of a chain, whose
 * neighbours the kernel would judge by it; nor what would lose bytes: a datagram cut short is gone. */
#ifndef POLYPHONY_FAULTS_H
#define POLYPHONY_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

struct loop;
struct op;

enum fault {
  FAULT_SHORT_READ,             /* read, recv: fewer bytes than there are */
  FAULT_SHORT_WRITE,            /* write, writev, send: fewer bytes than there is room for */
  FAULT_EINTR, FAULT_EAGAIN,    /* begun again at the next poll */
  FAULT_ECANCELED,              /* read, recv, accept: nothing happened, who waits looks again */
  FAULT_ENOMEM,                 /* the rest ends with that error: read, write, recv, send, accept, connect, open, stat */
  FAULT_EMFILE,                 /* accept, open */
  FAULT_ECONNRESET,             /* recv, send; read and write on sockets */
  FAULT_EIO,                    /* read, write, fsync, open, on anything but sockets */
  FAULT_ENOSPC,                 /* write and fsync, on files */
  FAULTS
};

extern bool faults_on;

/* rates: for each fault how many of 2^32 are to happen; all 0 is off. Counters begin anew. */
void faults_set(const uint64_t rates[FAULTS], uint64_t seed);
void faults_get(uint64_t rates[FAULTS], uint64_t counts[FAULTS]);
const char *fault_name(enum fault fault);

/* For loop_submit. True if the op is not to be begun: it has settled, or waits in loop->held. */
bool faults_strike(struct loop *loop, struct op *op);

#endif
