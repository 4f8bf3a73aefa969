# frozen_string_literal: true

# Calls many forms of stock methods and notes what came of each, in one process without Polyphony and
# in others with it, so that they can be compared. A form that waits is given what it waits for by
# somebody beside it only: by a thread in stock Ruby, else by a fiber of the same thread, which proves
# that it can run.
#
#   ruby test/support/forms.rb stock|main|spun|generator table.rb result-file

require 'fileutils'
require 'tmpdir'

module Forms
  FIONREAD = 0x541B
  NOTE = 300
  MODES = %w[stock main spun generator].freeze

  @groups = []

  class << self
    attr_accessor :mode
    attr_reader :groups

    # @param forms [String] one in each line, code that may use what the block's Stage has
    def group(title, forms, stage, *args, **options)
      lines = forms.lines(chomp: true).map(&:strip).reject { |line| line.empty? || line.start_with?('#') }
      lines.each { |line| @groups << [title, line, stage, args, options] }
    end

    def stock?
      mode == 'stock'
    end

    # Runs beside the form.
    def beside(&block)
      stock? ? Thread.new(&block) : Thread.current.main_fiber.spin(&block)
    end

    def pause
      stock? ? Thread.pass : snooze
    end

    # In the thread's first fiber nothing is done for others before there is one.
    def begin_to_wait
      snooze unless stock?
    end

    # All forms, each in the kind of fiber that the mode says.
    # @param progress [File] holds the form that is being tried
    def run(progress)
      begin_to_wait
      @groups.map do |title, form, stage, args, options|
        note(progress, "#{title}: #{form}")
        [title, form, in_mode { stage.new(*args, **options).perform(form) }]
      end
    end

    private

    # Over what was there: to truncate a file takes milliseconds on ext4, which then writes it out.
    def note(file, text)
      file.pwrite(text.b.ljust(NOTE)[0, NOTE], 0)
    end

    def in_mode(&block)
      case mode
      when 'stock', 'main' then yield
      when 'spun' then spin(&block).await
      when 'generator' then Enumerator.new { |taker| taker << block.call }.next
      end
    end
  end

  # Where a form is called: sets up what it needs, then tells what is left.
  class Stage
    def perform(form)
      @beside = []
      $stdin, $stdout, $stderr = STDIN, STDOUT, STDERR
      set_up
      [*evaluate(form), show(left_over)]
    ensure
      $stdin, $stdout, $stderr = STDIN, STDOUT, STDERR
      clean_up
    end

    def set_up; end
    def clean_up; end
    def left_over; end

    private

    # The whole form in one frame, for $_ is the frame's own.
    def evaluate(form)
      instance_eval(<<~RUBY, 'form', 0)
        begin
          $. = 0
          value = begin
            #{form}
          end
          [show(value), show($_), $.]
        rescue Exception => e
          [[:raised, e.class.name, without_addresses(e.message)], show($_), $.]
        end
      RUBY
    end

    def show(value)
      case value
      when String then [value.b, value.encoding.to_s, value.frozen?]
      when Array then value.map { |item| show(item) }
      when Hash then value.to_h { |key, item| [show(key), show(item)] }
      when nil, true, false, Integer, Float, Symbol then value
      when Encoding then value.to_s
      when Exception then [:error, value.class.name, without_addresses(value.message)]
      when Enumerator then [:enumerator, value.size]
      else without_addresses(value.class.name)
      end
    end

    def without_addresses(text)
      text&.b&.gsub(/0x\h+/n, '0x')
    end

    def attempt
      yield
    rescue IOError, SystemCallError, ArgumentError, EncodingError => e
      e
    end

    # Gives each chunk when what was given before has been taken.
    def feed(writer, reader, chunks)
      sight = reader.dup
      @beside << Forms.beside do
        chunks.each do |chunk|
          5.times { Forms.pause } # it may come to the next wait meanwhile
          writer.syswrite(chunk)
          Forms.pause until Stage.taken?(sight)
        end
        writer.close
      rescue Errno::EPIPE, IOError
        writer.close
      ensure
        sight.close
      end
    end

    def self.taken?(reader)
      count = [0].pack('l')
      reader.ioctl(FIONREAD, count)
      count.unpack1('l').zero?
    end

    # Reads all there is, beside the form.
    def collect(reader)
      @collected = +''.b
      @collector = Forms.beside do
        loop { @collected << reader.readpartial(1000) }
      rescue EOFError, Errno::EIO
        reader.close
      end
    end

    def collected
      Forms.stock? ? @collector.join : @collector.await
      @collected
    end

    def stop_beside
      @beside.each { |other| Forms.stock? ? other.kill.join : other.stop }
    end
  end

  # A form reads from io, which is a pipe, a socket or a file.
  class Reading < Stage
    attr_reader :io

    TEXT = "h\u00e9llo\nw\u00f6rld\r\n\n\n\nab\u20accd\rlast"
    # In the middle of a line, of a character and of a line end.
    CUTS = [2, 5, 14, 15, 22, 23].freeze

    def initialize(kind, mode = 'r', text: TEXT, **options)
      @kind = kind
      @mode = mode
      @bytes = text.b
      @options = options
    end

    def set_up
      @kind == :file ? open_file : open_stream
      return if @kind == :file

      access, encodings = @mode.split(':', 2)
      io.binmode if access.include?('b')
      io.set_encoding(encodings, **@options) if encodings
    end

    def left_over
      return :closed if io.closed?

      [attempt { io.pos if @kind == :file }, attempt { io.lineno }, attempt { rest }]
    end

    def clean_up
      stop_beside
      io&.close
      @writer&.close
    end

    private

    def open_file
      FileUtils.rm_f('reading') # rather than truncated, see Forms.note
      File.binwrite('reading', @bytes)
      @io = File.open('reading', @mode, **@options)
    end

    def open_stream
      @io, @writer = @kind == :pipe ? IO.pipe : UNIXSocket.pair
      ends = [0, *CUTS, @bytes.size].select { |cut| cut <= @bytes.size }.uniq
      feed(@writer, @io, ends.each_cons(2).map { |from, to| @bytes[from...to] })
    end

    def rest
      io.binmode.read unless @kind == :socket # its other direction may still be open
    end
  end

  # A form writes to io, whose other end is read beside it; or io is a file.
  class Writing < Stage
    attr_reader :io

    def initialize(kind, sync: false, **options)
      @kind = kind
      @sync = sync
      @options = options
    end

    def set_up
      if @kind == :file
        FileUtils.rm_f('writing')
        @io = File.open('writing', 'w+', **@options)
      else
        reader, @io = @kind == :pipe ? IO.pipe : UNIXSocket.pair
        collect(reader)
        io.set_encoding(@options[:external_encoding], **@options) if @options.any?
      end
      io.sync = @sync
    end

    def left_over
      position = io.closed? || attempt { io.pos if @kind == :file }
      attempt { io.close }
      [position, @kind == :file ? File.binread('writing') : collected]
    end

    def clean_up
      attempt { io&.close }
    end
  end

  # A form works on files of a folder of its own.
  class Folder < Stage
    FILES = { 'a' => "one\ntw\u00f6\n\nthree\n", 'b' => "four\r\nfive", 'empty' => '',
              'bom' => "\uFEFFtext\n", 'latin' => "caf\xE9\n" }.freeze
    BIG = "#{'x' * 99}\n" * 2000

    def set_up
      File.binwrite('big', BIG) unless File.exist?('big')
      Dir.mkdir('folder')
      Dir.chdir('folder')
      FILES.each { |name, text| File.binwrite(name, text) }
      File.link('../big', 'big')
    end

    def left_over
      names = Dir.children('.').sort - ['big']
      names.to_h { |name| [name, file_content(name)] }.reject { |name, text| FILES[name]&.b == text }
    end

    def clean_up
      stop_beside
      Dir.chdir('..')
      FileUtils.rm_r('folder')
    end

    private

    def file_content(name)
      File.file?(name) ? File.binread(name) : File.ftype(name)
    end

    # @return [IO] that gets the chunks one by one
    def fed(*chunks)
      reader, writer = IO.pipe
      feed(writer, reader, chunks)
      reader
    end

    # @return [Array] what the block returns, and what it wrote to the IO it gets
    def wrote
      reader, writer = IO.pipe
      collect(reader)
      value = yield writer
      writer.close
      [value, collected]
    end
  end

  # As Folder, and standard input is a pipe that is fed.
  class Words < Folder
    LINES = ["first\n", "sec", "ond\n", "\n", "\nthird\u20ac".b, "\nlast"].freeze

    def set_up
      super
      ARGV.clear
      $stdin = fed(*LINES)
    end

    def left_over
      [super, ARGV.dup, attempt { ARGF.closed? || ARGF.close.class }]
    end

    # @return [Array] what the block returns, and what it printed
    def printed
      wrote do |writer|
        $stdout = writer
        yield
      ensure
        $stdout = STDOUT
      end
    end
  end
end

if $PROGRAM_NAME == __FILE__
  Forms.mode, table, out = ARGV
  require 'polyphony' unless Forms.stock?
  require 'socket'
  require 'stringio'
  require 'io/wait' # Ruby 3.4 does not load it with sockets any more
  require 'delegate'
  require File.expand_path(table)
  Encoding.default_external = Encoding::UTF_8
  $VERBOSE = nil
  Dir.mktmpdir do |folder|
    out = File.expand_path(out)
    ARGV.clear
    File.open("#{out}.progress", 'w') do |progress|
      Dir.chdir(folder) { File.binwrite(out, Marshal.dump(Forms.run(progress))) }
    end
  end
end
