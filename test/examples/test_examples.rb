# frozen_string_literal: true

require_relative '../test_helper'

# Every example runs to its end, without warnings, and shows what its first lines promise.
class TestExamples < Polyphony::TestCase
  on_every_driver

  # What must be in the output, by example. The chat has a test of its own.
  SHOWN = {
    'active_record' => [/^orders: 20, amount: 190|^skipped: /], # in whole: test/adapters
    'backtrace' => [/raised in the worker$/, /^backtrace\.rb:9:in .*parse'$/, /^backtrace\.rb:13:in .*worker'$/,
                    /^backtrace\.rb:17:in .*job'$/, /^backtrace\.rb:21:in /],
    'bad_network' => ['answers: 7 of 10, right: true', 'tries: 39, lost: 32', 'more than ten seconds have passed: true'],
    'bounded_buffer' => ['taken: all, each once', /^never more than [1-3] in the buffer$/, 'takers left: 2'],
    'cancelled_reads' => ['bytes received: 10000', 'all there, in order: true'],
    'chat_rooms' => [/\Abob sees ann: hello\nann sees ann: hello\nbob sees bob: hi ann\nann sees bob: hi ann\n/,
                     /\nbob sees bob: all alone here\nrooms: ruby\Z/],
    'clock' => ['tick 1', 'read: at last', /^the clock has ticked \d+ times meanwhile$/],
    'commands' => ["backticks: \"hello\", 0\nsystem: false, 3\npopen: \"SHOUT\", 0\nopen3: [\"in\", \"oops\"], nil\nfork: 5, 5\n",
                   "the clock ticked meanwhile: true\nin time: nil\nlater: 7\nwatched: ended by signal 15\nchildren left: 0"],
    'crawler' => ["found: / /a /b /c /d\n", "failed: /gone 404, /slow too slow\n", 'asked more than once: 0'],
    'datagrams' => [/^client 0: it is late$/, /^client 9: it is late$/, 'on average: true'],
    'deadline' => ['names fetched, prices fetched', 'prices: given up', 'sorry: deadline of 0.1 s is over'],
    'deadlock' => ['no fiber can ever run again', /^  #<Fiber ann:\d+ deadlock\.rb:10> waits for an item in a queue/,
                   'bob has been ended: true'],
    'dns' => ["ten names: 10.0.0.1 to 10.0.0.10\n", /^asked at a time: ([2-9]|10)$/, /^unknown: .*unknown\.test/, "no answer: given up\nlocalhost: true"],
    'downloads' => ['fetched: 8', 'given up: 2', 'most at a time: 3',
                    'a place within 0.05 seconds: false'],
    'echo_server' => ['one -> one', 'two -> two', 'three -> three', /^done\Z/],
    'faults' => ['forgetful, by daylight: true', 'forgetful, with faults: false', 'careful, with faults:   true', 'all happened: true'],
    'fork' => ['child:  0 other fibers, main: true', 'child:  a fiber of mine said 42',
               'parent: the child ended with 3', 'parent: the clock ticked meanwhile: true'],
    'full_mailboxes' => ['wait:        read 0 1 2 3 4 5 6 7 8 9, dropped 0', 'drop_oldest: read 7 8 9, dropped 7',
                         'drop_newest: read 0 1 2, dropped 7', 'error:       the reader has room for 3',
                         'error:       read 0 1 2, dropped 0'],
    'give_up' => ["team: worker failed with IOError\n" * 3 + 'top: team failed with Polyphony::TooManyRestarts',
                  "worker: connected at last\nattempts: 7"],
    'graceful_shutdown' => ["stopping: 3 connections\n", /client: done\n.*client: done\n.*client: connection closed\n/m, "served 2, cut off 1\n", 'status 0'],
    'http2' => [/^answers: true, version 2\nconnections: 1\nlast: 1\nnghttp: 0$|^skipped: /],
    'https_server' => ['one.test: /CN=one.test says https://one.test/', "still connected: https://one.test/again\n", '10, for new connections 90'],
    'https_pages' => ["this is /0\nthis is /1\n", "this is /6\nthis is /8\n", 'given up: 1', /^most at a time: ([5-9]|1\d)$/],
    'mysql' => [/\A(nothing to show: |squares: 1 4 9 )/], # with a server in test/adapters/test_mysql2.rb
    'opentelemetry' => [/\Askipped: |\Ato pay: 11$/], # in whole: test/adapters
    'parents_and_children' => ["quick: finished\nquick: cleaned up", 'broken: cleaned up',
                               "slow: told to stop\nslow: cleaned up",
                               'main: the disk is full, said the broken one',
                               'main: the supervisor is dead, and has 0 children'],
    'postgres' => [/^squares: 324 361 400, connections: 3$|^skipped: /], # in whole: test/adapters
    'process_pool' => ["longest below [30000, 20000, 100]: [26623, 17647, 97]\nthe clock went on: true\n",
                       "  below 4000 is done\nwith reports: 3711\nwith a limit: given up\nan error: Numerical argument",
                       'a death: worker N ended with status 1 while it ran task :once', 'and on: 9, workers: 2'],
    'progress' => [/^file-0   \[\#{30}\] 100 %$/, /^file-4   \[\#{30}\] 100 %$/, 'all there: true'],
    'proxy' => ['client: THROUGH THE PROXY', 'proxy: 17 bytes there, 17 back'],
    'questions' => ['[:deposit, "ann", 30]: 30', '[:withdraw, "ann", 100]: refused, ann has only 30',
                    '[:withdraw, "ann", 10]: 20', '"what is the weather like?": no answer in time',
                    ':audit: 20', '[:deposit, "bob", 1]: the bank is gone'],
    'rack_app' => ["Hello from /there\nLOUDER PLEASE\n0 1 2 3 4 5 ", 'most at a time: 20'],
    'race' => ["  near is over\n  near: near answered\n  far is over\n",
               "  broken is over\n  good is over\n  slow is over\n  good answered\n",
               '  1 4 9 16 25 36 49 64 81, at most 3 at once'],
    'redis_cache' => [/^asked: 50, right: 50, computed: 5$|^skipped: /], # in whole: test/adapters
    'remote' => [/^the boss hears: printer is down: lost$|^skipped: /], # in whole: test/adapters
    'restart' => ["going to sleep\nstopped\ngoing to sleep\ndone sleeping\nstopped\n",
                  'greeter ended with "hello nobody"', 'greeter ended with "hello world"', 'the same fiber: false'],
    'shield' => ['after it: 100', 'a limit around it: over', 'and still: 100'],
    'signals' => ["configuration read again\n", 'waiting for requests', "request 1 done at level debug\nbye"],
    'sqlite' => [/needs the gem sqlite3|after a delete that was cut short: 20/], # test_sqlite3.rb runs it with the gem
    'static_files' => ["200 text/html; charset=utf-8: <h1>Hello</h1>\nagain: 304\na part: 206 bytes 48888-48892/48893: 10000\n",
                       /^compressed: \d{5} of 48893 bytes\na way out: 400\ntick 0, tick 1, tick 2$/],
    'storage' => ["[-] start\n[17] begin\n", '[17] read orders', "[18] end\n[-] stop\n"],
    'resource_pool' => ['query 0 answered', 'query 2 failed: connection lost', 'query 7 answered', 'connections made: 3',
                        /^no resource was free within 0.05 s/, /greedy1:.* has connection \d since 0\.\d+ s$/,
                        /^closed connection \d$/],
    'schedulers' => ["1, 3, 2, 4\nfoo, 2, baz, 1, bar, 0\n", 'frame 6: snail 3, hare 20', 'end: snail 4, hare 40'],
    'scopes' => ['page 1: head loaded, body loaded, foot loaded, ads loaded',
                 "  ads was stopped\n  foot was stopped\n  head was stopped\npage 2: no body",
                 'page 3: no body and no foot', "first:  fast\nleft:   0 fibers"],
    'sequel' => [/^orders: 20, amount: 190|^skipped: /],
    'server_sent_events' => ["fickle heard sun, rain up to number 2\nlater it heard wind, snow\n",
                             "a steady one heard sun, rain, wind, snow\n" * 2],
    'services' => ["log: up\nstore: up\nfront: up\nstore: down\nstore failed: the disk is full\nfront: down\n",
                   "-- that is enough\nfront: down\nstore: down\nlog: down\nfailures: 3"],
    'streaming_client' => ['/good: Many things happen at once and each has its turn.', '/silent:  ... (silent for 1.5 s)',
                           '/stuck: Many things happen at ... (silent for 1.5 s)', '/endless: Many things happen at ... (no end within 3 s)'],
    'tail' => ["web: GET /\ndb: select 1\nweb: cut\ndb: a new file\n"],
    'tee' => ["line 0\nline 1\nline 2\n", 'the file has 21 bytes'],
    'thread_pool' => [/^three: \h{8}$/, 'the clock went on: true', 'process: invalid value for Integer', 'cast: nobody waits',
                      'with a limit: given up, the pool is busy: true', 'then: false'],
    'threads' => [/^squares: 0 1 4 9 .* 196 225$/, 'the main thread was free meanwhile: true'],
    'testing' => ['any order:  asked twice', 'every wait: still locked', 'leaks:      fiber #<Fiber forgotten'],
    'throttler' => ['requests: 12, too early: 0', 'rounds: 5', 'the poller went on: true', 'messages before silence: 8'],
    'trace' => [/^cook waited for .*a lock: \d+ ms/, /^baker waited for .*time to pass: [3-9]\d/, /^waiter 1 waited for an item in a queue/,
                /^woken by others: \d+ times, 0 events lost$/],
    'timeouts' => ['in time:   finished', 'too slow:  gave_up', 'nested:    inner limit was over first',
                   'an error:  nobody answers', 'idle time: received 01234, then silence'],
    'virtual_clock' => ['after 10.5 hours: 6 made, 4 given up', 'in a moment: true'],
    'waiting_for_threads' => ['after 10 ms: nil', 'the sum:     42', 'ticked meanwhile: true', 'an error:    the disk is full',
                              "the worker:  did a job\nthe worker tidies up", 'a limit:     execution expired'],
    'websocket_echo' => ["text:   grüße\nbinary: \"\\x00\\xFF\"\ncompressed: true\n", "bob heard: ann says hello\n", "cid left with 1001\n",
                         'in the room: 0'],
    'worker_pool' => ['jobs done: 10', 'workers that did some: 3']
  }.freeze
  CHAT = %w[chat_demo chat_server].freeze
  # With the gems of test/adapters, and tested there.
  WITH_GEMS = %w[callback_http1].freeze
  FOLDER = File.join(POLYPHONY_ROOT, 'examples')

  SHOWN.each do |name, shown|
    define_method("test_#{name}_shows_what_it_promises") do
      out, err, status = run_ruby('load ARGV.shift', File.join(FOLDER, "#{name}.rb"), options: ['-W2'])
      assert_predicate status, :success?, err
      assert_empty err
      shown.each { |text| assert_match text, out }
    end
  end

  def test_every_example_is_tested
    assert_equal Dir["#{FOLDER}/*.rb"].map { |file| File.basename(file, '.rb') }.sort, (SHOWN.keys + CHAT + WITH_GEMS).sort
  end

  def test_every_example_is_in_the_index
    linked = File.read("#{FOLDER}/README.md").scan(/\]\(([\w\/.]+)\)/).flatten
    assert_equal Dir["#{FOLDER}/{*.rb,*/{app.rb,config.rb,config.ru}}"].map { |file| file.delete_prefix("#{FOLDER}/") }.sort, linked.sort
  end

  def test_every_example_is_short_and_says_how_to_run_it
    Dir["#{FOLDER}/**/*.rb"].each { |file| assert_operator File.foreach(file).count, :<, 60, file }
    Dir["#{FOLDER}/*.rb"].each do |file|
      lines = File.readlines(file)
      assert_match(%r{^# .*(examples/#{File.basename(file)}|bin/demo)}, lines.first(12).join, file)
    end
  end
end
