# frozen_string_literal: true

# Finds libnghttp2 and zlib, and writes the Makefile. Without the one there is no HTTP/2, without the other
# WebSockets are not compressed; the server says so when it starts.
#
#   --without-libnghttp2, --without-libz   leave one out
#   --with-libnghttp2-dir=DIR, --with-libz-dir=DIR   look there first
#   POLYPHONY_WERROR=1, POLYPHONY_SANITIZE=address,undefined   as in ext/polyphony

require_relative '../build'

# The oldest version that the tests have seen.
NGHTTP2_1_52 = <<~C
  #include <nghttp2/nghttp2.h>
  #if NGHTTP2_VERSION_NUM < 0x013400
  #error "too old"
  #endif
  int main(void) { return nghttp2_version(NGHTTP2_VERSION_NUM) == 0; }
C

ZLIB = <<~C
  #include <zlib.h>
  int main(void) { return zlibVersion()[0] == 0; }
C

h2 = use_library('nghttp2', 'nghttp2/nghttp2.h', NGHTTP2_1_52,
                 too_old: 'libnghttp2 is older than 1.52, so HTTP/2 is left out')
# Protections that nghttp2 got later (and Debian carried back); ours hold without them.
if h2
  have_func('nghttp2_option_set_stream_reset_rate_limit', 'nghttp2/nghttp2.h')
  have_func('nghttp2_option_set_max_continuations', 'nghttp2/nghttp2.h')
end
deflate = use_library('z', 'zlib.h', ZLIB)
have_library('dl', 'dlopen') # in the C library itself, with a newer one
have_func('rb_io_closed_p', 'ruby/io.h') # Ruby 3.3
set_flags

message("HTTP/2: #{h2 ? 'yes' : 'no, libnghttp2 was not found (Debian: libnghttp2-dev)'}\n")
message("compressed WebSockets: #{deflate ? 'yes' : 'no, zlib was not found (Debian: zlib1g-dev)'}\n")
create_makefile('polyphony/polyphony_http_ext')
