# frozen_string_literal: true

require 'rbconfig'

module Polyphony
  # Which drivers can carry the suite here. Asked in a process of its own: whoever asks has not
  # loaded the extension and stays free of it.
  module Drivers
    ALL = %w[io_uring libev].freeze

    PROBE = <<~RUBY
      require 'polyphony'
      Polyphony::Backend.available.each do |driver|
        puts [driver[:name], driver[:available], driver[:reason]].join("\t")
      end
    RUBY

    module_function

    # @return [Hash{String => String, nil}] driver => nil if it works, else why it does not
    def refusals(lib: 'lib')
      env = { 'POLYPHONY_BACKEND' => nil }
      answer = IO.popen(env, [RbConfig.ruby, "-I#{lib}", '-e', PROBE], &:read)
      abort 'tests: the extension does not load' unless $?.success?

      found = answer.lines(chomp: true).to_h do |line|
        name, available, reason = line.split("\t", 3)
        [name, available == 'true' ? nil : reason.to_s]
      end
      ALL.to_h { |name| [name, found.fetch(name, 'not compiled in')] }
    end
  end
end
