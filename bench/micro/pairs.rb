# frozen_string_literal: true

require 'socket'

# 50 pairs of fibers, one of which writes messages of 1 KB and the other reads them. The limit writes and reads in turn, and so never waits.
{ 'pipe_pairs' => ['pipes', -> { IO.pipe }], 'socket_pairs' => ['socket pairs', -> { UNIXSocket.pair }] }.each do |name, (what, open)|
  Bench.row name do
    title "50 pairs of fibers on #{what} (a message of 1 KB)"
    metric :ns, 'ns', peer: 1
    grows 'messages'
    message = 'x' * 1024
    pairs = 50

    bodies = lambda do |each|
      Array.new(pairs) do
        reader, writer = open.call
        buffer = +''
        [-> { each.times { writer.write(message) }; writer.close },
         -> { got = 0; got += reader.readpartial(1024, buffer).bytesize while got < each * 1024 }]
      end.flatten
    end

    limit('stock, without waiting', 50_000) do |n|
      reader, writer = open.call
      buffer = +''
      measure(n, clock: Bench::Worker::WALL) { n.times { writer.syswrite(message); reader.sysread(1024, buffer) } }
    end

    ours = lambda do |worker, n|
      each = [n / pairs, 1].max
      all = bodies[each]
      worker.measure(each * pairs, clock: Bench::Worker::WALL) { all.map { |body| spin { body.call } }.each(&:await) }
    end
    polyphony(50_000) { |n| ours[self, n] }
    older(50_000) { |n| ours[self, n] }

    async(50_000) do |n, task|
      each = [n / pairs, 1].max
      all = bodies[each]
      measure(each * pairs, clock: Bench::Worker::WALL) { all.map { |body| task.async { body.call } }.each(&:wait) }
    end

    carbon_fiber(50_000, clock: Process::CLOCK_MONOTONIC) do |n|
      each = [n / pairs, 1].max
      [each * pairs, bodies[each]]
    end

    # It has words of its own, for descriptors.
    uringmachine(50_000, clock: Process::CLOCK_MONOTONIC) do |n, machine|
      each = [n / pairs, 1].max
      all = Array.new(pairs) do
        ends = open.call
        reader, writer = ends.map(&:fileno)
        buffer = +''
        [-> { ends; each.times { machine.write(writer, message) } },
         -> { got = 0; got += machine.read(reader, buffer, 1024) while got < each * 1024 }]
      end
      [each * pairs, all.flatten]
    end

    beside('Thread', 50_000) do |n|
      each = [n / pairs, 1].max
      all = bodies[each]
      measure(each * pairs, clock: Bench::Worker::WALL) { all.map { |body| Thread.new(&body) }.each(&:join) }
    end
  end
end
