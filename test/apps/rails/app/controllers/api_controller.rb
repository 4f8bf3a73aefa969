# frozen_string_literal: true

class ApiController < ActionController::API
  class << self
    attr_accessor :inside
  end
  self.inside = 0

  def hello
    render json: { hello: params[:name], thread: Thread.current.object_id }
  end

  def echo
    render json: { params: params.permit(:a, b: []), raw: request.raw_post, type: request.media_type }
  end

  def upload
    render plain: params[:file].read.bytesize.to_s
  end

  # Returns when as many are inside as the client said it would send, and what it knows of itself by then.
  def who
    Current.who = params[:name]
    Thread.current[:name] = params[:name]
    self.class.inside += 1
    sleep 0.005 until self.class.inside >= params[:together].to_i
    render json: [Current.who, Thread.current[:name], Thread.current.object_id]
  end
end
