/* main.c - runs the tests of layer 0; see test.h.
 * Arguments: parts of names; a test runs if one of them is in its "name [driver]". */
#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "loop.h"
#include "test.h"

#define SECONDS_A_TEST 60
#define EXIT_FAILED 1
#define EXIT_SKIPPED 77

static struct test *tests, **tests_tail = &tests;
static unsigned passed, failed, skipped;
static pid_t test_process;             /* the one that may say that a test failed or was skipped */

void test_register(struct test *test) {
  *tests_tail = test;
  tests_tail = &test->next;
}

/* _exit: after a failure, leaks are no news. */
void test_fail(const char *file, int line, const char *format, ...) {
  va_list args;

  va_start(args, format);
  fprintf(stderr, "     %s:%d: %s", file, line, getpid() == test_process ? "" : "(child) ");
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  _exit(EXIT_FAILED);
}

void test_skip(const char *reason) {
  fprintf(stderr, "     %s\n", reason);
  _exit(EXIT_SKIPPED);
}

/* ThreadSanitizer does not see liburing map and unmap rings, which it does without libc: memory of
 * a ring that was closed looks shared with the next one. A ring has one thread anyway. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) { return "race:driver_uring\nrace:liburing\n"; }
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }

static unsigned count_descriptors(void) {
  unsigned count = 0;
  DIR *dir = opendir("/proc/self/fd");
  if (!dir) return 0;

  while (readdir(dir)) count++;
  closedir(dir);
  return count;
}

static void run_contract(const struct test *test, const struct driver *driver) {
  char why[256] = "";
  struct loop loop;

  if (driver->probe(why, sizeof(why)) < 0) test_skip(why);
  int rc = loop_open(&loop, driver);
  if (rc < 0) test_fail(__FILE__, __LINE__, "loop_open: %s", strerror(-rc));
  test->contract(&loop);
  loop_close(&loop);
}

static void run_in_child(const struct test *test, const struct driver *driver) {
  unsigned before = count_descriptors();

  test_process = getpid();
  alarm(SECONDS_A_TEST);
  if (test->contract) run_contract(test, driver);
  else test->run();
  CHECK_EQUAL(before, count_descriptors());
  exit(0);                             /* not _exit: LeakSanitizer looks now */
}

static void report(const char *name, int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    printf("ok   %s\n", name);
    passed++;
  } else if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED) {
    printf("skip %s\n", name);
    skipped++;
  } else {
    printf("FAIL %s %s\n", name, !WIFSIGNALED(status) ? "" :
           WTERMSIG(status) == SIGALRM ? "(hangs)" : strsignal(WTERMSIG(status)));
    failed++;
  }
}

static bool wanted_p(const char *name, int argc, char **argv) {
  if (argc < 2) return true;
  for (int i = 1; i < argc; i++)
    if (strstr(name, argv[i])) return true;
  return false;
}

static void run(const struct test *test, const struct driver *driver, int argc, char **argv) {
  char name[256];
  int status;

  if (driver) snprintf(name, sizeof(name), "%s [%s]", test->name, driver->name);
  else snprintf(name, sizeof(name), "%s", test->name);
  if (!wanted_p(name, argc, argv)) return;

  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) run_in_child(test, driver);
  if (pid < 0 || waitpid(pid, &status, 0) < 0) {
    perror("fork");
    exit(EXIT_FAILED);
  }
  report(name, status);
}

int main(int argc, char **argv) {
  struct rlimit limit;

  setvbuf(stdout, NULL, _IOLBF, 0);
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);

  for (struct test *test = tests; test; test = test->next) {
    if (!test->contract) run(test, NULL, argc, argv);
    else for (const struct driver *const *driver = driver_table; *driver; driver++)
      run(test, *driver, argc, argv);
  }
  printf("%u passed, %u failed, %u skipped\n", passed, failed, skipped);
  return failed > 0 || passed == 0 ? EXIT_FAILED : 0;
}
