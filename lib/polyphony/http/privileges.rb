# frozen_string_literal: true

require 'etc'

module Polyphony
  module HTTP
    # Becoming a user who may do less.
    # @!visibility private
    class Privileges
      # @param user [String, nil]
      # @param group [String, nil] nil: the user's
      # @raise [ConfigError] if there is none of that name
      def initialize(user, group)
        @user = user && Etc.getpwnam(user.to_s)
        @gid = group ? Etc.getgrnam(group.to_s).gid : @user&.gid
      rescue ::ArgumentError => e
        raise ConfigError, "cannot become #{[user, group].compact.join(':')}: #{e.message}"
      end

      # @return [Boolean] whether there is something to do
      def any?
        (@user && ::Process.euid != @user.uid) || (@gid && ::Process.egid != @gid) || false
      end

      # Links stay whose they are: who owns a folder may have put one there that leads to what is root's.
      # @param files [Array<LogFile>] that are to be opened again later
      # @param paths [Array<String>] likewise
      def drop(files, paths = [])
        return unless any?

        files.each { |file| file.chown(@user&.uid, @gid) }
        paths.each { |path| ::File.lchown(@user&.uid, @gid, path) }
        ::Process.initgroups(@user.name, @gid) if @user
        ::Process::GID.change_privilege(@gid) if @gid
        ::Process::UID.change_privilege(@user.uid) if @user
      rescue ::SystemCallError => e
        raise ConfigError, "cannot become #{@user&.name || @gid}: #{e.message}. Only root can"
      end
    end
    private_constant :Privileges
  end
end
