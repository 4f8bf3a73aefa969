# frozen_string_literal: true

require 'json'
require_relative 'cache'

# What can be asked for, as a Rack application. Each request is a fiber; what it waits for, it waits for alone.
class Api
  def initialize(shop, cache)
    @shop = shop
    @cache = cache
  end

  def call(env)
    case [env['REQUEST_METHOD'], *env['PATH_INFO'].split('/').drop(1)]
    in ['GET', 'customers', /\A\d{1,9}\z/ => id] then answer(200, page(id.to_i))
    in ['POST', 'customers', /\A\d{1,9}\z/ => id, 'orders'] then answer(201, order(id.to_i, env['rack.input'].read))
    else answer(404, error: "nothing is at #{env['PATH_INFO']}")
    end
  rescue Shop::Refused, JSON::ParserError => e
    answer(e.is_a?(Shop::Unknown) ? 404 : 400, error: e.message)
  end

  private

  # Three queries at once, each on a connection of its own: as long as the longest, not as all together.
  def page(id)
    @cache.fetch("customer:#{id}", seconds: 5) do
      parts = %i[customer orders recommended]
      parts.zip(Fiber.map(parts) { |part| @shop.public_send(part, id) }).to_h
    end
  end

  def order(id, body)
    wish = JSON.parse(body, symbolize_names: true)
    raise Shop::Refused, "send an object with thing and amount, not #{wish.class}" unless wish.is_a?(Hash)

    @shop.order(id, **wish.slice(:thing, :amount)).tap { @cache.forget("customer:#{id}") }
  end

  def answer(status, content)
    [status, { 'content-type' => 'application/json' }, [content.is_a?(String) ? content : JSON.generate(content)]]
  end
end
