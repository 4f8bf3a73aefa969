# frozen_string_literal: true

# Filling the pipe is not timed.
Bench.row 'pipe_read' do
  title 'ready read, 64 bytes of a pipe'
  metric :ns, 'ns'

  read = lambda do |worker, count, &block|
    from, to = IO.pipe
    worker.measure_batches(count, 512) do
      to.syswrite('x' * (512 * 64))
      worker.elapsed { 512.times { block.call(from) } }
    end
  end

  limit('C, read(2)', 500_000) { |n| native('read_loop', 'pipe', n, 64) }

  polyphony(200_000) do |n|
    buffer = +''
    read.call(self, n) { |pipe| Polyphony.backend_read(pipe, buffer, 64, false, 0) }
  end

  beside('IO#readpartial', 200_000) do |n|
    buffer = +''
    read.call(self, n) { |pipe| pipe.readpartial(64, buffer) }
  end
end
