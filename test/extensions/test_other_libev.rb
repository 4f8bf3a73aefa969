# frozen_string_literal: true

require_relative '../test_helper'
require 'tmpdir'

# Extensions such as nio4r, and with it Puma, carry a libev of their own, changed for Ruby: neither may get the
# other's functions.
class TestOtherLibev < Polyphony::TestCase
  on_every_driver

  LOOK = <<~'RUBY'
    require 'fiddle'
    def seen?(name) = !!Fiddle::Handle::DEFAULT[name] rescue false
  RUBY

  def test_ours_is_not_to_be_seen_by_others
    out, err, = run_ruby(<<~RUBY)
      require 'polyphony'
      sleep 0.001
      #{LOOK}
      p seen?('ev_run'), seen?('malloc')
    RUBY
    assert_equal "false\ntrue\n", out, err
  end

  # Whatever of it was called would end the process.
  OTHER = %w[ev_run ev_loop_new ev_io_start ev_feed_event ev_invoke_pending ev_now_update ev_timer_start ev_time]
          .map { |name| "void #{name}(void) { abort(); }" }.unshift('#include <stdlib.h>').join("\n")

  def test_that_of_others_is_not_taken_for_ours
    skip 'only the libev driver calls libev' unless driver?(:libev)
    skip 'AddressSanitizer refuses RTLD_DEEPBIND, which keeps them apart' if ENV['LD_PRELOAD'].to_s.include?('asan')

    Dir.mktmpdir do |folder|
      File.write("#{folder}/other.c", OTHER)
      system(*RbConfig::CONFIG['CC'].split, '-shared', '-fPIC', '-fno-builtin', '-o', "#{folder}/other.so", "#{folder}/other.c", exception: true)
      out, err, = run_ruby(<<~RUBY, folder)
        #{LOOK}
        Fiddle.dlopen("\#{ARGV[0]}/other.so") # for all to see
        require 'polyphony'
        reader, writer = IO.pipe
        spin { sleep 0.001; writer.puts 'alive' }
        p seen?('ev_run'), reader.gets
      RUBY
      assert_equal %(true\n"alive\\n"\n), out, err
    end
  end
end
