# frozen_string_literal: true

# Finds liburing and libev, of which one is needed, and writes the Makefile.
#
#   --without-liburing, --without-libev   leave one out
#   --with-liburing-dir=DIR, --with-libev-dir=DIR   look there first
#   POLYPHONY_WERROR=1                    warnings are errors
#   POLYPHONY_SANITIZE=address,undefined  build with these sanitizers
#
# Nothing here asks the running kernel: a gem may be built on one machine and run on another, so
# drivers, opcodes and ring flags are probed when the extension is used.

require_relative '../build'

NEITHER_FOUND = <<~TEXT
  polyphony needs liburing (2.3 or later, Linux only) or libev, with headers; neither was found.
  Both are better than one: io_uring where the kernel allows it, libev where it does not.

    Debian, Ubuntu    apt-get install liburing-dev libev-dev
    Fedora            dnf install liburing-devel libev-devel
    Alpine            apk add liburing-dev libev-dev linux-headers
    macOS             brew install libev

  Installed elsewhere? Say where with --with-liburing-dir=DIR or --with-libev-dir=DIR.
TEXT

# io_uring_register_sync_cancel and the multishot receive are the newest things the driver cannot
# do without. Both came with liburing 2.3; 2.2 had no version macro to ask.
LIBURING_2_3 = <<~C
  #include <liburing.h>
  int main(void) {
    struct io_uring ring;
    struct io_uring_sync_cancel_reg reg;
    struct io_uring_sqe sqe;
    unsigned flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;

    io_uring_prep_recv_multishot(&sqe, 0, 0, 0, 0);
    return io_uring_queue_init(8, &ring, flags) + io_uring_register_sync_cancel(&ring, &reg);
  }
C

LIBEV = <<~C
  #include <ev.h>
  static void no_callbacks(struct ev_loop *loop) { (void)loop; }
  int main(void) {
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);

    ev_set_invoke_pending_cb(loop, no_callbacks);
    return ev_pending_count(loop);
  }
C

def give_up
  # Keeps mkmf from adding a page of its own to our message.
  $makefile_created = true
  abort "\n#{NEITHER_FOUND}"
end

# It is loaded when it is used: see driver_libev_api.h.
def do_not_link_libev
  $libs = $libs.split.reject { |flag| flag == '-lev' }.join(' ')
  have_library('dl', 'dlopen')
  _, folder = dir_config('libev')
  $defs.push(%(-DLIBEV_DIR='"#{File.expand_path(folder)}"')) if folder
end

# What compat.h asks for with #ifdef HAVE_...
def check_functions
  have_func('rb_thread_lock_native_thread', 'ruby/thread.h')
  have_func('rb_fiber_new_storage', 'ruby.h')
  have_func('rb_io_closed_p', 'ruby/io.h')
  have_func('rb_io_path', 'ruby/io.h')
  have_func('rb_io_mode', 'ruby/io.h')
  have_func('rb_io_timeout', 'ruby/io.h')
  have_struct_member('rb_io_t', 'rbuf', %w[ruby.h ruby/io.h])
end

uring = use_library('uring', 'liburing.h', LIBURING_2_3,
                    too_old: 'liburing is older than 2.3, so io_uring is left out')
ev    = use_library('ev', 'ev.h', LIBEV)
give_up unless uring || ev
do_not_link_libev if ev

check_functions

set_flags
message("drivers: #{[('io_uring' if uring), ('libev' if ev)].compact.join(', ')}\n")
create_makefile('polyphony/polyphony_ext')
