# frozen_string_literal: true

require_relative '../support/adapter_case'
require_relative '../support/mysql_tests'

# trilogy against a real server.
class TestTrilogy < Polyphony::AdapterCase
  gems 'trilogy', 'polyphony/adapters/trilogy'
  include Polyphony::MysqlTests

  def connect(**settings)
    Trilogy.new(settings)
  end

  def ask(connection, sql)
    connection.query(sql).to_a
  end

  def lost
    Trilogy::ConnectionError
  end

  def error_class
    Trilogy::Error
  end

  def tls
    { ssl: true, ssl_mode: Trilogy::SSL_REQUIRED_NOVERIFY }
  end

  test_in_both(:change_db_yields) do
    connection = open(read_timeout: LIMIT)
    frozen_until_released { |release| assert_yields(release) { connection.change_db('mysql') } }
    assert_equal [['mysql']], ask(connection, 'SELECT DATABASE()')
  end

  test_in_both(:set_server_option_yields) do
    connection = open(read_timeout: LIMIT)
    frozen_until_released { |release| assert_yields(release) { connection.set_server_option(Trilogy::SET_SERVER_MULTI_STATEMENTS_ON) } }
    assert_equal [[1]], ask(connection, 'SELECT 1; SELECT 2')
    assert_equal [[2]], connection.next_result.to_a
  end

  test_in_both(:the_next_result_yields) do
    connection, release = open(multi_statement: true), gate('next')
    assert_equal [[1]], ask(connection, "SELECT 1; SELECT 1 + GET_LOCK('next', #{LIMIT}); SELECT 3")
    assert_equal [[2]], assert_yields(release) { connection.next_result.to_a }
    assert_predicate connection, :more_results_exist?
    assert_equal [[3]], connection.next_result.to_a
    assert_nil connection.next_result
  end

  def test_results_that_nobody_took_are_in_nobodys_way
    connection = open(multi_statement: true)
    assert_equal [[1]], ask(connection, 'SELECT 1; SELECT 2; SELECT 3')
    assert_equal [[4]], ask(connection, 'SELECT 4')
  end

  # A server that is told to stop between two statements promises a result that does not come.
  def test_ended_at_every_wait_point_several_results_leave_the_connection_in_order_or_closed
    patience(1)
    connection = open(multi_statement: true)
    cancel_everywhere do |run|
      run.scenario do
        connection.query('SELECT 1; SELECT SLEEP(0.005); SELECT 3')
        nil while connection.next_result
      end
      run.check do
        connection = open(multi_statement: true) if connection.closed?
        assert_equal [[run.point]], ask(connection, "SELECT #{run.point}")
      end
    end
  end

  def test_a_read_timeout_is_an_error_of_trilogy
    connection = open(read_timeout: 0.1)
    assert_raises(Trilogy::TimeoutError) { ask(connection, slow) }
    assert_predicate connection, :closed?
    assert_raises(Trilogy::ConnectionClosed) { ask(connection, 'SELECT 1') }
  end

  def test_closing_does_not_wait_for_the_server
    connection = open
    @server.frozen { connection.close }
    assert_predicate connection, :closed?
  end

  def test_no_escaping_in_the_middle_of_an_answer
    connection = open
    fiber = asking(connection)
    assert_raises(Polyphony::Adapters::ConnectionInUse) { connection.escape("it's") }
    fiber.stop
    fiber.await
    assert_equal "it\\'s", connection.escape("it's")
  end
end
