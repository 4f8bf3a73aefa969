# frozen_string_literal: true

require 'test_helper'
require 'support/beside'
require 'openssl'

# Polyphony::Net: connections and listeners in one call.
class TestNet < Polyphony::TestCase
  include Polyphony::Beside

  Net = Polyphony::Net

  KEY = OpenSSL::PKey::EC.generate('prime256v1')
  CERTIFICATE = OpenSSL::X509::Certificate.new.tap do |certificate|
    certificate.version = 2
    certificate.serial = 1
    certificate.subject = certificate.issuer = OpenSSL::X509::Name.parse('/CN=localhost')
    certificate.public_key = KEY
    certificate.not_before = Time.now - 3600
    certificate.not_after = Time.now + 3600
    names = OpenSSL::X509::ExtensionFactory.new(certificate, certificate)
    certificate.add_extension(names.create_extension('subjectAltName', 'DNS:localhost,IP:127.0.0.1'))
    certificate.sign(KEY, 'SHA256')
  end

  def server_context
    OpenSSL::SSL::SSLContext.new.tap { |context| context.add_certificate(CERTIFICATE, KEY) }
  end

  # Trusts the certificate above, and checks the name.
  def client_context
    OpenSSL::SSL::SSLContext.new.tap do |context|
      context.set_params(cert_store: OpenSSL::X509::Store.new.tap { |store| store.add_cert(CERTIFICATE) })
    end
  end

  def listen(*args)
    track(Net.tcp_listen(*args))
  end

  def test_listen_and_connect
    server = listen('127.0.0.1', 0)
    assert_instance_of TCPServer, server
    accepted = spin { track(server.accept) }
    client = track(Net.tcp_connect('127.0.0.1', server.addr[1]))
    assert_instance_of TCPSocket, client
    client.puts('hello')
    assert_equal "hello\n", accepted.await.gets
  end

  def test_listen_on_all_addresses
    assert_equal '0.0.0.0', listen(0).addr[3]
    assert_equal '0.0.0.0', listen(nil, 0, {}).addr[3]
    assert_equal '127.0.0.1', listen('localhost', 0).addr[3].sub('::1', '127.0.0.1')
  end

  def test_options_of_listeners
    server = listen('127.0.0.1', 0, reuse_port: true, dont_linger: true, backlog: 5)
    again = listen('127.0.0.1', server.addr[1], reuse_port: true)
    assert_equal server.addr[1], again.addr[1]
    refute_equal 0, server.getsockopt(:SOCKET, :REUSEADDR).int
    assert_equal 0, listen('127.0.0.1', 0, reuse_addr: false).getsockopt(:SOCKET, :REUSEADDR).int
    assert_raises(Errno::EADDRINUSE) { Net.tcp_listen('127.0.0.1', server.addr[1]) }
    assert_predicate server, :close_on_exec?
    GC.start
    assert_equal server.addr[1], server.local_address.ip_port
  end

  def test_wrong_arguments
    assert_match(/no port/, assert_raises(RuntimeError) { Net.tcp_listen }.message)
    assert_match(/no port/, assert_raises(RuntimeError) { Net.tcp_listen('127.0.0.1', nil) }.message)
    error = assert_raises(ArgumentError) { Net.tcp_listen(0, reuse: true) }
    assert_match(/:reuse\b.*:reuse_addr/, error.message)
    assert_match(/:tls\b.*:secure/, assert_raises(ArgumentError) { Net.tcp_connect('x', 1, tls: true) }.message)
    assert_raises(ArgumentError) { Net.tcp_listen('a', 'b', 'c') }
    assert_raises(ArgumentError) { Net.setup_alpn(server_context, []) }
  end

  # @yield [server] connects
  def securely(**options)
    server = track(Net.tcp_listen('0.0.0.0', 0, secure_context: server_context, **options))
    assert_instance_of OpenSSL::SSL::SSLServer, server
    accepting = spin do
      server.accept
    rescue OpenSSL::SSL::SSLError => e
      e
    end
    client = spin { yield server.addr[1] }.await
    [client, accepting.await]
  end

  def test_tls
    client, accepted = securely { |port| Net.tcp_connect('localhost', port, secure_context: client_context) }
    spin { client.puts('hello'); client.close }
    assert_equal "hello\n", spin { accepted.gets }.await
    accepted.close
    assert_predicate client.to_io, :closed?
  end

  # Without a word from OpenSSL, and without a name in the handshake: SNI knows no addresses.
  def test_tls_with_an_address
    client = accepted = nil
    assert_silent do
      client, accepted = securely { |port| Net.tcp_connect('127.0.0.1', port, secure_context: client_context) }
    end
    assert_nil accepted.hostname
    [client, accepted].each(&:close)
  end

  # In the handshake already: the server is told, and gets nothing of what we would have said.
  def test_a_certificate_for_another_address_is_refused
    refused = nil
    _, accepted = securely do |port|
      refused = assert_raises(OpenSSL::SSL::SSLError) { Net.tcp_connect('127.0.0.2', port, secure_context: client_context) }
    end
    assert_match(/certificate verify failed/, refused.message)
    assert_kind_of OpenSSL::SSL::SSLError, accepted
  end

  # A context of yours that does not check names leaves it to us.
  def test_a_certificate_for_another_address_is_refused_whatever_the_context_says
    context = client_context.tap { |one| one.verify_hostname = false }
    refused = nil
    _, accepted = securely do |port|
      refused = assert_raises(OpenSSL::SSL::SSLError) { Net.tcp_connect('127.0.0.2', port, secure_context: context) }
    end
    assert_match(/"127.0.0.2" does not match/, refused.message)
    accepted.close
  end

  def test_alpn
    client, accepted = securely(alpn_protocols: %w[h2 http/1.1]) do |port|
      Net.tcp_connect('localhost', port, secure_context: client_context, alpn_protocols: 'http/1.1')
    end
    assert_equal %w[http/1.1 http/1.1], [client.alpn_protocol, accepted.alpn_protocol]
    [client, accepted].each(&:close)
  end

  # Without a context of yours, the system's authorities decide.
  def test_a_certificate_is_checked
    assert_raises(OpenSSL::SSL::SSLError) do
      securely { |port| Net.tcp_connect('localhost', port, secure: true) }
    end
  end
end
