# frozen_string_literal: true

require 'tempfile'

step = 65_536
size = 64 << 20
# Both are in the page cache.
with_files = lambda do |&block|
  Tempfile.create('polyphony-bench') do |source|
    Tempfile.create('polyphony-bench') do |target|
      [source, target].each { |file| file.sync = true; file.write('x' * size); file.rewind }
      block.call(source, target)
    end
  end
end
copy = lambda do |worker, times, source, target, buffer|
  seconds = worker.elapsed(Bench::Worker::WALL) do
    times.times do
      [source, target].each { |file| file.seek(0) }
      (size / step).times { source.sysread(step, buffer); target.syswrite(buffer) }
    end
  end
  { rate: times * size / seconds / (1 << 30) }
end

Bench.row 'file_copy' do
  title 'copy of a cached file, 64 KiB a step'
  metric :rate, 'GiB/s', better: :higher, ratio: 0.9
  no_warm_up

  limit('bare Ruby, sysread and syswrite', 4) { |n| with_files.call { |source, target| copy[self, n, source, target, +''] } }
  polyphony(4) { |n| with_files.call { |source, target| copy[self, n, source, target, +''] } }
  older(2) { |n| with_files.call { |source, target| copy[self, n, source, target, +''] } }
  async(4) { |n, _task| with_files.call { |source, target| copy[self, n, source, target, +''] } }
end

# From one pipe to another, filled and emptied by fibers, or threads, that splice from and to files.
Bench.row 'splice' do
  title 'pipe to pipe, 64 KiB at a time'
  metric :rate, 'GiB/s', better: :higher
  no_warm_up
  block = 'x' * step

  run = lambda do |worker, megabytes, start, move|
    (from, source), (sink, to) = [IO.pipe, IO.pipe]
    total = megabytes << 20
    seconds = worker.elapsed(Bench::Worker::WALL) do
      feeder = start.call { (total / step).times { source.write(block) }; source.close }
      mover = start.call { move.call(from, to); to.close }
      buffer = +''
      got = 0
      got += sink.readpartial(step, buffer).bytesize while got < total
      [feeder, mover].each { |who| who.respond_to?(:await) ? who.await : who.join }
    end
    { rate: total / seconds / (1 << 30) }
  end

  limit('Thread, IO.copy_stream', 256) { |n| run[self, n, Thread.method(:new), ->(from, to) { IO.copy_stream(from, to) }] }

  spliced = lambda do |from, to|
    left = true
    left = Polyphony.backend_splice(from, to, step).to_i.positive? while left
  rescue EOFError
    nil
  end
  polyphony(256) { |n| run[self, n, ->(&body) { spin { body.call } }, spliced] }
end
