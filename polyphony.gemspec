# frozen_string_literal: true

require_relative 'lib/polyphony/version'

Gem::Specification.new do |spec|
  spec.name        = 'polyphony'
  spec.version     = Polyphony::VERSION
  spec.summary     = 'Fibers that wait together: structured concurrency on io_uring and libev'
  spec.description = <<~TEXT
    Polyphony runs many fibers on one thread and switches between them whenever one waits, for a
    socket, a timer, a process or another fiber. Plain blocking Ruby code keeps its shape and its
    meaning. A C extension talks to the kernel through io_uring or libev, chosen at run time.
  TEXT
  spec.authors     = ['The Polyphony authors']
  spec.license     = 'MIT'
  spec.required_ruby_version = '>= 3.1'

  # By folder rather than from git: the gem builds from a clone and from a tarball alike.
  spec.files = Dir.chdir(__dir__) do
    Dir['ext/**/*.{c,h,def,rb}', 'ext/**/depend', 'lib/**/*.{rb,lua,html}', 'sig/**/*.rbs', 'sig/manifest.yaml', 'exe/*',
        'examples/**/*.{rb,ru}', 'docs/**/*.{md,png,svg}', 'docs/yard.rb', 'examples/README.md', 'README.md', 'CHANGELOG.md', 'CONTRIBUTING.md', 'SECURITY.md', 'LICENSE', '.yardopts']
      .select { |path| File.file?(path) }.sort
  end
  spec.bindir        = 'exe'
  spec.executables   = ['polyphony']
  spec.extensions    = ['ext/polyphony/extconf.rb', 'ext/polyphony_http/extconf.rb']
  spec.require_paths = ['lib']

  spec.metadata = { 'rubygems_mfa_required' => 'true' }
end
