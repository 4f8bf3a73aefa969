# frozen_string_literal: true

require_relative 'model'

module RandomPrograms
  # The words by the model.
  class ModelWorld
    Joined = Struct.new(:fiber) do
      def join = fiber.await
    end

    # Whatever it is made of.
    Channel = Struct.new(:queue) do
      def write(value) = queue.push(value)
      def read = queue.shift
      def close; end
    end

    def initialize = @model = Model.new
    def run(&block) = @model.run(&block)
    def spin(&block) = @model.spin(@model.current, block)
    def current = @model.current
    def snooze = @model.snooze
    def suspend = @model.suspend
    def sleep(units) = @model.sleep(units)
    def now = @model.now
    def receive = @model.current.mailbox.shift
    def limit(units, value, &block) = @model.limit(units, value) { block.call }
    def cancel_after(units, &block) = @model.cancel_after(units) { block.call }
    def shield(&block) = @model.shield(&block)
    def scope(&block) = @model.scope(&block)
    def await_children = @model.current.await_children
    def shut_down_children = @model.current.shut_down_children
    def await_all(fibers) = @model.await_all(fibers)
    def select(fibers) = @model.select(fibers)
    def race(fibers) = @model.race(fibers)
    def map(list, limit, &block) = @model.map(list, limit, &block)
    def queue(cap) = Model::Queue.new(@model, cap)
    def mutex = Model::Mutex.new(@model)
    def semaphore(limit) = Model::Semaphore.new(@model, limit)
    def event = Model::Event.new(@model)
    # To the model a thread is one more fiber.
    def thread(&block) = Joined.new(@model.spin(@model.root, ->(_) { block.call }))
    def channel(_kind) = Channel.new(queue(nil))
    def cancel_class = Model::Cancel
  end
end
