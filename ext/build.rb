# frozen_string_literal: true

# What both extensions need of mkmf: how a library is found, and how we compile.

require 'mkmf'

# Runs the block; unless it returns true, forgets the flags it added.
def keep_flags_if_found
  saved = [$libs, $CFLAGS, $CXXFLAGS, $LDFLAGS, $INCFLAGS, $CPPFLAGS].map(&:dup)
  return true if yield

  $libs, $CFLAGS, $CXXFLAGS, $LDFLAGS, $INCFLAGS, $CPPFLAGS = saved
  false
end

def find_by_pkg_config(package, program)
  checking_for("#{package} with pkg-config") do
    keep_flags_if_found { pkg_config(package) && try_link(program) }
  end
end

# Debian's libev has no .pc file, and Homebrew on Apple silicon is outside the compiler's paths.
def find_by_header(header, lib, program)
  roots = %w[/usr /usr/local /opt/homebrew]
  keep_flags_if_found do
    find_header(header, *roots.flat_map { |root| ["#{root}/include", "#{root}/include/lib#{lib}"] }) &&
      find_library(lib, nil, *roots.map { |root| "#{root}/lib" }) &&
      try_link(program)
  end
end

# @return [Boolean] whether the library is there and new enough, and its flags are set
def use_library(lib, header, program, too_old: nil)
  name = "lib#{lib}"
  return false unless with_config(name, true)

  dir_config(name)
  found = find_by_pkg_config(name, program) || find_by_header(header, lib, program)
  if found
    $defs.push("-DHAVE_#{name.upcase}") unless $defs.include?("-DHAVE_#{name.upcase}")
  else
    $defs.delete("-DHAVE_#{name.upcase}")
    message("note: #{too_old}\n") if too_old && have_header(header)
  end
  found
end

def add_sanitizers(names)
  flags = "-fsanitize=#{names} -fno-sanitize-recover=undefined"
  $CFLAGS << " #{flags} -g -O1 -fno-omit-frame-pointer"
  # Frames of a fiber that ended by an exception stay poisoned, and the next fiber gets the same
  # stack: reports about stacks would be false. The heap is what we want to hear about.
  $CFLAGS << (try_cflags('--param=asan-stack=0') ? ' --param=asan-stack=0' : ' -mllvm -asan-stack=0')
  $LDFLAGS << " #{flags}"
end

# The warnings we want, and the sanitizers and the strictness that the environment asks for.
def set_flags
  $defs.push('-D_GNU_SOURCE')
  # Only its Init function leaves the shared object (RUBY_FUNC_EXPORTED), so that no name of ours
  # meets one of another extension's.
  append_cflags(%w[-std=gnu11 -fvisibility=hidden])
  # Unused parameters are normal where Ruby dictates the signature, and what Ruby's own headers do
  # is not ours to mend.
  $CFLAGS << ' -Wall -Wextra -Wno-unused-parameter'
  $INCFLAGS.gsub!(/-I(?=\$\((?:arch_)?hdrdir\))/, '-isystem ')
  $CFLAGS << ' -Werror' if ENV['POLYPHONY_WERROR'] == '1'
  add_sanitizers(ENV['POLYPHONY_SANITIZE']) unless ENV['POLYPHONY_SANITIZE'].to_s.empty?
end
