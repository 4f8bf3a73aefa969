# frozen_string_literal: true

require_relative '../test_helper'

# What was written for Polyphony 1.x runs: a whole program by its documented words, which `rake release:check` runs from the
# installed gem, too.
class TestOldProgram < Polyphony::TestCase
  on_every_driver
  time_limit 120

  PROGRAM = File.expand_path('../release/old_program.rb', __dir__)

  def test_an_old_program_does_what_it_did
    expected = File.read(PROGRAM.sub(/rb\z/, 'txt'))
    output = IO.popen({ 'RUBYOPT' => nil }, [RbConfig.ruby, '-W0', "-I#{POLYPHONY_LIB}", PROGRAM, err: File::NULL], &:read)
    assert_predicate $?, :success?
    assert_equal expected, output
  end
end
