# frozen_string_literal: true

require 'minitest/autorun'

# The table of limits in the guide is the one in the program. POLYPHONY_WRITE=1 writes it.
class TestHostileGuide < Minitest::Test
  ROOT = File.expand_path('..', __dir__)
  PAGE = File.join(ROOT, 'docs/guide/hostile-input.md')
  PLACE = /(?<=<!-- limits: written by test\/test_hostile_guide.rb -->\n).*?(?=<!-- end -->)/m.freeze

  def test_the_table_of_limits_is_that_of_the_program
    page = File.read(PAGE)
    File.write(PAGE, page = page.sub(PLACE) { table }) if ENV['POLYPHONY_WRITE']
    assert_equal table, page[PLACE], 'POLYPHONY_WRITE=1 ruby test/test_hostile_guide.rb writes it'
  end

  private

  def table
    rows = limits.map { |name, default, text| "| `#{name}` | #{number(default)} | #{text} |\n" }
    "| limit | default | what it holds |\n|---|---|---|\n#{rows.join}"
  end

  def number(value)
    value.to_s.gsub(/(\d)(?=(\d{3})+\z)/, '\1,')
  end

  # Without the extension, which need not be there for this.
  def limits
    space = Module.new
    space.module_eval(File.read(File.join(ROOT, 'lib/polyphony/http/limits.rb')), 'limits.rb')
    space::Polyphony::HTTP::Limits::TABLE.map { |name, (default, text)| [name, default, text] }
  end
end
