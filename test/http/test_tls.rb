# frozen_string_literal: true

require_relative '../test_helper'
require_relative '../support/certificates'
require 'polyphony/http'
require 'polyphony/http/config'

# What TLS makes of certificates and keys: which are used, and what is said about those that cannot be.
class TestHTTPTLS < Polyphony::TestCase
  include Polyphony::Certificates
  on_every_driver

  TLS = Polyphony::HTTP::TLS

  def setup
    super
    @folder = Dir.mktmpdir
  end

  def teardown
    FileUtils.rm_rf(@folder)
    super
  end

  def pair(name, names, **options)
    write_pair(@folder, name, certificate(*names, **options))
  end

  # Shakes hands with a client over a pair of sockets.
  # @return [OpenSSL::SSL::SSLSocket] the client's end
  def client_of(tls, name: nil, **settings)
    ours, theirs = socket_pair
    context = OpenSSL::SSL::SSLContext.new
    settings.each { |setting, value| context.public_send(:"#{setting}=", value) }
    client = OpenSSL::SSL::SSLSocket.new(theirs, context)
    client.hostname = name if name
    server = spin { outcome_of { OpenSSL::SSL::SSLSocket.new(ours, tls.context).accept } }
    result = outcome_of { client.connect }
    @server_side = server.await
    result
  end

  def outcome_of
    yield
  rescue OpenSSL::SSL::SSLError, SystemCallError, Polyphony::HTTP::Error => e
    e
  end

  def name_for(tls, name)
    client = client_of(tls, name: name)
    client.is_a?(Exception) ? client : client.peer_cert.subject.to_a.first[1]
  end

  def error_of(...)
    assert_raises(TLS::Error) { TLS.new(...) }.message
  end

  def test_the_client_gets_the_certificate_of_the_name_it_asks_for
    pairs = [%w[a.test], %w[b.test *.b.test], %w[c.test]].map { |names| pair(names.first, names) }
    tls = TLS.new(certificates: pairs.map { |cert, key| { cert: cert, key: key } })
    found = [nil, 'a.test', 'B.TEST', 'x.b.test', 'c.test', 'x.y.b.test', 'x.c.test', 'unknown.test'].map { |name| name_for(tls, name) }
    assert_equal %w[a.test a.test b.test b.test c.test a.test a.test a.test], found
    assert_equal %w[a.test b.test *.b.test c.test], tls.names
  end

  def test_an_unknown_name_is_turned_away_if_wanted
    cert, key = pair('a', %w[a.test])
    tls = TLS.new(cert: cert, key: key, strict_names: true)
    assert_equal 'a.test', name_for(tls, 'a.test')
    assert_equal 'a.test', name_for(tls, nil)
    assert_match(/unrecognized name/, name_for(tls, 'b.test').message)
    assert_kind_of Polyphony::HTTP::BadRequest, @server_side
  end

  def test_two_kinds_of_keys_may_be_for_the_same_name
    ec = pair('ec', %w[a.test])
    rsa = pair('rsa', %w[a.test], key: new_key(:rsa))
    tls = TLS.new(certificates: [ec, rsa].map { |cert, key| { cert: cert, key: key } })
    kinds = %w[ECDHE-ECDSA-AES128-GCM-SHA256 ECDHE-RSA-AES128-GCM-SHA256].map do |cipher|
      client_of(tls, name: 'a.test', max_version: :TLS1_2, ciphers: cipher).peer_cert.public_key.oid
    end
    assert_equal %w[id-ecPublicKey rsaEncryption], kinds
  end

  def test_the_chain_goes_along
    root = certificate('root', authority: true)
    middle = certificate('middle', from: root, authority: true)
    cert, key = write_pair(@folder, 'a', certificate('a.test', from: middle), chain: [middle.first])
    store = OpenSSL::X509::Store.new.tap { |all| all.add_cert(root.first) }
    client = client_of(TLS.new(cert: cert, key: key), name: 'a.test', verify_mode: OpenSSL::SSL::VERIFY_PEER, cert_store: store)
    assert_equal 2, client.peer_cert_chain.size
  end

  def test_certificate_and_key_may_be_in_one_file_or_given_as_text
    cert, key = certificate('a.test')
    both = File.join(@folder, 'both.pem')
    File.write(both, key.to_pem + cert.to_pem, perm: 0o600)
    assert_equal 'a.test', name_for(TLS.new(cert: both), nil)
    assert_equal 'a.test', name_for(TLS.new(cert: cert.to_pem, key: key.to_pem), nil)
    assert_equal 'a.test', name_for(TLS.new(cert: cert, key: key), nil)
  end

  def test_reload_takes_new_certificates_and_keeps_the_old_ones_if_it_cannot
    cert, key = pair('a', %w[a.test])
    tls = TLS.new(cert: cert, key: key)
    client = client_of(tls, name: 'a.test')
    server = @server_side
    first = client.peer_cert.serial
    refute_predicate tls, :changed?

    renewed, = pair('a', %w[a.test])
    assert_predicate tls, :changed?
    [nil, 'a.test'].each { |name| assert_equal first, client_of(tls, name: name).peer_cert.serial }
    tls.reload
    serial = OpenSSL::X509::Certificate.new(File.read(renewed)).serial
    [nil, 'a.test'].each { |name| assert_equal serial, client_of(tls, name: name).peer_cert.serial }

    File.write(cert, 'rubbish')
    assert_raises(TLS::Error) { tls.reload }
    assert_equal serial, client_of(tls, name: 'a.test').peer_cert.serial
    server.syswrite('still here')
    assert_equal 'still here', client.sysread(100)
  end

  def test_reload_may_change_the_kind_of_the_key
    cert, key = pair('a', %w[a.test])
    tls = TLS.new(cert: cert, key: key)
    pair('a', %w[a.test], key: new_key(:rsa))
    tls.reload
    assert_equal 'rsaEncryption', client_of(tls).peer_cert.public_key.oid
    assert_kind_of OpenSSL::SSL::SSLError, client_of(tls, max_version: :TLS1_2, ciphers: 'ECDHE-ECDSA-AES128-GCM-SHA256')
  end

  def test_a_session_is_resumed_and_after_a_reload_it_is_not
    cert, key = pair('a', %w[a.test])
    tls = TLS.new(cert: cert, key: key)
    [:TLS1_2, :TLS1_3].each do |version|
      session = nil
      context = { max_version: version, min_version: version, session_cache_mode: OpenSSL::SSL::SSLContext::SESSION_CACHE_CLIENT,
                  session_new_cb: ->((_, found)) { session = found } }
      client = client_of(tls, name: 'a.test', **context)
      @server_side.syswrite('x')
      client.sysread(1)
      assert resumed?(tls, session, context), version.to_s
      tls.reload
      refute resumed?(tls, session, context), version.to_s
    end
    assert_equal 0, tls.context.session_cache_stats[:cache_num]
  end

  def resumed?(tls, session, settings)
    ours, theirs = socket_pair
    context = OpenSSL::SSL::SSLContext.new
    settings.each { |setting, value| context.public_send(:"#{setting}=", value) }
    client = OpenSSL::SSL::SSLSocket.new(theirs, context)
    client.hostname = 'a.test'
    client.session = session
    spin { outcome_of { OpenSSL::SSL::SSLSocket.new(ours, tls.context).accept } }
    client.connect
    client.session_reused?
  end

  def test_old_versions_and_weak_ciphers_are_refused
    cert, key = pair('a', %w[a.test])
    tls = TLS.new(cert: cert, key: key)
    assert_equal 'TLSv1.3', client_of(tls).ssl_version
    assert_equal 'TLSv1.2', client_of(tls, max_version: :TLS1_2).ssl_version
    assert_kind_of OpenSSL::SSL::SSLError, client_of(tls, max_version: :TLS1_2, ciphers: 'AES128-SHA:ECDHE-ECDSA-AES128-SHA@SECLEVEL=0')
    assert_kind_of OpenSSL::SSL::SSLError, client_of(tls, max_version: :TLS1_1, ciphers: 'ALL@SECLEVEL=0')
    only_new = TLS.new(cert: cert, key: key, min_version: '1.3')
    assert_kind_of OpenSSL::SSL::SSLError, client_of(only_new, max_version: :TLS1_2)
  end

  def test_alpn_offers_what_there_is
    cert, key = pair('a', %w[a.test])
    tls = TLS.new(cert: cert, key: key)
    best = Polyphony::HTTP.http2? ? 'h2' : 'http/1.1'
    asked = [%w[http/1.1 h2], %w[http/1.1], %w[http/1.0], %w[x h2c], nil].map do |offer|
      client_of(tls, name: 'a.test', **(offer ? { alpn_protocols: offer } : {})).alpn_protocol
    end
    assert_equal [best, 'http/1.1', 'http/1.0', 'h2c', nil], asked
    assert_match(/no application protocol/, client_of(tls, alpn_protocols: %w[imap]).message)
    without = TLS.new(cert: cert, key: key, http2: false)
    assert_equal 'http/1.1', client_of(without, alpn_protocols: %w[h2 http/1.1]).alpn_protocol
  end

  def test_clients_may_have_to_bring_a_certificate
    authority = certificate('authority', authority: true)
    ca = File.join(@folder, 'ca.pem')
    File.write(ca, authority.first.to_pem)
    cert, key = pair('a', %w[a.test])
    good_cert, good_key = certificate('someone', from: authority)
    bad_cert, bad_key = certificate('nobody')
    required = TLS.new(cert: cert, key: key, verify: :required, ca: ca)
    assert_equal %w[someone], [client_with(required, good_cert, good_key)].map { @server_side.peer_cert.subject.to_a[0][1] }
    client_of(required)
    assert_match(/did not return a certificate/, @server_side.message)
    client_with(required, bad_cert, bad_key)
    assert_match(/certificate verify failed/, @server_side.message)
    optional = TLS.new(cert: cert, key: key, verify: :optional, ca: ca)
    client_of(optional)
    assert_nil @server_side.peer_cert
    client_with(optional, bad_cert, bad_key)
    assert_match(/certificate verify failed/, @server_side.message)
  end

  def client_with(tls, cert, key)
    client_of(tls, name: 'a.test', cert: cert, key: key)
  end

  def test_files_that_cannot_be_used_are_named
    cert, key = pair('a', %w[a.test])
    _, other = pair('b', %w[b.test])
    rubbish = File.join(@folder, 'rubbish').tap { |path| File.write(path, 'x') }
    assert_match(%r{no certificate at #{@folder}/none: the path is relative}, error_of(cert: "#{@folder}/none", key: key))
    assert_match(/no private key at .*none/, error_of(cert: cert, key: "#{@folder}/none"))
    assert_match(/no certificate in .*rubbish: a PEM file/, error_of(cert: rubbish, key: key))
    assert_match(/no private key to be read in .*rubbish/, error_of(cert: cert, key: rubbish))
    assert_match(/no private key to be read in .*a.crt.*; key: names it/, error_of(cert: cert))
    assert_match(/b\.key does not belong to the first certificate of .*a\.crt.*a\.test/, error_of(cert: cert, key: other))
    assert_match(/authorities in .*rubbish|no certificate in .*rubbish/, error_of(cert: cert, key: key, verify: true, ca: rubbish))
  end

  def test_a_broken_certificate_and_an_encrypted_key_are_named
    cert, key = pair('a', %w[a.test])
    broken = File.join(@folder, 'broken').tap { |path| File.write(path, File.read(cert).sub(/^MI..../, 'AAAAAA')) }
    assert_match(/broken has a certificate that cannot be read/, error_of(cert: broken, key: key))
    locked = File.join(@folder, 'locked')
    File.write(locked, OpenSSL::PKey.read(File.read(key)).to_pem(OpenSSL::Cipher.new('aes-128-cbc'), 'secret'), perm: 0o600)
    assert_match(/locked.*password: if it is encrypted/, error_of(cert: cert, key: locked))
    assert_equal %w[a.test], TLS.new(cert: cert, key: locked, password: 'secret').names
    refute_match(/wrong/, error_of(cert: cert, key: locked, password: 'wrong'))
  end

  def test_a_certificate_that_is_not_valid_now_is_an_error_unless_allowed
    old = pair('old', %w[a.test], from_time: Time.now - 7200, till: Time.now - 3600)
    early = pair('early', %w[a.test], from_time: Time.now + 3600, till: Time.now + 7200)
    assert_match(/old.crt .*expired at .*: renew it/, error_of(cert: old[0], key: old[1]))
    assert_match(/early.crt .*valid from .*clock/, error_of(cert: early[0], key: early[1]))
    assert_equal %w[a.test], TLS.new(cert: old[0], key: old[1], allow_expired: true).names
  end

  def test_a_key_that_others_can_read_is_told
    cert, key = pair('a', %w[a.test])
    assert_empty TLS.new(cert: cert, key: key).notes
    File.chmod(0o644, key)
    assert_equal ["the private key #{key} can be read or changed by others (mode 0644): chmod 600 #{key}"],
                 TLS.new(cert: cert, key: key).notes
  end

  def test_settings_that_are_none_are_told
    cert, key = pair('a', %w[a.test])
    [[{}, /needs a certificate/], [{ key: key }, /key without its certificate/], [{ cert: cert, key: key, min_version: '1.0' }, /'1.2' or '1.3'/],
     [{ cert: cert, key: key, verify: :maybe }, /:optional or :required/], [{ cert: cert, key: key, verify: true }, /needs ca/],
     [{ certificates: [{ crt: cert }] }, /no such option of a certificate: :crt/], [{ cert: cert, key: key, ca: cert }, /nothing without verify/]]
      .each { |settings, message| assert_match message, assert_raises(ArgumentError) { TLS.new(**settings) }.message }
    assert_match(/got 5/, assert_raises(ArgumentError) { TLS.for(5) }.message)
  end

  def test_secrets_are_in_no_message_and_in_no_inspect
    secret = 'hunter2'
    cert, key = certificate('secret').values_at(0, 1).map(&:to_pem)
    settings = { cert: cert, key: key, password: secret }
    seen = [TLS.new(**settings), *TLS.new(**settings).instance_variable_get(:@sources), Polyphony::HTTP::Config.new(file: false, tls: [settings])].map(&:inspect)
    seen += [key, [cert, key]].flat_map { |wrong| [-> { TLS.for(wrong) }, -> { TLS.new(certificates: [wrong]) }] }
                              .map { |call| assert_raises(ArgumentError, &call).message }
    assert_empty seen.grep(/#{secret}|PRIVATE KEY/)
    assert_match(/got String/, seen.last(4).first)
  end

  def test_the_self_signed_certificate_is_made_once_and_kept_for_its_user
    with_state(@folder) do
      first = TLS.for(true)
      path = File.join(@folder, 'polyphony/self-signed.pem')
      assert_equal 0o600, File.stat(path).mode & 0o777
      assert_includes first.names, 'localhost'
      assert_includes first.names, Socket.gethostname.downcase
      serial = client_of(first).peer_cert.serial
      assert_equal serial, client_of(TLS.for(:self_signed)).peer_cert.serial
      assert_match(/self-signed certificate for localhost.*development only/, first.notes.first)
      assert_operator first.expires_at, :<, Time.now + (31 * 86_400)
    end
  end

  def test_the_self_signed_certificate_is_made_anew_before_its_end_or_if_others_could_have_read_it
    with_state(@folder) do
      path = File.join(@folder, 'polyphony/self-signed.pem')
      serial = client_of(TLS.for(true)).peer_cert.serial
      File.chmod(0o644, path)
      second = client_of(TLS.for(true)).peer_cert.serial
      refute_equal serial, second
      soon, key = certificate('localhost', Socket.gethostname.downcase, till: Time.now + (6 * 86_400))
      File.write(path, soon.to_pem + key.to_pem)
      refute_equal soon.serial, client_of(TLS.for(true)).peer_cert.serial
      File.write(path, 'rubbish')
      assert_includes TLS.for(true).names, 'localhost'
    end
  end

  def test_without_a_folder_the_self_signed_certificate_is_not_kept
    File.write(File.join(@folder, 'polyphony'), 'a file in the way')
    with_state(@folder) { refute_equal(*Array.new(2) { client_of(TLS.for(true)).peer_cert.serial }) }
  end

  def test_a_client_trusts_the_self_signed_certificate_if_told_to
    with_state(@folder) do
      tls = TLS.for(true)
      store = OpenSSL::X509::Store.new.tap { |all| all.add_file(File.join(@folder, 'polyphony/self-signed.pem')) }
      client = client_of(tls, name: 'localhost', verify_mode: OpenSSL::SSL::VERIFY_PEER, cert_store: store)
      %w[localhost 127.0.0.1 ::1 app.localhost].each { |name| assert client.post_connection_check(name) }
    end
  end

  def with_state(folder)
    before = ENV.fetch('XDG_STATE_HOME', nil)
    ENV['XDG_STATE_HOME'] = folder
    yield
  ensure
    ENV['XDG_STATE_HOME'] = before
  end

  def test_openssl_is_not_loaded_without_tls
    out, err, = run_ruby("require 'polyphony/http'; Polyphony::HTTP::Listener.new('http://127.0.0.1:0'); p defined?(OpenSSL)")
    assert_equal ["nil\n", ''], [out, err]
  end
end
