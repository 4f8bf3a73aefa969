# frozen_string_literal: true

require_relative 'test_helper'
require_relative 'support/valgrind'

# Which of the things that valgrind says of a Ruby are about our own code: `rake sanitize[valgrind]` fails for those.
class TestValgrind < Polyphony::TestCase
  RUBY = <<~'LOG'
    ==7== Conditional jump or move depends on uninitialised value(s)
    ==7==    at 0x493033A: ??? (in /usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1.2)
    ==7==    by 0x4916922: rb_ensure (in /usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1.2)
    ==7==    by 0x9E2B973: StandIn_for (/tree/tmp/x86_64-linux-gnu/polyphony_ext/3.1.2/../../../../ext/polyphony/class_stand_in.c:228)
    ==7==
  LOG

  OURS = <<~'LOG'
    ==7== Invalid read of size 8
    ==7==    at 0x484ED38: memcpy (vg_replace_strmem.c:1)
    ==7==    by 0x9E2B973: take (/tree/tmp/x86_64-linux-gnu/polyphony_ext/3.1.2/../../../../ext/polyphony/fd.c:228)
    ==7==    by 0x4916922: rb_ensure (in /usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1.2)
    ==7==  Address 0x5c is 0 bytes inside a block of size 8 free'd
    ==7==    at 0x484ED38: free (vg_replace_malloc.c:1)
    ==7==    by 0x493033A: ??? (in /usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1.2)
    ==7==
  LOG

  OF_RUBY_FREED_BY_US = <<~'LOG'
    ==7== Invalid read of size 8
    ==7==    at 0x493033A: ??? (in /usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1.2)
    ==7==  Address 0x5c is 0 bytes inside a block of size 8 free'd
    ==7==    at 0x484ED38: free (vg_replace_malloc.c:1)
    ==7==    by 0x9E2B973: give (/tree/tmp/x86_64-linux-gnu/polyphony_http_ext/3.1.2/../../../../ext/polyphony_http/head.c:2)
    ==7==
  LOG

  LEAK = <<~'LOG'
    ==7== 64 bytes in 1 blocks are definitely lost in loss record 9 of 99
    ==7==    at 0x4848899: malloc (in /usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so)
    ==7==    by 0x9E2B973: start (/tree/tmp/x86_64-linux-gnu/polyphony_ext/3.1.2/../../../../ext/polyphony/io_process.c:129)
    ==7==
  LOG

  LEAK_OF_RUBY = LEAK.sub(/by (0x\h+): .*/, 'by \\1: ruby_xmalloc (in /usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1.2)')

  def test_what_is_said_of_ruby_is_not_about_us
    assert_empty Polyphony::Valgrind.reports(lines(RUBY, LEAK_OF_RUBY))
  end

  def test_what_is_said_of_our_code_is
    told = [OURS, OF_RUBY_FREED_BY_US, LEAK]
    assert_equal told.map { |text| text[/(?<=== )\w.*$/] }, Polyphony::Valgrind.reports(lines(RUBY, *told)).map { |text| text[/(?<=== )\w.*$/] }
  end

  # Valgrind ends them with a line of its own.
  def lines(*logs) = logs.join.gsub(/^==7==$/, '==7== ')
end
