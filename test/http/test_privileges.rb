# frozen_string_literal: true

require_relative '../test_helper'
require 'polyphony/http'
require 'polyphony/http/launcher'

# Started by root, the server gives what it has made to the user that it becomes. That user may own the folder, and have put links
# there before: what they point to is nobody's to give.
class TestPrivileges < Polyphony::TestCase
  on_every_driver

  SECRET = "root's\n"
  # Becomes nobody, and tells what it may still do.
  DROP = <<~'RUBY'
    require 'polyphony'
    require 'polyphony/http'
    require 'polyphony/http/launcher'
    log, path, secret = ARGV
    file = Polyphony::HTTP::LogFile.new(log)
    Polyphony::HTTP.const_get(:Privileges).new('nobody', nil).drop([file], [path])
    puts [File.stat(log).uid == Process.uid, File.lstat(path).uid == Process.uid, Process.groups.include?(0), File.stat(secret).uid].inspect
  RUBY

  def setup
    super
    skip 'only root has privileges to drop' unless Process.uid.zero?
    @folder = Dir.mktmpdir('privileges')
    File.chmod(0o755, @folder)
    @secret = "#{@folder}/secret"
    File.write(@secret, SECRET, perm: 0o600)
  end

  def teardown
    FileUtils.rm_rf(@folder) if @folder
    super
  end

  def drop(log, path)
    out, err, = run_ruby(DROP, log, path, @secret)
    assert_empty err
    out
  end

  def test_what_it_has_made_becomes_the_users
    File.write("#{@folder}/pid", '')
    assert_equal "[true, true, false, 0]\n", drop("#{@folder}/log", "#{@folder}/pid")
  end

  def test_links_do_not_lead_to_what_is_roots
    File.symlink(@secret, "#{@folder}/pid")
    assert_equal "[true, true, false, 0]\n", drop("#{@folder}/log", "#{@folder}/pid")
  end

  def test_a_log_that_is_a_link_stays_whose_it_is
    File.symlink(@secret, "#{@folder}/log")
    File.write("#{@folder}/pid", '')
    assert_equal "[false, true, false, 0]\n", drop("#{@folder}/log", "#{@folder}/pid")
  end

  def test_a_log_with_a_second_name_stays_whose_it_is
    File.link(@secret, "#{@folder}/log")
    File.write("#{@folder}/pid", '')
    assert_equal "[false, true, false, 0]\n", drop("#{@folder}/log", "#{@folder}/pid")
  end

  def test_a_pidfile_is_not_written_through_a_link
    path = "#{@folder}/pid"
    File.symlink(@secret, "#{path}.#{Process.pid}")
    Polyphony::HTTP.const_get(:Pidfile).new(path).write
    assert_equal ["#{Process.pid}\n", SECRET], [File.read(path), File.read(@secret)]
    refute_path_exists "#{path}.#{Process.pid}"
  end
end
