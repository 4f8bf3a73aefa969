# frozen_string_literal: true

require_relative '../support/remote_case'
require_relative '../support/server_guide'

# What is written about names of other processes holds: the guide, the example, the signatures.
class TestRemoteGuide < Polyphony::RemoteCase
  include Polyphony::ServerGuide

  on_every_driver
  gems 'polyphony/remote'

  def environment
    { 'REDIS_URL' => "redis://127.0.0.1:#{@server.port}", 'RUBYOPT' => '-rbundler/setup' }
  end

  def test_the_guide_is_right
    assert_guide('remote.md', 'polyphony/remote', 18, before: <<~RUBY)
      remote = Polyphony::Remote.new(url: ENV['REDIS_URL'], namespace: 'shop')
      at_exit { remote.close }
      RedisClient.new(url: ENV['REDIS_URL']).call('FLUSHALL')
    RUBY
  end

  def test_the_example_shows_what_it_promises
    assert_equal <<~OUTPUT, output(File.join(POLYPHONY_ROOT, 'examples/remote.rb'))
      stock of tea: 3
      printed: 20, each once: true, by both: true
      one printer was killed
      printed: 40, each once or marked: true
      the boss hears: printer is down: lost
    OUTPUT
    # Those who were killed could not tidy up.
    left = @admin.call('KEYS', '*example*').grep(/process|inbox|sent|waiting|monitors/)
    assert_empty(left.select { |name| @admin.call('PTTL', name).negative? })
  end

  def test_every_name_with_a_signature_exists
    assert_names_exist('adapters/remote.rbs')
  end

  # What test_docs.rb asks of all that needs no gem.
  def test_every_public_method_has_a_signature
    signatures = File.read(File.join(POLYPHONY_ROOT, 'sig/adapters/remote.rbs'))
    public_parts = Polyphony::Remote.constants.map { |name| Polyphony::Remote.const_get(name) }.grep(Module) << Polyphony::Remote
    without = public_parts.flat_map { |part| part.public_instance_methods(false).map { |name| [part, name] } }.reject do |part, name|
      name.start_with?('_') || signatures.match?(/^\s*(def|attr_reader|alias) #{Regexp.escape(name.to_s)}(:| )/) || internal?(part, name)
    end
    assert_empty without
  end

  # Marked @api private.
  def internal?(part, name)
    file, line = part.instance_method(name).source_location
    file.nil? || part < Struct || File.readlines(file)[0...(line - 1)].reverse.take_while { |text| text.match?(/^\s*#/) }.join.include?('@api private')
  end

  def test_what_is_missing_is_said
    code = <<~RUBY
      module Kernel
        alias plain_require require
        def require(name) = name == 'redis-client' ? raise(LoadError, 'cannot load such file -- redis-client') : plain_require(name)
      end
      begin
        require 'polyphony/remote'
      rescue LoadError => e
        puts e.message
      end
    RUBY
    assert_match(/Polyphony::Remote needs the gem redis-client: add it to the Gemfile/, output('-e', code))
  end
end
