# frozen_string_literal: true

require_relative 'seed_case'

# "Minimal Fibers" of Cixl: schedulers as objects. More of them in test_sched.rb; the benchmark is bench/micro/sched.rb.
class TestSeed003 < Polyphony::SeedCase
  on_every_driver

  def test_a_scheduler_is_run_until_all_are_finished
    assert_prints "1, 3, 2, 4\n", <<~'RUBY'
      s = Polyphony::Sched.new
      out = []
      s.push { out << 1; s.resched; out << 2 }
      s.push { out << 3; s.resched; out << 4 }
      s.run
      puts out.join(', ')
    RUBY
  end

  def test_each_iteration_triggers_one_fiber
    assert_prints "foo, 2, baz, 1, bar, 0\n", <<~'RUBY'
      s = Polyphony::Sched.new
      out = []
      s.push { out << 'foo'; s.resched; out << 'bar' }
      s.push { out << 'baz' }
      s.each { |active| out << active }
      puts out.join(', ')
    RUBY
  end
end
