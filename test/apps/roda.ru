# frozen_string_literal: true

require 'roda'

class RodaApp < Roda
  plugin :json
  plugin :streaming
  plugin :public, root: __dir__

  route do |r|
    r.public
    r.root { "roda at #{request.path}" }
    r.get('json') { { 'answer' => 42 } }
    r.get('hello', String) { |name| "hello #{name}" }
    r.get('stream') { stream { |out| 3.times { |i| out << "piece #{i}\n" } } }
    r.post('form') { r.params['name'].to_s * 2 }
  end
end

run RodaApp.freeze.app
