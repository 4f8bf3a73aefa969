/* Choosing a driver where the kernel, or a sandbox, refuses one. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include "driver.h"
#include "test.h"

#if defined(HAVE_LIBURING) && defined(HAVE_LIBEV)
/* What the default profiles of Docker and Podman do. */
static void forbid_io_uring(int error) {
  struct sock_filter code[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = { .len = sizeof(code) / sizeof(*code), .filter = code };

  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0) test_skip("no seccomp filters");
}

static void check_refusal(int error, const char *name) {
  char why[512] = "";

  forbid_io_uring(error);
  CHECK(driver_choose("auto", why, sizeof(why)) == &driver_libev);
  CHECK(strstr(why, name) != NULL);
  CHECK(driver_choose("io_uring", why, sizeof(why)) == NULL);
  CHECK(strstr(why, name) != NULL);
  why[0] = '?';
  CHECK(driver_choose("libev", why, sizeof(why)) == &driver_libev);
  CHECK_EQUAL('\0', why[0]);
  CHECK(driver_choose("io_uring", why, 8) == NULL);          /* fits in what there is */
  CHECK(strlen(why) < 8);
}

TEST(choice_falls_back_where_io_uring_is_forbidden) { check_refusal(EPERM, "EPERM"); }
TEST(choice_falls_back_where_io_uring_is_unknown) { check_refusal(ENOSYS, "ENOSYS"); }
#endif

TEST(choice_refuses_a_name_nobody_has) {
  char why[512] = "";

  CHECK(driver_choose("epoll", why, sizeof(why)) == NULL);
  CHECK(strstr(why, "epoll") != NULL);
}
