# frozen_string_literal: true

require 'pathname'
require 'tempfile'

module Forms
  FILES = <<'FORMS'
    IO.read('a')
    IO.read('a', 3)
    IO.read('a', 3, 2)
    IO.read('a', nil, 5)
    IO.read('a', 0)
    IO.read('a', 3, 1000)
    IO.read('a', -1)
    IO.read('a', 3, -1)
    IO.read('missing')
    IO.read('.')
    IO.read('a', encoding: 'iso-8859-1')
    IO.read('a', mode: 'rb')
    IO.read('b', mode: 'rt')
    IO.read('bom', encoding: 'bom|utf-8')
    IO.read('latin', external_encoding: 'iso-8859-1', internal_encoding: 'utf-8')
    IO.read('a', nonsense: 1)
    IO.read(Pathname('a'))
    IO.read(Object.new)
    IO.read("a\0b")
    IO.read
    IO.read('|echo piped')
    IO.read('|echo piped; exit 3'); $?.exitstatus
    File.read('|echo piped')
    File.read('a')
    IO.binread('a')
    IO.binread('a', 3, 2)
    IO.binread('|echo piped')
    IO.readlines('a')
    IO.readlines('a', chomp: true)
    IO.readlines('a', '')
    IO.readlines('a', nil)
    IO.readlines('a', 3)
    IO.readlines('a', 'o', 2)
    IO.readlines('a', 0)
    IO.readlines('a', encoding: 'binary')
    IO.readlines('|echo a; echo b')
    IO.foreach('a').to_a
    IO.foreach('a') { |line| @lines = [*@lines, line] }; @lines
    IO.foreach('a') { |line| break line }
    IO.foreach('a') { |line| break $_ }
    IO.foreach('a') { }
    IO.foreach('a', chomp: true).to_a
    IO.foreach('a', 'w', 3).to_a
    IO.foreach('missing') { }
    IO.foreach('missing')
    IO.foreach('a', mode: 'rb').first.encoding
    IO.foreach('|echo a; echo b').to_a
    IO.foreach('a') { raise KeyError, 'k' }
    lines = IO.foreach('a'); [lines.next, lines.next]
    File.foreach('a').with_index.to_a
    IO.write('new', 'text')
    IO.write('a', 'XX', 1)
    IO.write('new', 'text', mode: 'a'); IO.write('new', 'more', mode: 'a')
    IO.write('new', 'text', perm: 0600); File.stat('new').mode & 0777
    IO.write('new', "\u20ac", encoding: 'utf-16le')
    IO.write('new', 123)
    IO.write('missing/new', 'x')
    IO.write('|cat >new', 'piped')
    IO.write('new', 'x', -1)
    $form_fiber = Fiber.current; IO.write('new', Speaker.new)
    $form_fiber = Fiber.current; IO.read(PathSpeaker.new); $asked
    $form_fiber = Fiber.current; File.open(PathSpeaker.new) { |f| f.read }; $asked
    File.write('new', 'text')
    IO.binwrite('new', "\u20ac")
    IO.binwrite('a', 'XX', 2)
    IO.sysopen('a').tap { |fd| IO.for_fd(fd).close }.class
    IO.sysopen('missing')
    IO.sysopen('new', 'w', 0600).tap { |fd| IO.for_fd(fd).close }; File.stat('new').mode & 0777
    IO.sysopen('a', File::RDONLY).tap { |fd| IO.for_fd(fd).close }.class
    io = IO.new(IO.sysopen('a')); text = io.read; io.close; text
    IO.open(IO.sysopen('a')) { |io| io.gets }
    IO.for_fd(99)
    IO.for_fd(-1)
    File.open('a', &:read)
    File.open('a') { |f| f.gets; f.pos }
    File.open('a') { |f| break f.gets }
    File.open('new', 'w') { |f| f.puts 'x' }
    File.open('new', 'wx') { |f| f.path }
    File.open('a', 'wx') { }
    File.open('a', 'r+') { |f| f.gets; f.write('X') }
    File.open('a', 'a+') { |f| f.write('end'); f.rewind; f.read }
    File.open('a', 'w')  { }; File.size('a')
    File.open('a', 'nonsense')
    File.open('a', mode: 'r', flags: File::NOFOLLOW, &:gets)
    File.open('new', File::CREAT | File::WRONLY, 0640) { |f| f.write('x') }; File.stat('new').mode & 0777
    File.open('a', 'r:utf-8:utf-16le') { |f| f.gets }
    File.open('bom', 'r:bom|utf-8', &:read)
    File.open('b', 'r', universal_newline: true, &:read)
    File.open('new', 'w', crlf_newline: true) { |f| f.puts 'x' }
    File.open('missing')
    File.open('missing') { }
    File.open('.', 'w')
    File.open('.') { |f| f.read }
    File.open('a') { |f| f.close; f.closed? }
    File.open('a') { |f| f.write('x') }
    File.new('a').tap(&:close).path
    File.new('a', 'r', 1, 2)
    File.new('a', 'r', encoding: 'binary').read
    File.new('a').each_line.map(&:size)
    File.readlines('a', chomp: true).size
    File.open('a').then { |f| f.inspect.tap { f.close } }
    Kernel.open('a', &:read)
    open('a', 'r') { |f| f.gets }
    open('a').class
    open('new', 'w', 0600) { |f| f.write('x') }
    open('|echo piped', &:read)
    open('|cat >new', 'w') { |f| f.write('x') }
    open(Object.new.tap { |o| def o.to_open(*args) = "opened #{args}" })
    open(Object.new.tap { |o| def o.to_open = 5 }) { |v| v + 1 }
    open(Pathname('a'), &:read)
    open(Object.new)
    Pathname('a').read
    Pathname('a').each_line.to_a
    Pathname('new').write('x')
    Pathname('a').open { |f| f.gets }
    Tempfile.create('x') { |f| f.write('abc'); f.rewind; f.read }
    Tempfile.open('x') { |f| f.puts('a'); f.flush; f.open; f.read }
    Tempfile.new('x').tap { |f| f.print('a') }.close!
    Dir.each_child('.').to_a.sort
    Dir.glob('*').sort.size
    Dir.open('.') { |dir| dir.children.size }
    test(?e, 'a')
    test(?s, 'a')
    File.exist?('a')
    File.rename('a', 'c')
    File.stat('a').size
    File.truncate('a', 2)
    File.open('a') { |one| File.open('a') { |two| [one.flock(File::LOCK_EX), two.flock(File::LOCK_EX | File::LOCK_NB)] } }
    r, w = IO.pipe; w.write('x'); w.close; r.read
    IO.pipe { |r, w| w << 'x'; w.close; r.read }
    IO.pipe('utf-16le:utf-8') { |r, w| w << 'x'; w.close; [r.read, r.external_encoding] }
    IO.pipe('utf-8', universal_newline: true) { |r, w| w << "a\r\n"; w.close; r.read }
    IO.popen('echo hi', &:read)
    IO.popen(%w[echo hi]) { |io| io.gets }
    IO.popen('cat', 'r+') { |io| io.puts 'x'; io.close_write; io.read }
    IO.popen('cat', 'r+') { |io| io.write('y' * 200_000); io.close_write; io.read.size } if false
    IO.popen('cat > new', 'w') { |io| io.write('x' * 100_000) }; File.size('new')
    IO.popen('exit 3') { }; $?.exitstatus
    IO.popen({ 'X' => 'y' }, 'echo $X', &:read)
    IO.popen('echo err >&2', err: %i[child out], &:read)
    io = IO.popen('echo hi'); [io.pid.class, io.read, io.close, $?.class]
    IO.popen('missing-command') rescue $!.class
    IO.try_convert(File.open('a')).class
    File.open('a') { |f| IO.select([f], nil, nil, 0)&.first&.size }
    $stdout.fileno
    STDIN.fileno
    STDERR.sync
    File.open('a') { |f| f.each_line.lazy.map(&:chomp).to_a }
    File.open('a') { |f| f.each_char.with_index.to_a.size }
    File.open('big') { |f| f.read(100_000).size }
    File.open('big') { |f| f.readpartial(100_000).size }
    File.open('big') { |f| f.sysread(150_000).size }
    File.open('big') { |f| f.each_line.count }
    File.open('big') { |f| f.each_byte.count }
    class Upcase < File; def read(*) = super.upcase; end; Upcase.open('a', &:read)
    class Upcase2 < File; def write(*texts) = super(*texts.map(&:upcase)); end; Upcase2.open('new', 'w') { |f| f.puts('a'); f.print('b'); f << 'c' }
FORMS

  COPIES = <<'FORMS'
    IO.copy_stream('a', 'new')
    IO.copy_stream('a', 'new', 5)
    IO.copy_stream('a', 'new', 5, 2)
    IO.copy_stream('a', 'new', nil, 2)
    IO.copy_stream('a', 'new', 0)
    IO.copy_stream('a', 'new', -1)
    IO.copy_stream('a', 'new', 5, -1)
    IO.copy_stream('a', 'new', 5, 1000)
    IO.copy_stream('missing', 'new')
    IO.copy_stream('a', 'missing/new')
    IO.copy_stream('a', '.')
    begin; IO.copy_stream('.', 'new'); rescue => e; e.class; end
    IO.copy_stream('a')
    IO.copy_stream('big', 'new')
    IO.copy_stream(Pathname('a'), Pathname('new'))
    IO.copy_stream(Object.new, 'new')
    IO.copy_stream('a', Object.new)
    File.open('a') { |f| f.gets; [IO.copy_stream(f, 'new'), f.pos] }
    File.open('a') { |f| f.gets; [IO.copy_stream(f, 'new', 3), f.pos, f.read] }
    File.open('a') { |f| f.gets; [IO.copy_stream(f, 'new', 3, 1), f.pos, f.read] }
    File.open('a') { |f| f.ungetc('x'); [IO.copy_stream(f, 'new'), f.pos] }
    File.open('a') { |f| f.getc; f.ungetbyte('zz'); [IO.copy_stream(f, 'new', 3), f.read] }
    File.open('latin', 'r:iso-8859-1:utf-8') { |f| IO.copy_stream(f, 'new') }
    File.open('latin', 'r:iso-8859-1:utf-8') { |f| f.getc; IO.copy_stream(f, 'new') }
    File.open('b', 'rt') { |f| IO.copy_stream(f, 'new') }
    File.open('new', 'w') { |f| f.write('before'); [IO.copy_stream('a', f), f.pos, f.write('after')] }
    File.open('new', 'w:utf-16le') { |f| [IO.copy_stream('a', f), f.pos] }
    File.open('b', 'a') { |f| [IO.copy_stream('a', f), f.pos] }
    File.open('b', 'r+') { |f| f.gets; [IO.copy_stream('a', f), f.pos] }
    File.open('a') { |f| IO.copy_stream(f, f) }
    File.open('a', 'w') { |f| IO.copy_stream(f, 'new') }
    File.open('a') { |f| IO.copy_stream('b', f) }
    File.open('a') { |f| f.close; IO.copy_stream(f, 'new') }
    File.open('new', 'w') { |f| f.close; IO.copy_stream('a', f) }
    IO.copy_stream(fed('ab', 'cd', 'e'), 'new')
    IO.copy_stream(fed('ab', 'cd', 'e'), 'new', 3)
    r = fed('ab', 'cd', 'e'); [IO.copy_stream(r, 'new', 3), r.read]
    begin; IO.copy_stream(fed('ab', 'cd'), 'new', 3, 1); rescue => e; e.class; end
    r = fed("a\nb", "c\n"); r.gets; [IO.copy_stream(r, 'new'), r.eof?]
    r = fed("abc", "def"); r.ungetbyte('xy'); [IO.copy_stream(r, 'new', 4), r.read]
    wrote { |w| IO.copy_stream('a', w) }
    wrote { |w| IO.copy_stream('big', w) }
    wrote { |w| w.write('before'); IO.copy_stream('a', w); w.write('after') }
    wrote { |w| IO.copy_stream(fed('ab', 'cd'), w) }
    wrote { |w| IO.copy_stream(fed('ab', 'cd'), w, 3) }
    wrote { |w| IO.copy_stream('a', w, 4, 2) }
    wrote { |w| File.open('big') { |f| f.gets; [IO.copy_stream(f, w, 150_000), f.pos] } }
    wrote { |w| IO.copy_stream(StringIO.new('text' * 50_000), w) }
    IO.copy_stream(StringIO.new('text'), 'new')
    IO.copy_stream(StringIO.new('text'), 'new', 2)
    IO.copy_stream(StringIO.new('text'), 'new', 2, 1)
    s = StringIO.new('text'); s.read(1); [IO.copy_stream(s, t = StringIO.new), t.string, s.pos]
    [IO.copy_stream('a', t = StringIO.new), t.string]
    [IO.copy_stream('a', t = StringIO.new, 5, 2), t.string]
    [IO.copy_stream('big', t = StringIO.new), t.string.size]
    [IO.copy_stream(fed('ab', 'cd'), t = StringIO.new), t.string]
    [IO.copy_stream(fed('ab', 'cd'), t = StringIO.new, 3), t.string]
    [IO.copy_stream(Source.new, t = StringIO.new), t.string, $calls]
    [IO.copy_stream(PartialSource.new, t = StringIO.new), t.string, $calls]
    [IO.copy_stream(PartialSource.new, 'new', 5), $calls]
    [IO.copy_stream(Source.new, 'new', 5), $calls]
    [IO.copy_stream(Source.new, 'new', 5, 1), $calls]
    [IO.copy_stream('a', Sink.new), $calls]
    [IO.copy_stream('a', Sink.new, 3), $calls]
    [IO.copy_stream(fed('ab', 'cd'), Sink.new), $calls]
    [IO.copy_stream('a', HalfSink.new), $calls]
    [IO.copy_stream(Source.new, Sink.new), $calls]
    [IO.copy_stream(Raising.new, 'new'), $calls]
    [IO.copy_stream('a', Raising.new), $calls]
    $form_fiber = Fiber.current; IO.copy_stream(FiberSource.new, 'new')
    $form_fiber = Fiber.current; IO.copy_stream('a', FiberSink.new); $asked
    wrote { |w| IO.copy_stream(ARGFLike.new, w) }
    a, b = UNIXSocket.pair; a.write('socket'); a.close; [IO.copy_stream(b, 'new'), b.close]
    a, b = UNIXSocket.pair; [IO.copy_stream('a', a), a.close, b.read]
    a, b = UNIXSocket.pair; a.write('socket'); c, d = UNIXSocket.pair; [IO.copy_stream(b, c, 6), c.close, d.read]
    File.open('new', 'w+') { |f| f.write('x'); IO.copy_stream('a', f); f.rewind; f.read }
    Tempfile.create { |f| [IO.copy_stream('a', f), f.rewind, f.read] }
    t = Tempfile.new; [IO.copy_stream('a', t), t.rewind, t.read, t.close!]
    IO.copy_stream(File.open('a'), SimpleDelegator.new(File.open('new', 'w')))
    IO.copy_stream('/dev/null', 'new')
    IO.copy_stream('/dev/zero', 'new', 100)
    IO.copy_stream('a', '/dev/null')
    wrote { |w| IO.copy_stream('/dev/zero', w, 100) }
    r, w = IO.pipe; r.close; begin; IO.copy_stream('a', w); rescue => e; e.class; end
FORMS

  class Speaker
    def to_s = "spoken #{Fiber.current.equal?($form_fiber)}"
  end

  class PathSpeaker
    def to_path
      $asked = Fiber.current.equal?($form_fiber)
      'a'
    end
  end

  class Source
    def initialize
      $calls = []
      @parts = %w[ab cde f]
    end

    def read(length, buffer = +'')
      $calls << [:read, length]
      part = @parts.shift or return
      buffer.replace(part[0, length])
    end
  end

  class PartialSource < Source
    def readpartial(length, buffer = +'')
      $calls << [:readpartial, length]
      part = @parts.shift or raise EOFError
      buffer.replace(part[0, length])
    end
  end

  class Sink
    def initialize = $calls = []

    def write(text)
      $calls << [:write, text.dup]
      text.bytesize
    end
  end

  class HalfSink < Sink
    def write(text)
      super
      [text.bytesize, 3].min
    end
  end

  class Raising < Sink
    def read(*) = raise(KeyError, 'read')
    def write(*) = raise(KeyError, 'write')
  end

  class FiberSource < Source
    def read(*) = super && "#{Fiber.current.equal?($form_fiber)}"
  end

  class FiberSink < Sink
    def write(text)
      $asked = Fiber.current.equal?($form_fiber)
      super
    end
  end

  class ARGFLike
    def readpartial(*) = @read ? raise(EOFError) : (@read = 'once')
  end

  group('files', FILES, Folder)
  group('copy_stream', COPIES, Folder)
end
