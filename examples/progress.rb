# frozen_string_literal: true

# Five downloads at once, with a bar for each that is drawn again ten times a second. Where the output is no terminal, only
# the end is printed.
#   ruby -Ilib examples/progress.rb
require 'net/http'
require 'polyphony/http'

SIZES = [40, 80, 20, 60, 100].map { |kilobytes| kilobytes * 1024 }.freeze

site = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: nil) do |request|
  size = SIZES[request.path[/\d+/].to_i]
  request.send_headers('content-length' => size)
  (size / 2048).times { request.send_chunk('x' * 2048) && sleep(0.01) }
end
site.start

Download = Struct.new(:name, :size, :got) do
  def fetch(url)
    Net::HTTP.get_response(URI("#{url}/#{name}")) do |answer|
      self.size = answer['content-length'].to_i
      answer.read_body { |text| self.got += text.bytesize }
    end
  end

  def done?
    size && got == size
  end

  def bar(width = 30)
    share = size ? got.fdiv(size) : 0
    format('%-8s [%-*s] %3d %%', name, width, '#' * (share * width), share * 100)
  end
end

# Draws the bars over those drawn before.
class Display
  def initialize(downloads)
    @downloads = downloads
  end

  def draw
    lines = @downloads.map(&:bar)
    print "\e[#{@drawn}A" if @drawn
    puts lines
    @drawn = lines.size
  end
end

downloads = SIZES.each_index.map { |i| Download.new("file-#{i}", nil, 0) }
display = Display.new(downloads)
painter = spin { every(0.1) { display.draw } } if $stdout.tty?
Fiber.map(downloads) { |download| download.fetch(site.url) }
painter&.stop
display.draw
puts "all there: #{downloads.all?(&:done?)}"
site.stop(within: 0)
