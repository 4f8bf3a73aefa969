# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/hostile'

# Line 45 of the list, with links and devices in the folder.
class TestHostileStatic < Polyphony::HostileTest
  on_every_driver
  server :files

  def setup
    Dir.chdir(target.root) do
      next if File.exist?('a.txt')

      File.write('a.txt', "hello\n" * 1_000)
      Dir.mkdir('folder')
      File.write('folder/b.txt', 'b')
      File.write('../outside.txt', 'outside')
      File.symlink('../outside.txt', 'link.txt')
      File.symlink('/etc', 'etc')
      File.symlink('loop', 'loop')
      File.symlink('a.txt', 'inside.txt')
      File.mkfifo('fifo')
      UNIXServer.new('socket').close
      File.write('secret', 'x')
      File.chmod(0, 'secret')
      File.unlink('secret') if ::Process.uid.zero? # who may read everything
    end
  end

  lines 45

  def test_links_that_lead_out_are_not_followed
    %w[link.txt etc/passwd etc/hostname loop].each { |name| assert_equal 404, target.ask("/files/#{name}").status, name }
  end

  def test_links_that_stay_inside_are_followed
    assert_equal 200, target.ask('/files/inside.txt').status
  end

  # A read from a FIFO would wait for ever.
  def test_what_is_no_file_or_not_for_us_is_not_found
    %w[fifo socket folder folder/ secret].each { |name| assert_equal 404, target.ask("/files/#{name}").status, name }
  end

  def test_a_way_out_that_comes_back_in_is_none
    ["/files/../root/a.txt", "/files/%2e%2e/root/a.txt", "/files/folder/../../root/a.txt"].each do |path|
      assert_includes [400, 404], target.ask(path).status, path
    end
  end

  def test_a_file_that_becomes_shorter_is_no_whole_answer
    path = File.join(target.root, 'shrinks.txt')
    File.write(path, 'x' * (64 << 20))
    wire = Polyphony::HTTP::Check::Target.new(target.url).connect
    track(wire.socket)
    wire.send("GET /files/shrinks.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", mute: true)
    wire.read(patient(5)) { wire.received.bytesize > 1_000 }
    File.truncate(path, 1_000)
    wire.read(patient(20))
    assert_predicate wire, :closed?
    refute_predicate Polyphony::HTTP::Check::Answers.new(wire.received, ended: true).finals.first, :whole
  end
end
