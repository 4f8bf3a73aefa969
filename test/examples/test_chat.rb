# frozen_string_literal: true

require_relative '../test_helper'

class TestChat < Polyphony::TestCase
  on_every_driver

  def test_the_demo_shows_a_conversation_and_a_ticking_clock
    out, err, status = run_ruby('load ARGV[0]', File.join(POLYPHONY_ROOT, 'examples/chat_demo.rb'))
    assert_predicate status, :success?, err
    assert_empty err
    assert_match(/^one  guest\d+: hello$/, out)
    assert_match(/^two  guest\d+: who is there\?$/, out)
    assert_match(/^one  \* tick \d+, 2 here$/, out)
    assert_match(/^done\Z/, out)
  end
end
