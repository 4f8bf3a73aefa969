# frozen_string_literal: true

module Forms
  # Says what it is when it is asked, and who asked.
  class Spoken
    def to_s = "spoken #{Fiber.current.equal?($form_fiber)}"
  end

  WRITES = <<'FORMS'
    io.write('text')
    io.write
    io.write('')
    io.write('a', :b, 3, nil, 4.5)
    io.write('x' * 200_000)
    io.write('x' * 100_000, 'y' * 100_000)
    io.write("\u20ac", "\xFF".b)

    io << 'a' << 2 << nil; 1
    (io << 'a').equal?(io)
    io.print
    io.print('a', 'b', 3)
    $_ = 'last line'; io.print
    $, = nil; io.print('a', 'b')
    io.puts
    io.puts('a')
    io.puts("a\n")
    io.puts(['a', ['b', nil], []])
    io.puts([])
    io.puts('a', 'b', 3, nil)
    io.puts("\u20ac", "b".encode('utf-16le'))
    io.puts('x' * 100_000)
    recursive = ['a']; recursive << recursive; io.puts(recursive)
    io.puts(Object.new.tap { |o| def o.to_ary = %w[to ary] })
    io.puts(Object.new.tap { |o| def o.to_s = 'to_s' })
    io.printf('%05d|%s', 42, :x)
    io.printf
    io.printf('%d', 'x')
    io.putc('abc')
    io.putc(65)
    io.putc("\u20ac")
    io.putc(300)
    io.putc(nil)
    io.syswrite('sys')
    io.syswrite('')
    io.syswrite(12)
    io.syswrite('x' * 100_000).positive?
    io.write('buffered'); io.flush; io.syswrite('sys')
    io.write_nonblock('text')
    io.write('before '); io.write_nonblock('text')
    io.write_nonblock('x' * 2_000_000).positive?
    io.write_nonblock('text', exception: false)
    io.flush.equal?(io)
    io.write('a'); io.flush; io.write('b')
    io.fsync
    io.fdatasync
    io.sync
    io.sync = true; io.write('a')
    io.write('a'); io.sync = true; io.write('b')
    io.write('a'); io.sync = false; io.write('b')
    io.close
    io.write('a'); io.close
    io.close; io.write('a')
    io.close; io.puts('a')
    io.close; io << 'a'
    io.close; io.syswrite('a')
    io.close; io.flush
    io.close; io.print('a')
    io.close_write
    io.close_read
    io.write('a'); io.close_write; io.closed?
    io.wait_writable.equal?(io)
    io.wait_writable(1).equal?(io)
    io.wait(IO::WRITABLE, 1)
    io.pwrite('abc', 2)
    io.pwrite('abc', -1)
    io.write('abcdef'); io.flush; io.pwrite('XY', 1)
    io.pwrite(:sym, 0)
    io.set_encoding('utf-16le'); io.write("\u20ac")
    io.set_encoding('iso-8859-1'); io.write("\u00e9")
    io.set_encoding('iso-8859-1'); io.write("\u20ac")
    io.set_encoding('iso-8859-1', undef: :replace, replace: '?'); io.write("\u20ac")
    io.set_encoding('utf-8', crlf_newline: true); io.write("a\nb\n")
    io.set_encoding('utf-8', xml: :text); io.write("a<b")
    io.binmode; io.write("\u20ac")
    io.write("\u20ac".encode('utf-16le'))
    io.external_encoding
    io.reopen('elsewhere', 'w'); io.write('there'); io.flush; File.read('elsewhere')
    io.write('a'); copy = io.dup; copy.write('b'); copy.close
    io.dup.tap { |copy| copy.write('b'); copy.close }.closed?
    io.fileno.positive?
    io.isatty
    io.pp('x') rescue $!.class
    io.write('a').frozen?
    warn_io = io; warn_io.write("a\n"); warn_io.tell rescue $!.class
    def io.write(*args) = super(*args.map { |a| "<#{a}>" }); io.puts('a', 'b')
    def io.write(*args) = super(*args.map { |a| "<#{a}>" }); io << 'a'; io.print('b'); io.putc('c'); io.printf('%d', 4)
    Class.new(SimpleDelegator).new(io).puts('delegated')
    io.write(*Array.new(2000) { |i| "#{i}," })
    io.puts(*Array.new(2000) { |i| "line #{i}" })
    10.times { |i| io.write("#{i} " * 3000) }
    $form_fiber = Fiber.current; io.write(Spoken.new, Spoken.new)
    $form_fiber = Fiber.current; io << Spoken.new; 1
    $form_fiber = Fiber.current; io.puts(Spoken.new, [Spoken.new]); 1
    $form_fiber = Fiber.current; io.print(Spoken.new); 1
    $form_fiber = Fiber.current; io.printf('%s', Spoken.new); 1
    $form_fiber = Fiber.current; io.syswrite(Spoken.new); 1
    $form_fiber = Fiber.current; io.write_nonblock(Spoken.new); 1
    $form_fiber = Fiber.current; io.write(Spoken.new); 1
FORMS

  NO_READS = <<'FORMS'
    io.read
    io.gets
    io.readpartial(1)
    io.sysread(1)
    io.eof?
    io.each_line { }
    io.getbyte
    io.close_read
FORMS

  SEEKING = <<'FORMS'
    io.write('abcdef'); io.rewind; io.read
    io.write('abcdef'); io.seek(2); io.write('X'); io.rewind; io.read
    io.write('abcdef'); io.pos
    io.write('abcdef'); io.pos = 1; io.getc
    io.write('abcdef'); io.size
    io.write('abcdef'); io.truncate(3); io.size
    io.write('abcdef'); io.rewind; io.gets; io.write('more'); io.rewind; io.read
    io.write("a\nb\n"); io.rewind; io.gets; io.puts('c'); io.rewind; io.read
    io.write('abcdef'); io.pread(3, 2)
    io.write('abcdef'); io.flush; io.pread(3, 2)
    io.write('abcdef'); io.sysseek(0)
    io.syswrite('abcdef'); io.sysseek(0); io.sysread(3)
    io.write('abcdef'); io.stat.size
    io.write('abcdef'); io.flock(File::LOCK_EX); File.size('writing')
    io.write('abcdef'); io.reopen('writing', 'r'); io.read
    io.write('abcdef'); io.eof?
    io.write('abcdef'); io.rewind; io.ungetc('x'); io.write('y'); io.rewind; io.read
    io.seek(10); io.write('x'); io.size
    io.write('a' * 20_000); io.rewind; io.read.size
FORMS

  %i[pipe socket file].each do |kind|
    group("#{kind}, buffered", WRITES, Writing, kind)
    group("#{kind}, synchronous", WRITES, Writing, kind, sync: true)
  end
  group('pipe, not for reading', NO_READS, Writing, :pipe)
  group('pipe, transcoding', WRITES, Writing, :pipe, external_encoding: 'utf-16be')
  group('file, positions', SEEKING, Writing, :file)
  group('file, positions, synchronous', SEEKING, Writing, :file, sync: true)
  group('file, positions, line ends', SEEKING, Writing, :file, crlf_newline: true)
end
