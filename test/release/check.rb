# frozen_string_literal: true

# `rake release:check`: the gem as a file, and as somebody has it who installs it on a fresh Debian, which takes root; see
# package.rb and installed.rb. All is tried, whatever goes wrong before. A table stands at the end, and in tmp/release.
#
#   ruby test/release/check.rb [package] [both] [liburing] [libev] [neither]

require 'fileutils'
require_relative '../../lib/polyphony/version'
require_relative '../support/progress'
require_relative 'installed'
require_relative 'package'

module Polyphony
  module Release
    # All checks, one after the other.
    class Check
      include Progress

      FOLDER = File.expand_path('tmp/release')

      def initialize(words)
        @variants = Installed::VARIANTS.keys
        unknown = words - ['package', *@variants]
        abort "release: #{unknown.join(' ')}? There are package, #{@variants.join(', ')}" if unknown.any?

        @variants &= words unless words.empty?
        @whole = words.empty? || words.include?('package')
        @rows = []
        @wrong = []
      end

      # @return [Boolean]
      def call
        package = Package.new(FOLDER)
        build = check('package', :build, Package::CHECKS, package)
        check_all('package', package, Package::CHECKS.except(:build)) if @whole && build
        @variants.each { |name| check_installed(Installed.new(package.file, name)) } if build
        report
        @wrong.empty?
      end

      private

      # Nothing of a system can be told where there can be none.
      def check_installed(installed)
        installed.open { check_all(installed.title, installed, installed.checks) }
      rescue Chroot::Failed => e
        wrong(installed.title, 'fresh Debian', e.message)
      end

      # What comes after an installation that failed has nothing to look at.
      def check_all(place, subject, checks)
        checks.each_key { |name| check(place, name, checks, subject) || name == :installed && break }
      end

      def check(place, name, checks, subject)
        say "#{place}: #{checks[name]}"
        began = now
        row(place, checks[name], subject.public_send(name), now - began)
      rescue Wrong => e
        wrong(place, checks[name], e.message)
      end

      def row(place, name, result, seconds)
        puts "   #{result} (#{seconds.round} s)"
        @rows << [place, name, result]
      end

      # @return [nil]
      def wrong(place, name, message)
        puts message
        @wrong << "#{place}: #{name}: #{message}"
        @rows << [place, name, "FAILED: #{message.lines.first.to_s.chomp}"]
        nil
      end

      def report
        table = table_of(%w[where what result], @rows)
        File.write("#{FOLDER}/table.md", table)
        puts '', table
        puts '', '== wrong', @wrong if @wrong.any?
      end
    end
  end
end

$stdout.sync = true
Dir.chdir(File.expand_path('../..', __dir__))
exit Polyphony::Release::Check.new(ARGV).call
