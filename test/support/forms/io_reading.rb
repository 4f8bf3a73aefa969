# frozen_string_literal: true

module Forms
  BYTES = <<'FORMS'
    io.read
    io.read(3)
    io.read(0)
    io.read(1000)
    io.read(nil)
    [io.read(4), io.read(4), io.read]
    io.read(5, buffer = +'x' * 20)
    buffer = +'old'; [io.read(5, buffer).equal?(buffer), buffer]
    buffer = +'old'; io.read; [io.read(5, buffer), buffer]
    buffer = +'old'; io.read; [io.read(nil, buffer), buffer]
    io.read(5, 'frozen'.freeze)
    io.read(-1)
    io.read('x')
    io.read(1, 2, 3, 4, 5)
    io.read(2, Object.new)
    io.read; io.read
    io.read; io.read(1)
    io.read; io.read(0)
    io.readpartial(3)
    io.readpartial(0)
    [io.readpartial(1), io.readpartial(1), io.readpartial(1)]
    io.readpartial(-1)
    io.readpartial(nil)
    io.readpartial
    io.readpartial(2, buffer = +'longer than it')
    buffer = +"\u20ac"; io.readpartial(2, buffer); [buffer, buffer.encoding]
    io.readpartial(2, 'frozen'.freeze)
    io.readpartial(2, nil)
    io.readpartial(2, 3)
    io.read; io.readpartial(1)
    io.read; buffer = +'old'; begin; io.readpartial(1, buffer); rescue EOFError; buffer; end
    io.gets; io.readpartial(100)
    io.ungetbyte('ab'); io.readpartial(1)
    io.ungetbyte('ab'); io.readpartial(100)
    io.ungetbyte(0x1234); io.readpartial(1)
    io.ungetbyte(nil); io.getbyte
    io.ungetbyte('xyz'); io.read(6)
    io.ungetc("\u20ac"); io.read(5)
    io.sysread(2)
    io.sysread(0)
    io.sysread(-1)
    buffer = +'old'; [io.sysread(2, buffer).equal?(buffer), buffer]
    io.sysread(2, 'frozen'.freeze)
    io.gets; io.sysread(3)
    io.ungetbyte('a'); io.sysread(1)
    io.read; io.sysread(1)
    io.read; buffer = +'old'; begin; io.sysread(1, buffer); rescue EOFError; buffer; end
    [io.getbyte, io.getbyte, io.getbyte]
    io.read; io.getbyte
    io.readbyte
    io.read; io.readbyte
    io.each_byte.first(4)
    io.each_byte { |byte| break byte }
    io.each_byte.to_a.size
    io.each_byte { }.equal?(io)
    io.each_byte
    io.eof?
    io.eof
    io.read; io.eof?
    io.gets; io.eof?
    io.getbyte; io.wait_readable.equal?(io)
    io.wait_readable(5).equal?(io)
    io.wait(5).equal?(io)
    io.wait(IO::READABLE, 5)
    io.wait(5, :read).equal?(io)
    io.gets; io.wait_readable.equal?(io)
    io.ready?
    io.gets; io.nread
    io.write('x')
    io.puts
    io.close_read
    io.close_write
    io.close; io.read
    io.close; io.gets
    io.close; io.readpartial(1)
    io.close; io.sysread(1)
    io.close; io.getbyte
    io.close; io.eof?
    io.close; io.each_line { }
    io.close; io.wait_readable
    io.close; io.close
    io.fileno.positive?
    io.dup.tap { |copy| @text = copy.read; copy.close }; @text
    copy = io.clone; text = copy.gets; copy.close; text
    duplicate = IO.for_fd(io.fileno, autoclose: false); [duplicate.read(4), duplicate.autoclose?]
    io.isatty
    io.sync
    io.fsync
    io.external_encoding
    io.internal_encoding
    io.binmode?
    io.read.force_encoding('BINARY').size
    io.autoclose?
    io.close_on_exec?
    io.each_line.with_index.map { |line, i| [i, line] }
    Enumerator.new { |y| io.each_line { |line| y << line } }.next
    lines = io.each_line; [lines.next, lines.peek, lines.next]
    bytes = io.each_byte; [bytes.next, bytes.next]
    io.each_line.lazy.map(&:size).first(2)
    SimpleDelegator.new(io).gets
    SimpleDelegator.new(io).each_line.to_a
    IO.instance_method(:gets).bind_call(io)
    io.method(:read).call(3)
    io.public_send(:read, 3)
    io.then(&:gets)
    [io].map(&:read)
    def io.read(*) = "over #{super}"; io.read(2)
    io.singleton_class.include(Module.new { def gets(*) = super }); io.gets
    io.pathconf(0)
FORMS

  CHARACTERS = <<'FORMS'
    io.read
    io.gets
    io.gets; io.gets; io.gets
    io.gets(nil)
    io.gets('')
    io.gets(''); io.gets('')
    io.gets('ll')
    io.gets('o', 3)
    io.gets(4)
    io.gets(0)
    io.gets(-1)
    io.gets(nil, 7)
    io.gets('', 3)
    io.gets(chomp: true)
    io.gets; io.gets(chomp: true)
    io.gets('', chomp: true)
    io.gets('l', chomp: true)
    io.gets(3, chomp: true)
    io.gets(nil, chomp: true)
    io.gets("\u20ac")
    io.gets(1, 2, 3)
    io.gets(Object.new)
    io.gets('o', Object.new)
    io.gets(chomp: 1, other: 2)
    separator = Object.new; def separator.to_str = 'w'; io.gets(separator)
    limit = Object.new; def limit.to_int = 2; io.gets(limit)
    io.gets; $_ = 'mine'; $_
    io.read; io.gets
    io.read; io.gets(''); $_
    io.readline
    io.readline('w')
    io.readline(2)
    io.readline(chomp: true)
    io.read; io.readline
    io.readlines
    io.readlines(nil)
    io.readlines('')
    io.readlines('l')
    io.readlines(5)
    io.readlines(chomp: true)
    io.readlines('', chomp: true)
    io.readlines('o', 2, chomp: true)
    io.readlines(0)
    io.to_a
    io.each_line.to_a
    io.each_line(chomp: true).to_a
    io.each_line('').to_a
    io.each_line('l', 3).to_a
    io.each_line(4).to_a
    io.each_line(0) { }
    io.each_line(nil).to_a
    io.each(3).map(&:size)
    io.each.size
    io.each_line { |line| break line }
    io.each_line { |line| break $. }
    io.each_line { |line| next }.equal?(io)
    io.each_line { |line| raise KeyError, line }
    io.each_line { |line| io.lineno = 7 }; io.lineno
    catch(:out) { io.each_line { |line| throw :out, line } }
    io.each_line.next
    io.inject(0) { |sum, line| sum + line.size }
    io.map(&:chomp)
    io.first
    io.first(2)
    io.each_with_index.to_a
    io.each_slice(2).to_a
    io.include?("last")
    io.sort
    io.lineno = 10; io.gets; io.lineno
    io.gets; io.lineno
    $. = 5; io.gets; $.
    io.gets; $.
    io.each_line { }; $.
    io.getc
    [io.getc, io.getc, io.getc]
    io.read; io.getc
    io.readchar
    io.read; io.readchar
    io.each_char.first(9)
    io.each_char { |char| break char }
    io.each_char { }.equal?(io)
    io.each_codepoint.first(9)
    io.each_codepoint.to_a
    io.each_char.to_a.join
    io.ungetc('x'); io.getc
    io.ungetc("\u20ac"); [io.getc, io.getc]
    io.ungetc('xyz'); io.gets
    io.ungetc(0x20ac); io.getc
    io.ungetc(nil); io.getc
    io.getc; io.ungetc('A'); io.read
    io.getc; io.getbyte
    io.getc; io.read(3)
    io.getc; io.ungetbyte(0x41); io.getc
    io.gets; io.ungetc("x\ny"); [io.gets, io.gets]
    io.gets; io.getc; io.gets
    io.getc; io.sysread(1)
    io.getc; io.readpartial(1)
    io.getc; io.eof?
    io.eof?; io.getc
    [io.gets, io.external_encoding, io.internal_encoding]
    io.set_encoding('binary'); io.gets
    io.set_encoding('utf-8:iso-8859-1'); io.gets
    io.set_encoding('iso-8859-1', 'utf-8'); io.gets
    io.set_encoding(nil, nil); io.gets
    io.gets; io.set_encoding('us-ascii'); io.gets
    io.binmode; io.gets
    io.binmode; io.read
    io.set_encoding_by_bom
    io.each_line(chomp: true) { |line| @lines = [*@lines, line] }; @lines
    Kernel.instance_method(:instance_variable_get).bind_call(io, :@x)
FORMS

  POSITIONS = <<'FORMS'
    io.pos
    io.gets; io.pos
    io.getc; io.pos
    io.pos = 3; io.read
    io.seek(4); io.gets
    io.seek(-4, IO::SEEK_END); io.read
    io.gets; io.seek(2, IO::SEEK_CUR); io.read
    io.seek(2, :CUR); io.read
    io.seek(-1)
    io.gets; io.rewind; [io.lineno, io.gets]
    io.ungetc('x'); io.pos
    io.getc; io.ungetc('ab'); io.pos
    io.sysseek(3)
    io.sysseek(3); io.sysread(2)
    io.gets; io.sysseek(3)
    io.pread(4, 2)
    io.pread(4, 2, buffer = +'old'); buffer
    io.pread(0, 100)
    io.pread(4, 1000)
    io.pread(-1, 0)
    io.pread(4, -1)
    io.pread(4, 0, 'frozen'.freeze)
    io.pread(4)
    io.gets; [io.pread(3, 0), io.gets]
    io.read_nonblock(4)
    io.read; io.read_nonblock(4)
    io.read; io.read_nonblock(4, exception: false)
    io.size
    io.stat.size
    io.lstat.size
    io.path
    io.to_path
    io.inspect
    io.advise(:sequential)
    io.advise(:nonsense)
    io.eof?; io.pos
    io.reopen('reading', 'r'); io.gets
    io.gets; io.reopen(File.open('reading')); io.gets
    io.flock(File::LOCK_SH)
    io.flock(File::LOCK_EX | File::LOCK_NB)
    io.flock(File::LOCK_UN)
    io.flock(77)
    io.chmod(0600)
    io.truncate(3)
    io.atime.class
    io.fdatasync
    io.ioctl(0x541B, size = [0].pack('l')); size.unpack1('l')
    io.fcntl(1) & 1
    IO.copy_stream(io, out = StringIO.new); out.string
    IO.copy_stream(io, out = StringIO.new, 3); [out.string, io.pos]
    IO.copy_stream(io, out = StringIO.new, 3, 2); [out.string, io.pos]
FORMS

  %i[pipe socket file].each { |kind| group("#{kind} by bytes", BYTES, Reading, kind) }
  %i[pipe file].each do |kind|
    group("#{kind} by characters", CHARACTERS, Reading, kind)
    group("#{kind} transcoded", CHARACTERS, Reading, kind, 'r:iso-8859-1:utf-8')
  end
  UTF_16 = Reading::TEXT.encode('utf-16le')
  BROKEN = "ok\nb\u20acd\nc\xFFd"
  group('pipe binary', CHARACTERS, Reading, :pipe, 'rb')
  group('pipe utf-16', CHARACTERS, Reading, :pipe, 'r:utf-16le:utf-8', text: UTF_16)
  group('pipe utf-16 as it is', CHARACTERS, Reading, :pipe, 'rb:utf-16le', text: UTF_16)
  group('pipe invalid', CHARACTERS, Reading, :pipe, 'r:utf-8:iso-8859-1', text: BROKEN)
  group('pipe replacing', CHARACTERS, Reading, :pipe, 'r:utf-8:iso-8859-1', text: BROKEN, undef: :replace,
                                                                           invalid: :replace, replace: '?')
  group('pipe universal newline', CHARACTERS, Reading, :pipe, 'r:utf-8', universal_newline: true)
  group('pipe empty', CHARACTERS, Reading, :pipe, text: '')
  group('file text mode', CHARACTERS, Reading, :file, 'rt')
  group('file with a BOM', CHARACTERS, Reading, :file, 'r:bom|utf-8', text: "\uFEFF#{Reading::TEXT}")
  group('file with a BOM of UTF-16', CHARACTERS, Reading, :file, 'rb:bom|utf-8', text: "\uFEFF#{Reading::TEXT}".encode('utf-16le'))
  group('file binary with a BOM', POSITIONS, Reading, :file, 'rb:bom|utf-8', text: "\uFEFF#{Reading::TEXT}")
  group('file positions', POSITIONS, Reading, :file)
  group('file positions, text mode', POSITIONS, Reading, :file, 'rt')
  group('file positions, for writing too', POSITIONS, Reading, :file, 'r+')
end
