# frozen_string_literal: true

module Demo
  # Answers requests: two pages with what belongs to them, a WebSocket for the chat, a stream of events for the
  # figures.
  class App
    PUBLIC = File.join(__dir__, 'public')
    PAGES = { '/' => '/index.html', '/stats' => '/stats.html' }.freeze
    # Scripts and styles come from here alone, and no text ever becomes markup.
    POLICY = [
      "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
      "form-action 'none'", "base-uri 'none'", "frame-ancestors 'none'",
      "require-trusted-types-for 'script'", "trusted-types 'none'"
    ].join('; ').freeze
    HEADERS = {
      'content-security-policy' => POLICY, 'x-content-type-options' => 'nosniff', 'referrer-policy' => 'no-referrer',
      'cross-origin-opener-policy' => 'same-origin', 'cross-origin-resource-policy' => 'same-origin',
      'cache-control' => 'no-cache'
    }.freeze
    PLAIN = { 'content-type' => 'text/plain; charset=utf-8', **HEADERS }.freeze

    def initialize(hall)
      @hall = hall
    end

    # Comes later: it watches the server that calls us.
    attr_writer :pulse

    def call(request)
      case request.path
      when '/chat' then request.upgrade_to_websocket { |socket| Chat::Visit.new(@hall, socket).run }
      when '/stats/stream' then stream(request)
      else file(request)
      end
    end

    private

    def stream(request)
      return request.respond("Too many are watching.\n", PLAIN, status: 503) if @pulse.crowded?

      request.event_stream(HEADERS) do |events|
        @pulse.watch { |name, data| events.send(data, event: name) }
      end
    end

    def file(request)
      return refuse(request) unless %w[GET HEAD].include?(request.verb)

      request.serve_file(PAGES.fetch(request.path, request.path), root: PUBLIC, headers: HEADERS)
    end

    def refuse(request)
      request.respond("Only GET and HEAD.\n", { **PLAIN, 'allow' => 'GET, HEAD' }, status: 405)
    end
  end
end
