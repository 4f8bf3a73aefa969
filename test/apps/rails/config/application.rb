# frozen_string_literal: true

require 'bundler/setup'
require 'logger'
require 'rails'
require 'action_controller/railtie'
require 'action_view/railtie'
require 'action_cable/engine'

# As small as an application of Rails can be that has an API, pages, streams and Action Cable.
class TestApplication < Rails::Application
  config.load_defaults 7.2
  config.root = File.expand_path('..', __dir__)
  config.eager_load = Rails.env.production?
  config.enable_reloading = Rails.env.development?
  config.secret_key_base = 'x' * 64
  config.logger = Logger.new($stderr, level: :warn)
  config.hosts.clear
  config.active_support.isolation_level = ENV['ISOLATION'].to_sym if ENV['ISOLATION']
  config.action_cable.disable_request_forgery_protection = true
  config.action_cable.mount_path = '/cable'
  config.action_dispatch.show_exceptions = :all
  config.consider_all_requests_local = false
end
