# frozen_string_literal: true

# What YARD has to be told for the API pages; loaded by .yardopts.
module Polyphony
  module YARDHelp
    # What our files mix into classes of others is part of no page, and the receiver is mostly a class that YARD has not read.
    module Mixins
      private

      def process_mixin(mixin)
        receiver = statement.call? ? statement.namespace : nil
        super if receiver.nil? || receiver.source == 'self' || ours?(receiver)
      end

      def ours?(receiver)
        !YARD::Registry.resolve(namespace, receiver.source).nil?
      end
    end

    # A constant may be one that is defined in C.
    module PrivateConstants
      private

      def privatize_constant(node)
        super
      rescue YARD::Parser::UndocumentableError
        raise unless node.literal? || node.type == :var_ref
      end
    end
  end
end

YARD::Handlers::Ruby::MixinHandler.prepend Polyphony::YARDHelp::Mixins
YARD::Handlers::Ruby::ExtendHandler.prepend Polyphony::YARDHelp::Mixins
YARD::Handlers::Ruby::PrivateConstantHandler.prepend Polyphony::YARDHelp::PrivateConstants
