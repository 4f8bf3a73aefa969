# frozen_string_literal: true

require 'polyphony/extensions/byte_ends'

module Polyphony
  # IO.deflate, inflate, gzip and gunzip: from anywhere to anywhere, in parts, so that other fibers run
  # in between. The work itself is Ruby's own zlib.
  #
  # A source is a String, an IO, a Polyphony::Pipe, something with +readpartial+, or something to call with
  # a length, which returns nil at the end. A target is a String, to which is appended, an IO, a
  # Polyphony::Pipe, something with +write+, or something to call with each part. An object of your own
  # can say how it is to be used: +__read_method__+ and +__write_method__+.
  module Compression
    # @!visibility private
    LEVEL = 9

    # zlib format.
    # @return [Integer] bytes written
    def deflate(source, target)
      Compression.through(source, target) do |from, to|
        Compression.with_stream(::Zlib::Deflate.new(LEVEL)) do |stream|
          Compression.each_part(from) { |part| stream.deflate(part) { |bytes| to.write(bytes) } }
          stream.finish { |bytes| to.write(bytes) }
        end
      end
    end

    # @return [Integer] bytes written
    # @raise [Zlib::Error] if it is not in zlib format, or ends early
    def inflate(source, target)
      Compression.through(source, target) do |from, to|
        Compression.with_stream(::Zlib::Inflate.new) do |stream|
          Compression.each_part(from) do |part|
            before = stream.total_in
            stream.inflate(part) { |bytes| to.write(bytes) }
            break from.unread(part.byteslice(stream.total_in - before..)) if stream.finished?
          end
          stream.finish unless stream.finished? # raises: it has ended early
        end
      end
    end

    # @param options [Hash, nil] +mtime:+ (nil: now, false: none, a Time or an Integer), +orig_name:+,
    #   +comment:+
    # @return [Integer] bytes written
    def gzip(source, target, options = nil)
      settings = Compression.gzip_settings(options || {})
      Compression.through(source, target) do |from, to|
        writer = ::Zlib::GzipWriter.new(to, LEVEL)
        settings.each { |name, value| writer.public_send(:"#{name}=", value) }
        Compression.each_part(from) { |part| writer.write(part) }
        writer.finish
        writer = nil
      ensure
        Compression.discard(writer) if writer
      end
    end

    # A source of several parts, one behind the other, is taken for one.
    # @param info [Hash, nil] gets +:mtime+ (a Time), +:orig_name+ and +:comment+
    # @return [Integer] bytes written
    # @raise [Zlib::Error] if it is not in gzip format, is damaged, or ends early
    def gunzip(source, target, info = nil)
      Compression.through(source, target) do |from, to|
        Compression.gunzip_member(from, to, info)
        Compression.gunzip_member(from, to, nil) while Compression.another?(from)
      end
    end

    # @!visibility private
    class << self
      def through(source, target)
        require 'zlib'
        from = ByteEnds::Source.new(source)
        to = ByteEnds::Sink.new(target)
        yield from, to
        from.finish
        to.total
      end

      # One that is closed too early warns.
      def with_stream(stream)
        yield stream
      ensure
        stream.reset unless stream.finished?
        stream.close
      end

      def each_part(source)
        while (part = source.read) do yield part end
      end

      def gzip_settings(options)
        unknown = options.keys - %i[mtime orig_name comment]
        raise ArgumentError, "unknown options #{unknown.inspect}: there are mtime, orig_name and comment" if unknown.any?

        { mtime: mtime(options[:mtime]), orig_name: options[:orig_name], comment: options[:comment] }.compact
      end

      def gunzip_member(source, sink, info)
        reader = ::Zlib::GzipReader.new(source)
        info&.update(mtime: reader.mtime, orig_name: reader.orig_name, comment: reader.comment)
        while (part = read_part(reader)) do sink.write(part) end
        source.unread(reader.unused)
        reader.finish
      end

      # Zeros may fill up a block of a tape. What is not compressed is not ours.
      def another?(source)
        head = source.read or return false
        head << (source.read || '') if head.bytesize < 2
        head = head.sub(/\A\0+/n, '') while head.getbyte(0)&.zero?
        source.unread(head)
        head.byteslice(0, 2) == "\x1F\x8B".b
      end

      # A writer that is neither finished nor closed warns when it is collected.
      def discard(writer)
        writer.close
      rescue StandardError
        nil # the error that ended it is on its way
      end

      private

      def mtime(value)
        value == false ? 0 : value
      end

      def read_part(reader)
        reader.readpartial(ByteEnds::CHUNK)
      rescue ::EOFError
        nil
      end
    end

    ::IO.extend self
  end
end
