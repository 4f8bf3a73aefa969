# frozen_string_literal: true

require_relative '../test_helper'

# A peer sends numbered bytes while the reads are cancelled at random moments. Not one byte may be
# missing or doubled. The seed is in the name of every failure: NO_BYTE_LOST_SEED=n repeats it.
class TestNoByteLost < Polyphony::TestCase
  on_every_driver
  time_limit 120

  SEED = Integer(ENV.fetch('NO_BYTE_LOST_SEED', Random.new_seed % 1_000_000))
  TOTAL = Integer(ENV.fetch('NO_BYTE_LOST_TOTAL', 100_000))

  class Boom < StandardError; end

  def self.announce
    @announce ||= puts("NO_BYTE_LOST_SEED=#{SEED}") || true
  end

  def setup
    super
    heavy
    self.class.announce
    @random = Random.new(SEED)
    # Byte n says where it stands: counters of different lengths, so that a shift shows everywhere.
    @sent = Array.new(TOTAL) { |i| (i ^ i >> 8 ^ i >> 16) & 255 }.pack('C*')
    @got = +''.b
    @cancels = 0
  end

  READ = ->(io, length) { Polyphony.backend_read(io, +'', length, false, 0) }
  RECV = ->(io, length) { Polyphony.backend_recv(io, +'', length, 0) }

  # --- ways to cancel ---------------------------------------------------------------------------

  # A deadline that is often due at the very moment at which bytes come.
  def by_timeout(read)
    loop do
      done = false
      chunk = move_on_after(@random.rand * 0.0004, with_value: :cancelled) do
        read.call.tap { |bytes| keep(bytes); done = true }
      end
      @cancels += 1 if chunk == :cancelled && !done
      break if done && chunk.nil?
    end
  end

  # A fiber that is stopped after so many switches; what it had read before is kept.
  def by_stop(read)
    until @eof
      fiber = spin { loop { break @eof = true unless keep(read.call) } }
      @random.rand(6).times { snooze }
      @cancels += 1 if fiber.state == :waiting
      fiber.stop
      fiber.await
    end
  end

  def by_raise(read)
    until @eof
      fiber = spin do
        loop { break @eof = true unless keep(read.call) }
      rescue Boom
        @cancels += 1
      end
      @random.rand(6).times { snooze }
      fiber.raise(Boom)
      fiber.await unless fiber.dead?
    end
  rescue Boom
    @cancels += 1 # came before the fiber's first run
    retry
  end

  def keep(bytes)
    @got << bytes if bytes
    bytes
  end

  # --- the peer -----------------------------------------------------------------------------------

  # In a fiber of its own: pieces of random length with random pauses.
  def send_all(writer)
    random = Random.new(SEED + 1)
    spin do
      at = 0
      while at < TOTAL
        piece = @sent.byteslice(at, 1 + random.rand(200))
        Polyphony.backend_write(writer, piece)
        at += piece.bytesize
        case random.rand(8)
        when 0 then sleep random.rand * 0.0004
        when 1..3 then random.rand(4).times { snooze }
        end
      end
      writer.close
    end
  end

  # In a process of its own: bytes come while the kernel is being asked to withdraw a read.
  def send_all_from_outside(writer)
    pid = Process.spawn({ 'SEED' => SEED.to_s, 'RUBYOPT' => nil }, RbConfig.ruby, '--disable-gems', '-e', <<~RUBY, out: writer, in: @data)
      $stdout.sync = true
      data = $stdin.binmode.read
      random = Random.new(ENV['SEED'].to_i)
      at = 0
      while at < data.bytesize
        piece = data.byteslice(at, 1 + random.rand(300))
        $stdout.syswrite(piece)
        at += piece.bytesize
        Thread.pass
        sleep(random.rand * 0.0002) if random.rand(3) == 0
      end
    RUBY
    writer.close
    pid
  end

  def assert_nothing_lost(kind)
    first = (0...[TOTAL, @got.bytesize].max).find { |i| @got.getbyte(i) != @sent.getbyte(i) }
    assert_nil first, "#{kind}: wrong from byte #{first} on, #{@got.bytesize} of #{TOTAL} bytes came, " \
                      "seed #{SEED}"
    assert_operator @cancels, :>, 0, "#{kind}: nothing was cancelled, the test proves nothing"
  end

  def check(kind, reader, writer, operation, way)
    send_all(writer)
    random = Random.new(SEED + 2)
    send(way, -> { operation.call(reader, 1 + random.rand(150)) })
    assert_nothing_lost("#{kind}, #{way}")
  end

  { pipe: :pipe_pair, unix: :socket_pair, tcp: :tcp_pair }.each do |kind, pair|
    %i[by_timeout by_stop by_raise].each do |way|
      define_method("test_no_byte_of_a_#{kind}_is_lost_when_reads_are_cancelled_#{way}") do
        reader, writer = send(pair)
        check(kind, reader, writer, READ, way)
      end

      next if kind == :pipe

      define_method("test_no_byte_of_a_#{kind}_is_lost_when_recvs_are_cancelled_#{way}") do
        reader, writer = send(pair)
        check(kind, reader, writer, RECV, way)
      end
    end

    define_method("test_no_byte_of_a_#{kind}_from_another_process_is_lost_when_reads_are_cancelled") do
      reader, writer = send(pair)
      Tempfile.create('numbered') do |file|
        file.binmode.write(@sent)
        file.rewind
        @data = file
        pid = send_all_from_outside(writer)
        random = Random.new(SEED + 2)
        by_timeout(-> { READ.call(reader, 1 + random.rand(150)) })
        Process.wait(pid)
      end
      assert_nothing_lost("#{kind} from another process")
    end
  end

  def test_bytes_given_back_are_seen_by_a_loop
    reader, writer = pipe_pair
    send_all(writer)
    finished = false
    until finished
      move_on_after(@random.rand * 0.0004) do
        Polyphony.backend_read_loop(reader, 100) { |chunk| keep(chunk) }
        finished = true
      end
      @cancels += 1 unless finished
    end
    assert_nothing_lost('read_loop')
  end

  # What a read to a length had gathered is in its buffer when it is cancelled.
  def test_a_cancelled_read_to_a_length_leaves_what_it_had_in_the_buffer
    reader, writer = pipe_pair
    send_all(writer)
    eof = false
    until eof
      buffer = +''.b
      eof = move_on_after(@random.rand * 0.0004, with_value: :cancelled) do
        Polyphony.backend_read(reader, buffer, 500, true, 0).nil?
      end
      @cancels += 1 if eof == :cancelled
      eof = false if eof == :cancelled
      keep(buffer)
    end
    assert_nothing_lost('read to a length')
  end
end
