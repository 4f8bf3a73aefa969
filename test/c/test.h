/* test.h - a small harness for layer 0. A test is a sentence that would be false if it failed.
 * Each runs in a process of its own, so a crash, a hang, a leak or an open descriptor is one
 * line of the report and does not touch the others. */
#ifndef POLYPHONY_TEST_H
#define POLYPHONY_TEST_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "driver.h"

struct loop;

struct test {
  const char *name;
  void (*run)(void);                   /* one of the two is set */
  void (*contract)(struct loop *);     /* run on every driver, with a fresh loop */
  struct test *next;
};

void test_register(struct test *test);
_Noreturn void test_fail(const char *file, int line, const char *format, ...)
  __attribute__((format(printf, 3, 4)));
_Noreturn void test_skip(const char *reason);

/* Layer 0 was compiled as for another system (make PORTABLE=1). Said first by a test of what only Linux has. */
#ifndef PORTABLE
#define PORTABLE 0
#endif
#define LINUX_ONLY(what) do { if (PORTABLE) test_skip(what " is for Linux"); } while (0)

#define TEST_DEFINE(id, member, ...)                                                   \
  static void id(__VA_ARGS__);                                                         \
  static struct test id##_test = { .name = #id, .member = id };                        \
  __attribute__((constructor)) static void id##_register(void) { test_register(&id##_test); } \
  static void id(__VA_ARGS__)

#define TEST(id)     TEST_DEFINE(id, run, void)
#define CONTRACT(id) TEST_DEFINE(id, contract, struct loop *loop)

#define CHECK(condition) \
  do { if (!(condition)) test_fail(__FILE__, __LINE__, "not so: %s", #condition); } while (0)

#define CHECK_EQUAL(expected, actual)                                                   \
  do {                                                                                  \
    long long want_ = (long long)(expected), got_ = (long long)(actual);                \
    if (want_ != got_)                                                                  \
      test_fail(__FILE__, __LINE__, "%s is %lld, not %lld", #actual, got_, want_);      \
  } while (0)

#endif
