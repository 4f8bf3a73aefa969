# frozen_string_literal: true

module Polyphony
  module HTTP
    class AccessLog
      # Keeps secrets out of what is written about a URL.
      # @!visibility private
      class Mask
        # Names of parameters whose values are nobody's business.
        SECRETS = %w[password passwd pwd pass token access_token refresh_token id_token auth authorization secret
                     client_secret api_key apikey key code signature sig session sid jwt otp credit_card].freeze

        # @param query [Boolean, :mask, Array<String>] see AccessLog
        def initialize(query)
          names = query.is_a?(Array) ? SECRETS + query.map(&:to_s) : SECRETS
          @shown = query
          # No name begins within another: each byte is looked at for one name only.
          @secrets = /((?:\A|[?&;])(?:[^=?&;]*[_\-\[.])?(?:#{names.map { |name| Regexp.escape(name) }.join('|')})\]?=)[^&;#]*/i
        end

        # @param query [String, nil]
        # @return [String, nil] as it may be written
        def query(query)
          return if query.nil? || @shown == false
          return query if @shown == true

          query.b.gsub(@secrets, '\1[masked]')
        end

        # Pages are asked for with secrets, too, and a password may stand before the host.
        # @param url [String, nil]
        # @return [String, nil] as it may be written
        def url(url)
          return if url.nil?

          url = url.b.sub(%r{\A([a-z][a-z0-9+.-]*://)[^/@?#]*@}i, '\1')
          return url if @shown == true

          page, mark, query = url.partition('?')
          mark.empty? || @shown == false ? page : "#{page}?#{query(query)}"
        end
      end
    end
  end
end
