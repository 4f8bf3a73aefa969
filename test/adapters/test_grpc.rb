# frozen_string_literal: true

require_relative '../support/adapter_case'

# gRPC waits in C and stops the thread; the stall report names it, and a thread of a pool is the way out. It has a bundle of its own
# (bin/setup --all); without that, the gem of the machine will do.
class TestGrpc < Polyphony::AdapterCase
  GEMFILE = File.expand_path('grpc/Gemfile', __dir__)
  BUNDLE = { 'BUNDLE_GEMFILE' => GEMFILE, 'BUNDLE_LOCKFILE' => "#{GEMFILE}.lock", 'BUNDLE_PATH' => File.expand_path('../../vendor/apps', __dir__) }.freeze

  COMMON = <<~'RUBY'
    begin
      require('bundler') && Bundler.setup if ENV['BUNDLE_GEMFILE']
      require 'grpc'
    rescue LoadError, Bundler::BundlerError => e
      print "missing: #{e.message}"
      exit
    end

    class Text
      attr_reader :text

      def initialize(text)
        @text = text
      end

      def self.encode(message) = message.text
      def self.decode(text) = new(text)
    end

    class Echo
      include GRPC::GenericService
      self.marshal_class_method = :encode
      self.unmarshal_class_method = :decode
      self.service_name = 'test.Echo'
      rpc :Wait, Text, Text
    end
  RUBY

  # Answers when something comes on standard input, or the limit is over.
  SERVER = <<~RUBY
    #{COMMON}
    class Answers < Echo
      def wait(_message, _call)
        IO.select([$stdin], nil, nil, 5) && $stdin.read_nonblock(1)
        Text.new('answered')
      end
    end

    server = GRPC::RpcServer.new
    $stdout.sync = true
    puts server.add_http2_port('127.0.0.1:0', :this_port_is_insecure)
    server.handle(Answers.new)
    server.run_till_terminated
  RUBY

  CLIENT = <<~RUBY
    #{COMMON}
    require 'polyphony'
    server = IO.popen([RbConfig.ruby, '-W0', '-e', ARGV[0]], 'r+')
    stub = Echo.rpc_stub_class.new("127.0.0.1:\#{Integer(server.gets)}", :this_channel_is_insecure)
    beats = 0
    spin { loop { sleep 0.001; beats += 1 } }
    aside = Polyphony.respond_to?(:blocking) ? Polyphony.method(:blocking) : Polyphony::ThreadPool.method(:process)

    [:main, :spun].each do |where|
      ask = -> { aside.call { stub.wait(Text.new('')).text } }
      before = beats
      releaser = spin { sleep 0.001 until beats >= before + 20; server << 'x'; server.flush }
      puts "\#{where}: \#{where == :main ? ask.call : spin(&ask).await}, others ran: \#{beats >= before + 20}"
      releaser.await
    end

    puts "in time: \#{move_on_after(0.05, with_value: :given_up) { aside.call { stub.wait(Text.new('')).text } }}"
    server << 'x'
    Polyphony.report_stalls(0.05)
    snooze
    before = beats
    releaser = Thread.new { Thread.pass until Polyphony.const_get(:Stalls).current.instance_variable_get(:@samples).any?; server.syswrite('x') }
    puts "alone: \#{spin(:asker) { stub.wait(Text.new('')).text }.await}, others ran: \#{beats > before + 1}"
    releaser.join
    Polyphony.report_stalls(nil)
    Process.kill(:KILL, server.pid)
    Process.wait(server.pid)
  RUBY

  # Without the bundle of these tests.
  def environment
    File.exist?("#{GEMFILE}.lock") ? { **plain_environment, **BUNDLE } : plain_environment
  end

  def plain_environment
    %w[GEM_HOME GEM_PATH BUNDLE_GEMFILE BUNDLE_LOCKFILE BUNDLE_PATH].to_h do |name|
      before = ENV["BUNDLER_ORIG_#{name}"]
      [name, (before unless name.start_with?('BUNDLE') || before.to_s.start_with?('BUNDLER_ENVIRONMENT'))]
    end
  end

  def test_what_blocks_is_named_and_runs_in_a_pool
    out, err, status = run_ruby(CLIENT, SERVER, options: ['-W0'], gems: true, env: environment)
    skip "the gem grpc is not installed (bin/setup --all installs it): #{out}" if out.start_with?('missing')

    assert_predicate status, :success?, err
    assert_equal ['main: answered, others ran: true', 'spun: answered, others ran: true', 'in time: given_up',
                  'alone: answered, others ran: false'], out.lines(chomp: true)
    assert_match(/polyphony: #<Fiber asker:.* waiting in\n.*grpc.*\n(.*\n)*  Run it in Polyphony\.blocking/, err)
  end
end
