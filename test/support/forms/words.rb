# frozen_string_literal: true

module Forms
  KERNEL = <<'FORMS'
    gets
    [gets, $_, $.]
    gets(chomp: true)
    gets('')
    gets(3)
    gets(nil)
    gets('o', 2)
    gets; gets; gets
    gets(nil); gets
    Kernel.gets
    Object.new.send(:gets)
    readline
    readline(chomp: true)
    gets(nil); readline
    Kernel.readline
    readlines
    readlines(chomp: true)
    readlines('')
    Kernel.readlines
    $stdin.gets
    $stdin.read
    $stdin.each_line.to_a
    STDIN.equal?($stdin)
    $stdin = StringIO.new("from a string\nmore"); [gets, $stdin.read]
    $stdin = StringIO.new("a\nb"); readlines
    while (line = gets) do (@lines ||= []) << line end; @lines
    @lines = []; (@lines << $_) while gets; @lines
    until gets.nil? do (@lines ||= []) << $_.size end; @lines
    gets; $_ = 'mine'; [$_, gets, $_]
    ARGV << 'a' << 'b'; readlines
    ARGV << 'a'; [gets, $., $FILENAME]
    ARGV << 'missing'; gets
    printed { print 'a', 'b' }
    printed { $_ = 'line'; print }
    printed { puts 'a', ['b'] }
    printed { p 1, 'x' }
    printed { p }
    printed { p 'one' }
    printed { pp({ a: 1 }) }
    printed { printf('%03d', 5) }
    printed { printf($stdout, '%03d', 5) }
    printed { putc 'x' }
    printed { putc 65 }
    printed { display }.first
    printed { 5.display }
    printed { $stdout << 'a' << 1; nil }
    printed { $stdout.write('a', 'b') }
    printed { puts 'x' * 100_000 }
    printed { Kernel.puts 'a'; Kernel.print 'b'; Kernel.p 'c' }
    printed { warn 'not here' }.first
    e = StringIO.new; $stderr = e; warn('a', 'b'); e.string
    e = StringIO.new; $stdout = e; puts 'a'; p 1; print 'x'; $stdout = STDOUT; e.string
    o = Object.new; def o.write(*a) = (@w ||= []) << a; def o.w = @w; $stdout = o; puts 'a'; print 'b', 'c'; p 1; putc 'x'; $stdout = STDOUT; o.w
    $stdout = 5
    $stdin = 5; $stdin
    `echo back`
    `echo back; exit 2`; $?.exitstatus
    system('exit 4'); $?.exitstatus
    printed { $stdout.sync = true; 3.times { |i| puts i } }
FORMS

  ARGF_FORMS = <<'FORMS'
    ARGF.read
    ARGF.read(4)
    ARGF.read(4, buffer = +'x'); buffer
    ARGF.read(0)
    ARGF.readpartial(3)
    ARGF.readpartial(0)
    loop { (@parts ||= []) << ARGF.readpartial(5) } rescue @parts
    ARGF.read; ARGF.readpartial(1)
    ARGF.read; ARGF.read
    ARGF.read; ARGF.read(1)
    ARGF.read_nonblock(3)
    ARGF.gets
    [ARGF.gets, $_, $., ARGF.lineno]
    ARGF.gets('')
    ARGF.gets(3)
    ARGF.gets(nil)
    ARGF.gets(nil); ARGF.gets(nil)
    ARGF.gets(chomp: true)
    ARGF.readline
    ARGF.readline(chomp: true)
    ARGF.read; ARGF.readline
    ARGF.readlines
    ARGF.readlines(chomp: true)
    ARGF.readlines('')
    ARGF.to_a
    ARGF.each_line.to_a
    ARGF.each_line { |line| break line }
    ARGF.each_line { |line| (@seen ||= []) << [line, ARGF.filename, ARGF.lineno, ARGF.file.lineno] }; @seen
    ARGF.each_line { |line| ARGF.skip if line.start_with?('one'); (@seen ||= []) << line }; @seen
    ARGF.each_line(chomp: true).to_a
    ARGF.each_line('').to_a
    ARGF.each_line(4).to_a
    ARGF.each.next
    ARGF.map(&:size)
    ARGF.each_with_index.to_a.last
    ARGF.each_byte.first(3)
    ARGF.each_byte.to_a.size
    ARGF.each_char.first(3)
    ARGF.each_char.to_a.size
    ARGF.each_codepoint.to_a.size
    ARGF.getc
    ARGF.getbyte
    ARGF.readchar
    ARGF.readbyte
    ARGF.read; ARGF.getc
    ARGF.read; ARGF.getbyte
    ARGF.read; ARGF.readchar
    ARGF.read; ARGF.readbyte
    ARGF.eof?
    ARGF.gets; ARGF.eof?
    ARGF.read; ARGF.eof?
    ARGF.gets; ARGF.pos
    ARGF.gets; ARGF.rewind; ARGF.gets
    ARGF.gets; ARGF.seek(2); ARGF.gets
    ARGF.gets; ARGF.pos = 1; ARGF.gets
    ARGF.filename
    ARGF.path
    ARGF.file.class
    ARGF.argv
    ARGF.to_s
    ARGF.inspect
    ARGF.lineno = 5; ARGF.gets; [ARGF.lineno, $.]
    ARGF.skip.equal?(ARGF)
    ARGF.gets; ARGF.skip; ARGF.gets
    ARGF.gets; ARGF.close; ARGF.gets
    ARGF.close.equal?(ARGF)
    ARGF.closed?
    ARGF.read; ARGF.closed?
    ARGF.binmode.equal?(ARGF)
    ARGF.binmode; ARGF.gets
    ARGF.binmode?
    ARGF.external_encoding
    ARGF.internal_encoding
    ARGF.set_encoding('iso-8859-1:utf-8'); ARGF.gets; ARGF.gets
    ARGF.fileno.class
    ARGF.to_io.class
    ARGF.to_write_io
    ARGF.write('x')
    $<.gets
    $<.equal?(ARGF)
    $FILENAME
    ARGF.each_line.with_index.first
    ARGF.lazy.map(&:chomp).first(2)
    IO.copy_stream(ARGF, out = StringIO.new); out.string
    IO.copy_stream(ARGF, 'new')
    gets; ARGF.gets; $.
    gets(nil); [gets, $_]
    readlines.size
FORMS

  # The files are ARGV.
  class Arguments < Words
    def initialize(*files)
      @files = files
    end

    def set_up
      super
      ARGV.replace(@files)
    end
  end

  INPLACE = <<'FORMS'
    ARGF.inplace_mode = '.bak'; ARGF.each_line { |line| print line.upcase }; ARGF.inplace_mode = nil; $stdout.equal?(STDOUT)
    ARGF.inplace_mode = ''; while gets do puts $_.chomp.reverse end; ARGF.inplace_mode = nil; $stdout = STDOUT; 1
    ARGF.inplace_mode = '.bak'; ARGF.gets; ARGF.write('first'); ARGF.read; ARGF.inplace_mode = nil; $stdout = STDOUT; 1
FORMS

  group('words', KERNEL, Words)
  group('ARGF from standard input', ARGF_FORMS, Arguments)
  group('ARGF from a file', ARGF_FORMS, Arguments, 'a')
  group('ARGF from files', ARGF_FORMS, Arguments, 'a', 'empty', 'b')
  group('ARGF from a file and standard input', ARGF_FORMS, Arguments, 'a', '-')
  group('ARGF from a file that is missing', ARGF_FORMS, Arguments, 'missing', 'a')
  group('ARGF in place', INPLACE, Arguments, 'a', 'b')
end
