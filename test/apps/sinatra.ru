# frozen_string_literal: true

require 'sinatra/base'

class SinatraApp < Sinatra::Base
  set :environment, :production
  set :host_authorization, permitted_hosts: []
  set :logging, false
  enable :sessions
  set :session_secret, 'x' * 64

  get('/') { "sinatra at #{request.path}" }
  get('/hello/:name') { "hello #{params['name']}" }
  get('/count') { (session['count'] = session['count'].to_i + 1).to_s }
  get('/stream') { stream { |out| 3.times { |i| out << "piece #{i}\n" } } }
  get('/open') { stream(:keep_open) { |out| out << 'kept'; out.close } }
  get('/file') { send_file __FILE__, type: 'text/x-ruby' }
  get('/halt') { halt 418, 'teapot' }
  get('/slow') { sleep 0.1; Thread.current.object_id.to_s }
  post('/form') { params['name'].to_s * 2 }
  post('/upload') { params['file'][:tempfile].read.bytesize.to_s }
  post('/raw') { request.body.read.reverse }
end

run SinatraApp
