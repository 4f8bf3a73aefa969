# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/hostile'

# Line 22: applications that answer what must not be sent. The client gets 500, or an answer that is cut
# short so that it can tell; never two answers, nor a header that the application did not mean to send.
class TestHostileApp < Polyphony::HostileTest
  on_every_driver
  server :default

  # What => the statuses that may come; :cut where the answer has begun.
  BAD = {
    crlf: 500, lf: 500, nul: 500, name: 500, space: 500, empty: 500, status99: 500, status1000: 500, status0: 500,
    length: 500, raise: 500, nothing: 500, exit: 500, hints: 500, less: :cut, more: :cut, late: :cut, trailers: :cut
  }.freeze

  BAD.each do |what, expected|
    define_method("test_#{what}_never_splits_an_answer") do
      problems = conditions { @answers, @bytes = ask(what) }
      assert_equal 1, @answers.finals.size, @bytes
      refute_match(/evil|secret/, @bytes)
      refute_match(Polyphony::HTTP::Check::INSIDE, @bytes)
      expected == :cut ? assert_cut : assert_equal([expected], @answers.statuses, @bytes)
      assert_equal 1, problems.grep(/error in GET/).size, problems.inspect # and nothing besides
      assert_equal 1, problems.size, problems.inspect
    end
  end

  def test_a_body_where_none_may_be_is_left_out
    { body204: 204, body304: 304, chunk204: 204 }.each do |what, status|
      answers, bytes = ask(what)
      assert_equal [status], answers.statuses
      refute_includes bytes, 'xxx'
      assert_empty answers.rest
    end
  end

  def test_a_body_for_head_is_left_out
    answers, bytes = ask(:head, verb: 'HEAD')
    assert_equal [200], answers.statuses
    refute_includes bytes, 'xxx'
  end

  def test_a_wrong_length_of_a_whole_body_is_not_sent
    answers, bytes = ask(:lengths)
    assert_equal 1, answers.finals.size, bytes
    assert(answers.statuses == [500] || answers.finals.first.body == 'hello' || !answers.finals.first.whole, bytes)
  end

  def test_transfer_encoding_is_ours_to_set
    answers, bytes = ask(:te)
    assert_equal 1, answers.finals.size, bytes
    assert(answers.statuses == [500] || answers.finals.first.body == 'hello', bytes)
  end

  def test_a_second_answer_is_not_sent
    answers, bytes = ask(:twice)
    assert_equal [200], answers.statuses
    assert_equal 'x', answers.finals.first.body, bytes
  end

  private

  # With a second request behind, which must be answered as such or not at all.
  def ask(what, verb: 'GET')
    wire = Polyphony::HTTP::Check::Target.new(target.url).connect
    track(wire.socket)
    wire.send("#{verb} /bad/#{what} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    wire.read(patient(5))
    [Polyphony::HTTP::Check::Answers.new(wire.received, verbs: [verb], ended: true), wire.received]
  end

  # A client can tell: bytes or chunks are missing.
  def assert_cut
    refute @answers.finals.first.whole, @bytes
  end
end
