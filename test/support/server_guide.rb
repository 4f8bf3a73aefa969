# frozen_string_literal: true

module Polyphony
  # What is written about something that needs a server holds: values stand behind `#=>` there, since test_docs.rb has no server.
  # Who includes it has +environment+, for programs with the gems.
  module ServerGuide
    # @return [TestCase::Started] a program with the gems
    def start(*words)
      start_command(environment, RbConfig.ruby, '-W1', "-I#{POLYPHONY_LIB}", *words)
    end

    # @return [String] what it prints
    def finish(program)
      out, err, status = program.finish(self, patient(30))
      assert_predicate status, :success?, err
      out
    end

    def output(*words)
      finish(start(*words))
    end

    # @param page [String] the name of a page of the guide
    # @param feature [String] what it requires
    # @param least [Integer] how many values it has at least
    # @param before [String] code that each block begins with
    def assert_guide(page, feature, least, before: '')
      blocks = File.read(File.join(POLYPHONY_ROOT, 'docs/guide', page)).scan(/^```ruby\n(.*?)^```$/m).flatten
      checked = blocks.map { |block| block.gsub(/^(.*?\S)\s+#=> (.*)$/) { "check(#{$2.dump}) { #{$1} }" } }
      assert_operator checked.join.scan('check(').size, :>=, least
      assert_equal "right\n", output('-e', <<~RUBY)
        require '#{feature}'
        def check(expected)
          actual = begin
            yield.inspect
          rescue StandardError => e
            "raises \#{e.class}"
          end
          abort "expected \#{expected}, got \#{actual}" unless actual == expected
        end
        #{checked.map { |block| "-> {\n#{before}\n#{block}\n}.call" }.join("\n")}
        puts 'right'
      RUBY
    end

    # @param file [String] in sig/
    def assert_names_exist(file)
      owners = []
      File.foreach(File.join(POLYPHONY_ROOT, 'sig', file)) do |line|
        case line
        when /^\s*(?:class|module) (\w+)/ then owners.push($1)
        when /^\s*end$/ then owners.pop
        when /^\s*def self\.(\S+):/ then assert_respond_to Object.const_get(owners.join('::')), $1
        when /^\s*(?:def|attr_reader) ([^:\s]+):/ then assert_method Object.const_get(owners.join('::')), $1
        end
      end
    end

    private

    def assert_method(owner, name)
      assert owner.method_defined?(name) || owner.private_method_defined?(name), "#{owner}##{name}"
    end
  end
end
