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

require 'mkmf'

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

# Runs the block; unless it returns true, forgets the flags it added.
def keep_flags_if_found
  saved = [$libs, $CFLAGS, $CXXFLAGS, $LDFLAGS, $INCFLAGS, $CPPFLAGS].map(&:dup)
  return true if yield

  $libs, $CFLAGS, $CXXFLAGS, $LDFLAGS, $INCFLAGS, $CPPFLAGS = saved
  false
end

def find_by_pkg_config(package, program)
  checking_for("#{package} with pkg-config") do
    keep_flags_if_found { pkg_config(package) && try_link(program) }
  end
end

# Debian's libev has no .pc file, and Homebrew on Apple silicon is outside the compiler's paths.
def find_by_header(header, lib, program)
  roots = %w[/usr /usr/local /opt/homebrew]
  keep_flags_if_found do
    find_header(header, *roots.flat_map { |root| ["#{root}/include", "#{root}/include/lib#{lib}"] }) &&
      find_library(lib, nil, *roots.map { |root| "#{root}/lib" }) &&
      try_link(program)
  end
end

# @return [Boolean] whether the library is there and new enough, and its flags are set
def use_library(lib, header, program, too_old: nil)
  name = "lib#{lib}"
  return false unless with_config(name, true)

  dir_config(name)
  found = find_by_pkg_config(name, program) || find_by_header(header, lib, program)
  if found
    $defs.push("-DHAVE_#{name.upcase}") unless $defs.include?("-DHAVE_#{name.upcase}")
  else
    $defs.delete("-DHAVE_#{name.upcase}")
    message("note: #{too_old}\n") if too_old && have_header(header)
  end
  found
end

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
  $defs.push(%(-DLIBEV_DIR='"#{folder}"')) if folder
end

# What compat.h asks for with #ifdef HAVE_...
def check_functions
  have_func('rb_thread_lock_native_thread', 'ruby/thread.h')
  have_func('rb_io_closed_p', 'ruby/io.h')
  have_func('rb_io_path', 'ruby/io.h')
  have_func('rb_io_mode', 'ruby/io.h')
  have_func('rb_io_timeout', 'ruby/io.h')
  have_struct_member('rb_io_t', 'rbuf', %w[ruby.h ruby/io.h])
end

def add_sanitizers(names)
  flags = "-fsanitize=#{names} -fno-sanitize-recover=undefined"
  $CFLAGS << " #{flags} -g -O1 -fno-omit-frame-pointer"
  # Frames of a fiber that ended by an exception stay poisoned, and the next fiber gets the same
  # stack: reports about stacks would be false. The heap is what we want to hear about.
  $CFLAGS << (try_cflags('--param=asan-stack=0') ? ' --param=asan-stack=0' : ' -mllvm -asan-stack=0')
  $LDFLAGS << " #{flags}"
end

uring = use_library('uring', 'liburing.h', LIBURING_2_3,
                    too_old: 'liburing is older than 2.3, so io_uring is left out')
ev    = use_library('ev', 'ev.h', LIBEV)
give_up unless uring || ev
do_not_link_libev if ev

check_functions

$defs.push('-D_GNU_SOURCE')
# Only Init_polyphony_ext leaves the shared object (RUBY_FUNC_EXPORTED), so that no name of ours
# meets one of another extension's.
append_cflags(%w[-std=gnu11 -fvisibility=hidden])
# Unused parameters are normal where Ruby dictates the signature, and what Ruby's own headers do
# is not ours to mend.
$CFLAGS << ' -Wall -Wextra -Wno-unused-parameter'
$INCFLAGS.gsub!(/-I(?=\$\((?:arch_)?hdrdir\))/, '-isystem ')
$CFLAGS << ' -Werror' if ENV['POLYPHONY_WERROR'] == '1'
add_sanitizers(ENV['POLYPHONY_SANITIZE']) unless ENV['POLYPHONY_SANITIZE'].to_s.empty?

message("drivers: #{[('io_uring' if uring), ('libev' if ev)].compact.join(', ')}\n")
create_makefile('polyphony/polyphony_ext')
