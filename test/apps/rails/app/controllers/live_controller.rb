# frozen_string_literal: true

class LiveController < ActionController::Base
  include ActionController::Live

  def events
    response.headers['content-type'] = 'text/event-stream'
    response.headers['last-modified'] = Time.now.httpdate # keeps Rack::ETag from reading it all
    stream = SSE.new(response.stream, event: 'tick')
    3.times do |i|
      stream.write({ number: i })
      sleep 0.05
    end
  ensure
    stream&.close
  end
end
