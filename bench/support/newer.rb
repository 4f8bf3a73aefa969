# frozen_string_literal: true

# Rows on Ruby 3.4, in a chroot (test/support/chroot.rb), where current versions of other libraries run which need it:
#
#   ruby bench/support/newer.rb [ROW ...]       without names those that such a library is in
#
# The results are in bench/results/ruby-3.4.

require 'fileutils'
require_relative '../../test/support/chroot'

PACKAGES = [*Polyphony::Chroot::SUITES.fetch('sid').ruby, *Polyphony::Chroot::BUILD, *Polyphony::Chroot::LIBRARIES, 'g++', 'procps', 'util-linux'].freeze
RESULTS = 'bench/results/ruby-3.4'
BUILD = 'for ext in polyphony polyphony_http; do mkdir -p tmp/bench/$ext && cd tmp/bench/$ext && ruby ../../../ext/$ext/extconf.rb >/dev/null && ' \
        'make -s && cp ${ext}_ext.so ../../../lib/polyphony/ && cd ../../..; done'
NAMES = ARGV.empty? ? %w[switch spin_many pipe_pairs socket_pairs echo_64 echo_1000 line_echo net_http] : ARGV
SETTINGS = ENV.to_h.select { |name, _value| name.start_with?('BENCH_') }

$stdout.sync = true
root = File.expand_path('../..', __dir__)
abort "bench:newer: #{Polyphony::Chroot.refusal}" if Polyphony::Chroot.refusal
chroot = Polyphony::Chroot.new('sid', packages: PACKAGES).prepare
folder = chroot.copy_tree(root)
chroot.run!('sh', '-ec', BUILD, folder: folder, limit: 600)
ran = chroot.run('ruby', '-Ilib', 'bench/run.rb', *NAMES, folder: folder, limit: 3000, env: SETTINGS)
kept = "#{chroot.root}#{folder}/#{RESULTS}"
FileUtils.cp_r("#{kept}/.", FileUtils.mkdir_p("#{root}/#{RESULTS}").first) if Dir.exist?(kept)
exit ran.success?
