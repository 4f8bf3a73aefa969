# frozen_string_literal: true

# A process that does nothing but load it, less one that loads nothing.
Bench.row 'startup' do
  title "require 'polyphony', beyond bare Ruby"
  metric :ms, 'ms', value: 60
  rounds_of 3
  no_warm_up

  limit('bare Ruby, all of it', 10) { |n| { ms: start(n, '--disable-gems', '1') } }
  polyphony(10) { |n| { ms: start(n, '--disable-gems', "require 'polyphony'") - start(n, '--disable-gems', '1') } }
  %w[polyphony-1.6-io_uring polyphony-1.6-libev async eventmachine].each do |name|
    peer(name, 5) { |n| { ms: start(n, '--enable-gems', "require '#{name[/[a-z]+/]}'") - start(n, '--enable-gems', '1') } }
  end
end
