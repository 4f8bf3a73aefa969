# frozen_string_literal: true

class PagesController < ActionController::Base
  layout 'page'

  def home
    cookies[:seen] = 'yes'
    cookies[:other] = 'too'
    @name = params[:name] || 'you'
  end

  # The body is put into chunks by Rails.
  def streamed
    @name = 'stream'
    response.headers['last-modified'] = Time.now.httpdate # Rack::ETag would ask Rails for an Array, which fails
    render :home, stream: true
  end

  def file
    send_file __FILE__, type: 'text/x-ruby', disposition: 'inline'
  end

  def boom
    raise 'secret of the application'
  end
end
