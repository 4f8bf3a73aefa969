/* seccomp_refuse.c - runs a command in which io_uring fails the way it does in many containers.
 *
 *   cc -o seccomp_refuse seccomp_refuse.c
 *   ./seccomp_refuse EPERM ruby -e '...'
 *
 * The filter makes io_uring_setup, io_uring_enter and io_uring_register fail with the errno given
 * by name or number; children inherit it. Ends with 125 if the filter could not be installed, 126
 * or 127 if the command could not be run, else as the command does. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "only x86_64 and aarch64"
#endif

/* The same on both, as for all system calls since 5.1. */
#define FIRST_IO_URING_CALL 425         /* io_uring_setup, _enter, _register */
#define LAST_IO_URING_CALL 427

#define COULD_NOT_FILTER 125

static const struct {
  const char *name;
  int value;
} errnos[] = {
  { "EPERM", EPERM }, { "EACCES", EACCES }, { "ENOSYS", ENOSYS }, { "ENOMEM", ENOMEM },
  { "EOPNOTSUPP", EOPNOTSUPP }, { "ENOTSUP", ENOTSUP }, { "EINVAL", EINVAL },
  { "EMFILE", EMFILE }, { "ENFILE", ENFILE }, { "EAGAIN", EAGAIN }, { "EBUSY", EBUSY },
};

static int errno_by_name(const char *name) {
  for (size_t i = 0; i < sizeof(errnos) / sizeof(*errnos); i++)
    if (strcmp(errnos[i].name, name) == 0) return errnos[i].value;
  return atoi(name);
}

static int refuse_io_uring(int error) {
  struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 0, 4),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, FIRST_IO_URING_CALL, 0, 2),
    BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, LAST_IO_URING_CALL, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error & SECCOMP_RET_DATA)),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = { sizeof(filter) / sizeof(*filter), filter };

  /* Without privileges a filter is allowed only to who cannot gain any. */
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) return -1;
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv) {
  int error = argc < 3 ? 0 : errno_by_name(argv[1]);

  if (error <= 0) {
    fprintf(stderr, "usage: %s ERRNO_NAME command [arguments]\n", argv[0]);
    return COULD_NOT_FILTER;
  }
  if (refuse_io_uring(error) < 0) {
    perror("seccomp_refuse: prctl");
    return COULD_NOT_FILTER;
  }
  execvp(argv[2], argv + 2);
  perror(argv[2]);
  return errno == ENOENT ? 127 : 126;
}
