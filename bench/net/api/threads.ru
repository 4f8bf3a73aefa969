# frozen_string_literal: true

# examples/json_api for a server with threads: its three queries are three threads, its pool is connection_pool's.

require 'connection_pool'

Fiber.singleton_class.define_method(:map) do |list, &block|
  list.map { |item| Thread.new(item, &block) }.map(&:value)
end

module Polyphony
  # What the example asks of ours.
  class ResourcePool
    def initialize(limit:, &make)
      @pool = ConnectionPool.new(size: limit, timeout: 10, &make)
    end

    def acquire(&block)
      @pool.with(&block)
    end
  end
end

require_relative 'app'
run App.new
