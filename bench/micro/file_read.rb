# frozen_string_literal: true

require 'tempfile'

# The target is meant for a copy, of which this is the reading half.
Bench.row 'file_read' do
  title 'cached file, 64 KiB a read'
  metric :ns, 'ns', ratio: 1 / 0.9, note: 'of a copy'

  step = 65_536
  size = 32 << 20
  # Written just now, so it is in the page cache.
  with_file = lambda do |&block|
    Tempfile.create('polyphony-bench') do |file|
      file.write('x' * size)
      file.flush
      file.rewind
      block.call(file)
    end
  end

  limit('C, read(2)', 20_000) do |n|
    with_file.call { |file| native('read_loop', 'file', file.path, n, step) }
  end

  polyphony(20_000) do |n|
    buffer = +''
    with_file.call do |file|
      measure(n, clock: Bench::Worker::WALL) { n.times { Polyphony.backend_read(file, buffer, step, false, 0) || file.rewind } }
    end
  end
end
