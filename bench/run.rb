# frozen_string_literal: true

# Measures Polyphony against the limit of what bare Ruby or plain C can do, in one and the same run.
#
#   ruby -Ilib bench/run.rb            all rows, which takes long
#   ruby -Ilib bench/run.rb switch     only the rows named
#
# Results are written to bench/results row by row; a row that is measured again takes the place of the former one, the others stay.
#
#   BENCH_ROUNDS=9    rounds per row (each row has its own default)
#   BENCH_SCALE=0.1   shorter (or longer) measurements, which are printed and not kept
#   BENCH_KEEP=0      only print

require_relative 'support/suite'

# Rake gives us -Ilib; without it the checkout still finds itself.
$LOAD_PATH << File.expand_path('../lib', __dir__)

exit Bench::Suite.new(ARGV, rounds: ENV['BENCH_ROUNDS'], scale: ENV['BENCH_SCALE']).call
