# frozen_string_literal: true

# tail -f for several files at once: a fiber follows each, also when it is cut short or replaced by another, as log files are;
# lines that are written in pieces come whole.
#   ruby -Ilib examples/tail.rb [files]
require 'polyphony'
require 'tmpdir'

# Follows a file from its end, until its fiber is stopped.
def follow(path, pause: 0.005)
  file = File.open(path)
  file.seek(0, IO::SEEK_END)
  rest = +''
  loop do
    while (line = file.gets)
      rest << line
      yield rest.slice!(0..).chomp if rest.end_with?("\n")
    end
    sleep pause
    file = fresh(file, path)
  end
ensure
  file&.close
end

# The file to go on with: the same, unless there is another in its place.
def fresh(file, path)
  now = File.stat(path)
  file.rewind if now.size < file.pos
  return file if now.ino == file.stat.ino

  file.close
  File.open(path)
rescue Errno::ENOENT
  file # somebody is about to put another there
end

unless ARGV.empty?
  ARGV.each { |path| spin(path) { follow(path) { |line| puts "#{path}: #{line}" } } }
  suspend
  exit
end

Dir.mktmpdir do |folder|
  logs = %w[web db].to_h { |name| [name, File.join(folder, name)] }
  logs.each_value { |path| File.write(path, "old\n") }
  heard = Polyphony::Queue.new
  followers = logs.map { |name, path| spin(name) { follow(path) { |line| heard << "#{name}: #{line}" } } }
  say = ->(name, text, mode = 'a') { File.open(logs[name], mode) { |file| file << text } }
  snooze until followers.all? { |fiber| fiber.state == :waiting }

  say.('web', "GET /\n").then { puts heard.shift }
  say.('db', 'sel').then { sleep 0.02 }
  say.('db', "ect 1\n").then { puts heard.shift }
  say.('web', "cut\n", 'w').then { puts heard.shift }
  File.rename(logs['db'], "#{logs['db']}.1")
  say.('db', "a new file\n").then { puts heard.shift }
  followers.each(&:stop)
end
