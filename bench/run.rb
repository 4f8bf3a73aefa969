# frozen_string_literal: true

# Measures Polyphony against the limit of what bare Ruby or plain C can do, in one and the same run.
#
#   ruby -Ilib bench/run.rb            all rows; writes bench/results/micro.md and micro.json
#   ruby -Ilib bench/run.rb switch     only the rows named; prints, and writes nothing
#
#   BENCH_ROUNDS=9    rounds per row (each row has its own default)
#   BENCH_SCALE=0.1   shorter (or longer) measurements

require_relative 'support/suite'

# Rake gives us -Ilib; without it the checkout still finds itself.
$LOAD_PATH << File.expand_path('../lib', __dir__)

exit Bench::Suite.new(ARGV, rounds: ENV['BENCH_ROUNDS'], scale: ENV['BENCH_SCALE']).call
