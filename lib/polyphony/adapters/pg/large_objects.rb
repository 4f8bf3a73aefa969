# frozen_string_literal: true

module Polyphony
  module Adapters
    module PG
      # libpq's functions for large objects wait by themselves and stop all threads. They only call functions of the server,
      # which are called here with queries.
      # @api private
      module LargeObjects
        PIECE = 1 << 18
        private_constant :PIECE

        def lo_creat(mode = ::PG::INV_READ)
          Integer(__lo('lo_creat($1::int4)', mode))
        end
        alias locreat lo_creat

        def lo_create(oid)
          Integer(__lo('lo_create($1::oid)', oid))
        end
        alias locreate lo_create

        def lo_open(oid, mode = nil)
          Integer(__lo('lo_open($1::oid, $2::int4)', oid, mode || ::PG::INV_READ))
        end
        alias loopen lo_open

        def lo_write(descriptor, bytes)
          raise ::TypeError, "wrong argument type #{bytes.class} (expected String)" unless bytes.is_a?(::String)

          Integer(__lo('lowrite($1::int4, $2::bytea)', descriptor, { value: bytes, type: 17, format: 1 }))
        end
        alias lowrite lo_write

        # @return [String, nil] nil at the end
        def lo_read(descriptor, length)
          raise ::PG::Error.new("negative length #{length} given", connection: self) if length.negative?

          bytes = __lo('loread($1::int4, $2::int4)', descriptor, length, format: 1)
          bytes unless bytes.empty?
        end
        alias loread lo_read

        def lo_lseek(descriptor, offset, whence)
          Integer(__lo('lo_lseek64($1::int4, $2::int8, $3::int4)', descriptor, offset, whence))
        end
        alias lolseek lo_lseek
        alias lo_seek lo_lseek
        alias loseek lo_lseek

        def lo_tell(descriptor)
          Integer(__lo('lo_tell64($1::int4)', descriptor))
        end
        alias lotell lo_tell

        def lo_truncate(descriptor, length)
          __lo('lo_truncate64($1::int4, $2::int8)', descriptor, length)
          nil
        end
        alias lotruncate lo_truncate

        def lo_close(descriptor)
          __lo('lo_close($1::int4)', descriptor)
          nil
        end
        alias loclose lo_close

        def lo_unlink(oid)
          __lo('lo_unlink($1::oid)', oid)
          nil
        end
        alias lounlink lo_unlink

        def lo_import(path)
          ::File.open(path, 'rb') do |file|
            oid = lo_creat(::PG::INV_READ | ::PG::INV_WRITE)
            object = lo_open(oid, ::PG::INV_WRITE)
            while (piece = file.read(PIECE)) do lo_write(object, piece) end
            lo_close(object)
            oid
          end
        rescue ::SystemCallError => e
          raise ::PG::Error.new("could not open or read file \"#{path}\": #{e.message}", connection: self)
        end
        alias loimport lo_import

        def lo_export(oid, path)
          object = lo_open(oid, ::PG::INV_READ)
          ::File.open(path, 'wb') do |file|
            while (piece = lo_read(object, PIECE)) do file.write(piece) end
          end
          lo_close(object)
        rescue ::SystemCallError => e
          raise ::PG::Error.new("could not open or write file \"#{path}\": #{e.message}", connection: self)
        end
        alias loexport lo_export

        private

        # The types of the connection are the program's, and left out of it.
        def __lo(call, *arguments, format: 0)
          plain = ::PG::TypeMapAllStrings.new
          exec_params("SELECT #{call}", arguments, format, plain) do |result|
            result.type_map = plain
            result.getvalue(0, 0)
          end
        end
      end
    end
  end
end
