# frozen_string_literal: true

# A web crawler with limits: four pages at a time, three links deep, each page once, a second for each. One page links
# to itself, one to a page that is not there, and one never answers.
#   ruby -Ilib examples/crawler.rb
require 'net/http'
require 'polyphony/http'
require 'set'

LINKS = { '/' => %w[/a /b /slow], '/a' => %w[/a /c], '/b' => %w[/c /gone], '/c' => %w[/d], '/d' => %w[/too-deep], '/slow' => [] }.freeze
$asked = Hash.new(0)

site = Polyphony::HTTP::Server.new('http://127.0.0.1:0', log: nil) do |request|
  links = LINKS[request.path]
  $asked[request.path] += 1
  sleep if request.path == '/slow'
  request.respond(links.to_a.map { |path| "<a href='#{path}'>" }.join, { 'content-type' => 'text/html' }, status: links ? 200 : 404)
end
site.start

# The pages of one round are fetched together; what they link to is the next round.
class Crawler
  attr_reader :found, :failed

  def initialize(url)
    @url, @found, @failed = url, {}, {}
  end

  def crawl(paths, deep:)
    seen = Set.new(paths)
    until paths.empty? || deep.negative?
      links = Fiber.map(paths, limit: 4) { |path| visit(path) }.flatten
      paths = links.uniq.select { |path| seen.add?(path) }
      deep -= 1
    end
    self
  end

  private

  def visit(path)
    answer = cancel_after(1) { Net::HTTP.get_response(URI("#{@url}#{path}")) }
    return failing(path, answer.code) unless answer.code == '200'

    @found[path] = answer.body.scan(/href='(.*?)'/).flatten
  rescue Polyphony::Cancel
    failing(path, 'too slow')
  end

  def failing(path, why)
    @failed[path] = why
    []
  end
end

crawler = Crawler.new(site.url).crawl(['/'], deep: 3)
puts "found: #{crawler.found.keys.sort.join(' ')}"
puts "failed: #{crawler.failed.sort.map { |pair| pair.join(' ') }.join(', ')}"
puts "asked more than once: #{$asked.count { |_, times| times > 1 }}"
