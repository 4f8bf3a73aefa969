# frozen_string_literal: true

require 'time'

module Polyphony
  module HTTP
    class Static
      # Answers a request with a file: all of it, parts of it, or that the client has it already.
      # @!visibility private
      class Answer
        # How a file may be compressed, the best first: coding => ending.
        CODINGS = { 'br' => '.br', 'zstd' => '.zst', 'gzip' => '.gz' }.freeze
        # Files up to this size are read and sent together with the head.
        SMALL = 16_384

        # @param path [String] of a file that may be shown
        def initialize(request, path, type:, cache_control:, headers:, precompressed:)
          @request = request
          @path = path
          @type = type
          @cache_control = cache_control
          @headers = headers
          @precompressed = precompressed || {} # coding => path
          @coding = nil
          @varies = false
        end

        # @return [Boolean] false, and nothing was answered, if there is no such file
        def run
          file = open_file(@path) or return false
          file = choose_coding(file) unless @precompressed.empty?
          stat = file.stat
          @size = stat.size
          @modified = stat.mtime
          @etag = format('"%x-%x%s"', @size, (@modified.to_i * 1_000_000_000) + @modified.nsec, @coding && "-#{@coding}")
          answer(file)
          true
        ensure
          file&.close
        end

        private

        # Only of a regular file: to open a device or a pipe may do things.
        def open_file(path)
          return unless ::File.file?(path)

          file = ::File.open(path, ::File::RDONLY | ::File::NONBLOCK | ::File::NOCTTY | ::File::BINARY)
          return file if file.stat.file?

          file.close
          nil
        rescue ::SystemCallError
          nil # not there, or not for us
        end

        # A compressed file beside the one asked for stands for it, unless it is older.
        def choose_coding(file)
          @varies = true
          accepted = accepted_codings
          liked = @precompressed.keys.map { |coding| [coding, accepted.fetch(coding) { accepted.fetch('*', 0) }] }
          liked.select! { |_, quality| quality.positive? && quality >= accepted.fetch('identity', 0) }
          liked.sort_by!.with_index { |(_, quality), i| [-quality, i] }
          liked.each do |coding, _|
            sibling = open_file(@precompressed[coding]) or next
            if sibling.mtime >= file.mtime
              @coding = coding
              file.close
              return sibling
            end
            sibling.close
          end
          file
        end

        # @return [Hash{String => Float}] coding => quality
        def accepted_codings
          @request['accept-encoding'].to_s.split(',').first(32).each_with_object({}) do |part, accepted|
            coding, *parameters = part.split(';').map(&:strip)
            quality = parameters.grep(/\Aq=/i).first
            value = quality ? quality[/\Aq=([01](?:\.\d{0,3})?)\z/i, 1]&.to_f : 1.0
            accepted[coding.downcase] = value if coding && value
          end
        end

        def answer(file)
          case condition
          when 304 then @request.respond(nil, validators, status: 304)
          when 412 then refuse(412)
          else send_file(file)
          end
        end

        # In the order of RFC 9110, 13.2.2.
        # @return [Integer, nil] 304 or 412
        def condition
          if (tags = @request['if-match']) then return 412 unless listed?(tags, true)
          elsif (time = time_of('if-unmodified-since')) then return 412 if @modified.to_i > time
          end
          if (tags = @request['if-none-match']) then 304 if listed?(tags, false)
          elsif (time = time_of('if-modified-since')) then 304 if @modified.to_i <= time
          end
        end

        def listed?(tags, strong)
          return true if tags.strip == '*'

          tags.scan(%r{(W/)?("[^"]*")}).any? { |weak, tag| tag == @etag && !(strong && weak) }
        end

        # @return [Integer, nil]
        def time_of(name)
          value = @request[name] or return
          Time.httpdate(value).to_i
        rescue ArgumentError
          nil # as if it were not there
        end

        def send_file(file)
          ranges = Ranges.parse(@request['range'], @size) if @request.verb == 'GET' && range_valid?
          if ranges.nil? then send_whole(file)
          elsif ranges.empty? then refuse_range
          elsif ranges.size == 1 then send_part(file, ranges.first)
          else send_parts(file, ranges)
          end
        end

        def refuse_range
          @request.connection.refuse(BadRequest.new('a Range of which there is nothing to send', 416))
          refuse(416, 'content-range' => "bytes */#{@size}")
        end

        # Parts of another version than the client has are of no use to it.
        def range_valid?
          condition = @request['if-range'] or return true
          return condition == @etag if condition.start_with?('"')

          time_of('if-range') == @modified.to_i
        end

        def send_whole(file)
          headers = head.merge('content-type' => @type, 'content-length' => @size.to_s)
          return send_pieces(headers, 200) { @request.send_file_part(file, 0, @size) } if @size > SMALL || @request.head?

          data = @size.zero? ? '' : file.pread(@size, 0)
          raise EOFError, "#{@path} has become shorter" if data.bytesize < @size

          @request.respond(data, headers.tap { |fields| fields.delete('content-length') })
        end

        def send_part(file, range)
          headers = head.merge('content-type' => @type, 'content-length' => range.size.to_s, 'content-range' => content_range(range))
          send_pieces(headers, 206) { @request.send_file_part(file, range.begin, range.size) }
        end

        def send_parts(file, ranges)
          boundary = Random.urandom(12).unpack1('H*')
          heads = ranges.map do |range|
            "\r\n--#{boundary}\r\ncontent-type: #{@type}\r\ncontent-range: #{content_range(range)}\r\n\r\n"
          end
          tail = "\r\n--#{boundary}--\r\n"
          length = heads.sum(&:bytesize) + ranges.sum(&:size) + tail.bytesize
          headers = head.merge('content-type' => "multipart/byteranges; boundary=#{boundary}", 'content-length' => length.to_s)
          send_pieces(headers, 206) do
            ranges.zip(heads) { |range, text| @request.send_chunk(text).send_file_part(file, range.begin, range.size) }
            @request.send_chunk(tail)
          end
        end

        def content_range(range)
          "bytes #{range.begin}-#{range.end - 1}/#{@size}"
        end

        def send_pieces(headers, status)
          @request.send_headers(headers, status: status)
          yield unless @request.head?
          @request.finish
        end

        def refuse(status, headers = {})
          @request.respond("#{Status::PHRASES[status]}\n", validators.merge('content-type' => 'text/plain', **headers), status: status)
        end

        # What a client needs to ask again.
        def validators
          headers = { 'etag' => @etag, 'last-modified' => @modified.httpdate }
          headers['cache-control'] = @cache_control if @cache_control
          headers['vary'] = 'accept-encoding' if @varies
          headers.merge(@headers)
        end

        def head
          headers = validators
          headers['accept-ranges'] = 'bytes'
          headers['content-encoding'] = @coding if @coding
          headers
        end
      end

      private_constant :Answer

      class << self
        # @return [Boolean] whether there is such a file
        # @!visibility private
        def __answer(request, path, **options)
          Answer.new(request, path, **options).run
        end

        # @return [Hash{String => String}] coding => path of the compressed files beside a file, which are no links
        # @!visibility private
        def __siblings(path)
          Answer::CODINGS.transform_values { |ending| path + ending }
                         .select { |_, sibling| ::File.file?(sibling) && !::File.symlink?(sibling) }
        end
      end
    end
  end
end
