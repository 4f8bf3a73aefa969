# frozen_string_literal: true

module Bench
  # Raises the kernel's limit for memory mappings, vm.max_map_count, for as long as processes that need it run. Only the administrator may.
  # Not in such a process itself: when the limit is put back, it could not even give its mappings back.
  module Mappings
    LIMIT = '/proc/sys/vm/max_map_count'

    # @param number [Integer, nil] how many there have to be
    def self.ensure(number)
      before = number && File.readable?(LIMIT) && Integer(File.read(LIMIT))
      return yield unless before && before < number
      return complain(number, before) { yield } unless File.writable?(LIMIT)

      begin
        File.write(LIMIT, number.to_s)
        warn "vm.max_map_count is #{number} for this row, and #{before} again after it"
        yield
      ensure
        File.write(LIMIT, before.to_s)
      end
    end

    def self.complain(number, before)
      warn "vm.max_map_count is #{before}: this row needs #{number}, and only the administrator can say so"
      yield
    end
    private_class_method :complain
  end
end
