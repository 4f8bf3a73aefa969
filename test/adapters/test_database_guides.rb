# frozen_string_literal: true

require_relative '../support/pg_case'
require_relative '../support/mariadb_server'
require_relative '../support/guide_runner'

# What is written about databases runs, with a server of ours in place of the one that a page names: see support/doc_block.rb.
class TestDatabaseGuides < Polyphony::PGCase
  include Polyphony::GuideRunner

  on_every_driver
  gems 'pg'

  def test_the_readme_on_databases
    assert_runs('README.md', 'DATABASE_URL' => server.url) { |block| block.notes['elsewhere'] == 'test/adapters/test_database_guides.rb' }
  end

  def test_the_guide_on_active_record
    assert_runs('docs/guide/active-record.md', 'DATABASE_URL' => server.url)
  end

  def test_the_guide_on_sequel
    assert_runs('docs/guide/sequel.md', 'DATABASE_URL' => server.url)
  end

  def test_the_guide_on_mysql
    skip Polyphony::MariadbServer.absent if Polyphony::MariadbServer.absent

    assert_runs('docs/guide/mysql.md', 'MYSQL_SETTINGS' => Polyphony::MariadbServer.shared.settings.inspect)
  end
end
