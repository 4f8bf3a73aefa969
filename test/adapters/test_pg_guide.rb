# frozen_string_literal: true

require_relative '../support/pg_case'
require_relative '../support/server_guide'

# What is written about PostgreSQL holds: the guide (values stand behind `#=>`, since test_docs.rb has no server), the example and the
# signatures.
class TestPGGuide < Polyphony::PGCase
  include Polyphony::ServerGuide

  gems 'pg'

  def environment
    { 'DATABASE_URL' => server.url, 'RUBYOPT' => '-rbundler/setup' }
  end

  def test_the_guide_is_right
    assert_guide('postgresql.md', 'polyphony/adapters/pg', 11)
  end

  def test_the_example_shows_what_it_promises
    assert_equal <<~OUTPUT, output(File.join(POLYPHONY_ROOT, 'examples/postgres.rb'))
      squares: 324 361 400, connections: 3
      slow: given_up, and then: at once
      accounts: ann 10 bob 0
      heard: tea is ready
    OUTPUT
  end

  def test_every_name_with_a_signature_exists
    assert_names_exist('adapters/pg.rbs')
  end
end
