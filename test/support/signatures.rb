# frozen_string_literal: true

module Polyphony
  # What stands in sig/, by lines: the files are ours, and plain.
  module Signatures
    module_function

    # @return [Array<Array(String, String, Boolean)>] owner, name and whether it is a singleton method, of every def, alias and attribute
    def all(folder, files: '*.rbs')
      owners = []
      Dir["#{folder}/#{files}"].sort.flat_map { |file| File.readlines(file) }.flat_map do |line|
        case line
        when /^\s*(?:class|module) (\w+)/ then owners.push($1) && []
        when /^\s*end$/                   then owners.pop && []
        when /^\s*def (self\.)?([^:\s]+?):/, /^\s*alias (self\.)?(\S+)/
          [[owners.join('::'), $2, !$1.nil?]]
        when /^\s*attr_reader (\w+)/ then [[owners.join('::'), $1, false]]
        when /^\s*attr_accessor (\w+)/ then [$1, "#{$1}="].map { |name| [owners.join('::'), name, false] }
        else []
        end
      end
    end
  end
end
