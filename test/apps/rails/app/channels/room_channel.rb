# frozen_string_literal: true

class RoomChannel < ActionCable::Channel::Base
  def subscribed
    stream_from "room #{params[:room]}"
  end

  def say(data)
    ActionCable.server.broadcast("room #{params[:room]}", { text: data['text'].upcase })
  end
end
