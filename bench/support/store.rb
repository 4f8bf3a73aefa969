# frozen_string_literal: true

require 'json'
require 'fileutils'
require_relative 'plot'
require_relative 'peers'

module Bench
  # The results that are kept: a run of a part of the rows replaces these, and leaves the others.
  class Store
    def initialize(folder)
      @folder = folder
      @stored = File.exist?(path('micro.json')) ? JSON.parse(File.read(path('micro.json'))) : {}
    end

    # @return [Array<Summary>] those of this run, and those that were kept
    def merge(summaries, facts, seconds)
      fresh = summaries.to_h { |summary| [summary.row.name, summary] }
      old = kept.reject { |name, _summary| fresh.key?(name) }
      @facts = facts
      @of_row = fresh.transform_values { seconds }.merge(old.to_h { |name, _summary| [name, @stored['rows'][name].fetch('seconds', 0)] })
      @seconds = @of_row.values.sum
      old.values + summaries
    end

    attr_reader :facts, :seconds

    def write(report, summaries)
      FileUtils.mkdir_p(@folder)
      File.write(path('micro.md'), "# bench/micro\n\n#{report.markdown}")
      data = report.to_h
      data[:rows].each { |name, row| row[:seconds] = @of_row.fetch(name).round }
      File.write(path('micro.json'), "#{JSON.pretty_generate(data)}\n")
      File.write(path('micro.svg'), Bars.new(summaries).svg)
      File.write(path('growth.svg'), Curves.new(summaries).svg)
    end

    private

    def path(name)
      File.join(@folder, name)
    end

    # Rows that there are still, measured on this kernel and Ruby; those of old files without raw figures are dropped.
    def kept
      rows = @stored.fetch('rows', {}).select { |name, row| Bench.rows[name] && row['data'] }
      rows.to_h { |name, row| [name, Summary.restore(Bench.rows[name], row)] }
    end
  end
end
